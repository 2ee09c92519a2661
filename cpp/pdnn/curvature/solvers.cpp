#include "pdnn/curvature/solvers.hpp"

#include "pdnn/kernels/isa.hpp"

namespace pdnn::curvature {

const Solvers& solvers() {
#ifdef PDNN_WITH_V3
  if (kernels::active_isa() >= kernels::Isa::v3) return *solvers_v3();
#endif
  return *solvers_v2();
}

}  // namespace pdnn::curvature
