#pragma once
/// Targets from NumPy: int32 classes, shape (n,), or values, shape (n, width).
#include "numpy.hpp"
#include "pdnn/nn/loss.hpp"

namespace pdnn::bindings {

template <class T>
nn::Target<T> read_target(const char* where, const py::array& target, Index rows) {
  if (target.ndim() < 1 || target.shape(0) != rows)
    throw ValueError(message(where, ": got shape ", shape_text(target), " for ", rows, " samples"));
  if (target.ndim() == 1) return {read<std::int32_t>(where, target).data(), {}};
  return {nullptr, read_matrix<T>(where, target)};
}

}  // namespace pdnn::bindings
