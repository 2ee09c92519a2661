#pragma once
/// NumPy arrays as views and buffers as NumPy arrays: the only place that knows both. Nothing is converted here:
/// an array of another dtype, shape or layout is refused by name.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>

#include "pdnn/core/errors.hpp"
#include "pdnn/core/memory.hpp"

namespace pdnn::bindings {

namespace py = pybind11;

/// "(3, 2)", as NumPy shows a shape.
inline std::string shape_text(const py::array& array) { return py::str(array.attr("shape")); }

/// Throws TypeError or ValueError unless the array holds T in C order. `where` begins the message.
template <class T>
void check_array(const char* where, const py::array& array) {
  if (!py::isinstance<py::array_t<T>>(array))
    throw py::type_error(message(where, ": got an array of ", std::string(py::str(array.dtype())), ", expected ",
                                 std::string(py::str(py::dtype::of<T>())), "; convert it with .astype()"));
  if ((array.flags() & py::array::c_style) == 0)
    throw ValueError(
        message(where, ": the ", shape_text(array), " array is not C-contiguous; pass np.ascontiguousarray(a)"));
}

template <class T>
std::span<const T> read(const char* where, const py::array& array) {
  check_array<T>(where, array);
  return {static_cast<const T*>(array.data()), static_cast<std::size_t>(array.size())};
}

template <class T>
std::span<T> write(const char* where, py::array& array) {
  check_array<T>(where, array);
  require(array.writeable(), where, ": the array is read-only; pass a writable one");
  return {static_cast<T*>(array.mutable_data()), static_cast<std::size_t>(array.size())};
}

/// A matrix of T, as it lies in a two-dimensional array.
template <class T>
Matrix<const T> read_matrix(const char* where, const py::array& array) {
  const std::span<const T> values = read<T>(where, array);
  if (array.ndim() != 2)
    throw ValueError(message(where, ": got shape ", shape_text(array), ", expected two dimensions"));
  return {values.data(), array.shape(0), array.shape(1)};
}

/// A batch of T: the first axis counts samples, the others are a sample's shape.
template <class T>
Tensor<const T> read_batch(const char* where, const py::array& array) {
  const std::span<const T> values = read<T>(where, array);
  if (array.ndim() < 2)
    throw ValueError(message(where, ": got shape ", shape_text(array), ", expected one row a sample, (n, features)"));
  const std::vector<Index> extents(array.shape() + 1, array.shape() + array.ndim());
  return {values.data(), array.shape(0), Shape(std::span<const Index>(extents))};
}

inline Shape to_shape(const std::vector<Index>& extents) { return Shape(std::span<const Index>(extents)); }

inline std::vector<Index> to_extents(const Shape& shape) {
  std::vector<Index> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  return extents;
}

/// An array of its own. NumPy would let go of the GIL while it copies, and a daemon thread may end there (gil.hpp),
/// with its objects let go of without the GIL.
template <class T>
py::array_t<T> copy_of(std::span<const T> values) {
  py::array_t<T> copy(std::ssize(values));
  std::ranges::copy(values, copy.mutable_data());
  return copy;
}

/// A buffer's elements as an array of this shape that shares its memory and keeps it alive.
template <class T>
py::array_t<T> share_buffer(std::shared_ptr<AlignedArray<T>> buffer, const std::vector<Index>& extents) {
  T* const data = buffer->data();
  auto* const owner = new std::shared_ptr<AlignedArray<T>>(std::move(buffer));
  const py::capsule keep(owner, [](void* kept) { delete static_cast<std::shared_ptr<AlignedArray<T>>*>(kept); });
  return py::array_t<T>(extents, data, keep);
}

/// The first `count` elements of a buffer, likewise.
template <class T>
py::array_t<T> share_buffer(std::shared_ptr<AlignedArray<T>> buffer, Index count) {
  return share_buffer(std::move(buffer), std::vector<Index>{count});
}

}  // namespace pdnn::bindings
