/// pdnn._core: everything that needs no MPI. The submodules float32 and float64 hold the same names for each width.
#include "bindings.hpp"

PYBIND11_MODULE(_core, m) {
  using namespace pdnn::bindings;
  m.doc() = "The C++ core of pdnn.";
  bind_core(m);
  bind_comm(m);
  bind_books(m);
  bind_rules(m);
  bind_epoch(m);
  bind_schedules(m);
  const auto bind_width = [&]<class T>(T, const char* name) {
    pybind11::module_ width = m.def_submodule(name);
    bind_kernels<T>(width);
    bind_nn<T>(width);
    bind_eager<T>(width);
    bind_optim<T>(width);
    bind_codec<T>(width);
    bind_parallel<T>(width);
  };
  bind_width(float{}, "float32");
  bind_width(double{}, "float64");
}
