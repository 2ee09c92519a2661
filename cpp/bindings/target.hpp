#pragma once
/// Targets from NumPy: int32 classes, shape (n,), or values, shape (n, width); and weights of rows, float64, shape
/// (n,).
#include <optional>

#include "numpy.hpp"
#include "pdnn/nn/loss.hpp"

namespace pdnn::bindings {

template <class T>
nn::Target<T> read_target(const char* where, const py::array& target, const std::optional<py::array>& weight,
                          Index rows) {
  if (target.ndim() < 1 || target.shape(0) != rows)
    throw ValueError(message(where, ": got shape ", shape_text(target), " for ", rows, " samples"));
  const double* weights = nullptr;
  if (weight) {
    weights = read<double>(where, *weight).data();
    require(weight->size() == rows, where, ": got ", weight->size(), " weights for ", rows, " samples");
  }
  if (target.ndim() == 1) return {read<std::int32_t>(where, target).data(), {}, weights};
  return {nullptr, read_matrix<T>(where, target), weights};
}

}  // namespace pdnn::bindings
