#pragma once
/// Sources as Python has them: arrays kept alive, and rows of them by number.
#include "gil.hpp"
#include "numpy.hpp"
#include "pdnn/data/source.hpp"
#include "target.hpp"

namespace pdnn::bindings {

/// The format of samples as they lie in an array.
data::Samples::Format format_of(const py::array& x);

/// Throws unless every index in these places names a row.
inline std::span<const Index> read_order(const py::array& order, Index count, Range places) {
  const std::span<const Index> rows = read<Index>("order", order);
  const Index end = std::clamp(places.end, Index{0}, std::ssize(rows));
  for (Index place = std::clamp(places.begin, Index{0}, end); place < end; ++place) {
    const Index row = rows[static_cast<std::size_t>(place)];
    require(row >= 0 && row < count, "order: row ", row, " of ", count);
  }
  return rows;
}
inline std::span<const Index> read_order(const py::array& order, Index count) {
  return read_order(order, count, {0, order.size()});
}

/// Arrays kept alive, and the view of them that batches are gathered from.
template <class T>
class HeldSource {
 public:
  HeldSource(py::array x, py::array target, double scale, double shift, std::optional<py::array> weight)
      : x_(std::move(x)),
        target_(std::move(target)),
        weight_(std::move(weight)),
        source(samples(scale, shift), read_target<T>("Source: y", target_, weight_, x_.shape(0))) {}

  /// Of sparse rows so wide.
  HeldSource(py::array values, py::array columns, py::array starts, Index width, py::array target,
             std::optional<py::array> weight)
      : x_(std::move(values)),
        columns_(std::move(columns)),
        starts_(std::move(starts)),
        target_(std::move(target)),
        weight_(std::move(weight)),
        source(sparse(width), read_target<T>("Source: y", target_, weight_, starts_.size() - 1)) {}

  py::array_t<T> gather(const py::array& rows) const {
    const std::span<const Index> indices = read_order(rows, source.count());
    std::vector<Index> extents{static_cast<Index>(indices.size())};
    for (int axis = 0; axis < source.sample().rank(); ++axis) extents.push_back(source.sample()[axis]);
    py::array_t<T> out(extents);
    T* const data = out.mutable_data();
    const NoGil release;
    source.gather_samples(Part{}, indices, data);
    return out;
  }

 private:
  data::Samples samples(double scale, double shift) const {
    require(x_.ndim() >= 2, "Source: x has shape ", shape_text(x_), ", expected one row a sample, (n, features)");
    data::Samples samples{
        .data = x_.data(), .format = format_of(x_), .count = x_.shape(0), .scale = scale, .shift = shift};
    samples.sample = to_shape(std::vector<Index>(x_.shape() + 1, x_.shape() + x_.ndim()));
    if (x_.size() == 0) return samples;  // NumPy gives no strides to what has no elements
    py::ssize_t expected = x_.itemsize();
    for (py::ssize_t axis = x_.ndim() - 1; axis >= 1; --axis) {
      require(x_.size() == 0 || x_.shape(axis) == 1 || x_.strides(axis) == expected,
              "Source: the samples of x are not C-contiguous; pass ", "np.ascontiguousarray(x)");
      expected *= x_.shape(axis);
    }
    require(x_.strides(0) % x_.itemsize() == 0, "Source: the rows of x do not start on whole elements");
    samples.stride = x_.strides(0) / x_.itemsize();
    return samples;
  }

  data::Samples sparse(Index width) const {
    const std::span<const T> values = read<T>("Source: values", x_);
    const std::span<const std::int32_t> columns = read<std::int32_t>("Source: columns", columns_);
    const std::span<const Index> starts = read<Index>("Source: starts", starts_);
    require(columns.size() == values.size(), "Source: got ", values.size(), " values and ", columns.size(), " columns");
    require(
        !starts.empty() && starts.front() >= 0 && starts.back() <= std::ssize(values) && std::ranges::is_sorted(starts),
        "Source: the starts of rows do not rise from 0 to ", values.size());
    for (const std::int32_t column : columns)
      require(column >= 0 && column < width, "Source: column ", column, " of ", width);
    return {.data = values.data(),
            .count = std::ssize(starts) - 1,
            .sample = {width},
            .sparse = {starts.data(), columns.data()}};
  }

  py::array x_, columns_, starts_, target_;
  std::optional<py::array> weight_;

 public:
  data::Source<T> source;
};

}  // namespace pdnn::bindings
