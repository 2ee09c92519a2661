/// pdnn._core: everything that needs no MPI. The submodules float32 and float64 hold the same names for each width.
#include <pybind11/numpy.h>

#include "bindings.hpp"

PYBIND11_MODULE(_core, m) {
  using namespace pdnn::bindings;
  m.doc() = "The C++ core of pdnn.";
  pybind11::detail::npy_api::get();  // lets go of the GIL the first time, where a daemon thread might end (gil.hpp)
  bind_core(m);
  bind_comm(m);
  bind_compression_stats(m);
  bind_recording(m);
  bind_rules(m);
  bind_data(m);
  bind_partition(m);
  bind_engine(m);
  bind_reduce(m);
  bind_strategy(m);
  const auto bind_width = [&]<class T>(T, const char* name) {
    pybind11::module_ width = m.def_submodule(name);
    bind_kernels<T>(width);
    bind_nn<T>(width);
    bind_custom<T>(width);
    bind_eager<T>(width);
    bind_optim<T>(width);
    bind_codec<T>(width);
    bind_data<T>(width);
    bind_partition<T>(width);
    bind_engine<T>(width);
    bind_reduce<T>(width);
    bind_strategy<T>(width);
  };
  bind_width(float{}, "float32");
  bind_width(double{}, "float64");
  bind_curvature(m);
}
