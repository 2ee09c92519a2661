// The build for AVX2 and FMA.
#define Eigen Eigen_v3
#include "pdnn/curvature/impl/solvers.hpp"

const pdnn::curvature::Solvers* pdnn::curvature::solvers_v3() { return &kSolvers; }
