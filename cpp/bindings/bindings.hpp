#pragma once
/// One function a core folder; each adds its part to the module. The templated ones go into a submodule for each width.
#include <pybind11/pybind11.h>

#include "gil.hpp"

namespace pdnn::bindings {

namespace py = pybind11;

void bind_core(py::module_& m);
void bind_comm(py::module_& m);
void bind_compression_stats(py::module_& m);
void bind_recording(py::module_& m);
void bind_rules(py::module_& m);
void bind_data(py::module_& m);
void bind_partition(py::module_& m);
void bind_engine(py::module_& m);
void bind_reduce(py::module_& m);
void bind_strategy(py::module_& m);
/// After float64, of whose classes it speaks.
void bind_curvature(py::module_& m);
template <class T>
void bind_kernels(py::module_& m);
template <class T>
void bind_nn(py::module_& m);
template <class T>
void bind_custom(py::module_& m);
template <class T>
void bind_eager(py::module_& m);
template <class T>
void bind_optim(py::module_& m);
template <class T>
void bind_codec(py::module_& m);
template <class T>
void bind_data(py::module_& m);
template <class T>
void bind_partition(py::module_& m);
template <class T>
void bind_engine(py::module_& m);
template <class T>
void bind_reduce(py::module_& m);
template <class T>
void bind_strategy(py::module_& m);

}  // namespace pdnn::bindings
