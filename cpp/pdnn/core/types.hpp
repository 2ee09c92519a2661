#pragma once
/// Index ranges, sample shapes and tensor views: the basic types of all other folders.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace pdnn {

using Index = std::ptrdiff_t;

/// A half-open interval [begin, end).
struct Range {
  Index begin = 0, end = 0;
  Index size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part `index` of `count` things dealt to `parts`: the first count % parts of them hold one more.
inline Range share(Index count, Index index, Index parts) {
  const Index each = count / parts, more = count % parts;
  const Index begin = index * each + std::min(index, more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

/// Which of `size` equal workers is asking. Every worker calls the same code; each does its own range.
struct Part {
  int index = 0, size = 1;
  Range range(Index tiles) const { return size == 1 ? Range{0, tiles} : share(tiles, index, size); }
  bool first() const { return index == 0; }
};

template <class T>
std::span<T> slice(std::span<T> whole, Index at, Index count) {
  return whole.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
}

/// The product of these extents, which are ≥ 0. Throws ValueError beyond 2⁵⁶, where sums and bytes of them still fit.
Index element_count(std::span<const Index> extents);

/// The shape of one sample: up to three extents, (features) or (channels, height, width).
class Shape {
 public:
  static constexpr int kMaxRank = 3;

  Shape() = default;
  Shape(std::initializer_list<Index> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const Index> extents);

  int rank() const { return rank_; }
  Index operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  Index count() const { return extents_[0] * extents_[1] * extents_[2]; }
  bool operator==(const Shape&) const = default;
  /// "784" or "1x28x28", as messages show it.
  std::string text() const;

 private:
  std::array<Index, kMaxRank> extents_{1, 1, 1};  // those beyond the rank stay 1
  int rank_ = 0;
};

/// Flat samples of which most elements are 0. The others stand here twice: row by row, and column by column.
template <class T>
struct SparseBatch {
  /// Row (or column) i has the values from starts[i] on to starts[i + 1]; `at` has their columns (or rows), which rise.
  struct Lines {
    const Index* starts = nullptr;
    const std::int32_t* at = nullptr;
    const T* values = nullptr;
  };
  Lines rows, columns;
};

/// A view of `batch` samples of one shape, contiguous. Null data means that the values are not needed;
/// zero rows is a batch like any other.
template <class T>
struct Tensor {
  T* data = nullptr;
  Index batch = 0;
  Shape sample;
  const SparseBatch<std::remove_const_t<T>>* sparse = nullptr;  ///< instead of data, for layers that take it

  bool wanted() const { return data != nullptr; }
  Index width() const { return sample.count(); }
  Index count() const { return batch * width(); }
  T* row(Index index) const { return data + index * width(); }
  Tensor rows(Range range) const { return {data + range.begin * width(), range.size(), sample}; }
  operator Tensor<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, batch, sample};
  }
};

/// A row-major matrix view; `stride` elements lie between the starts of two rows.
template <class T>
struct Matrix {
  T* data = nullptr;
  Index rows = 0, cols = 0, stride = 0;

  Matrix() = default;
  Matrix(T* values, Index row_count, Index col_count, Index row_stride)
      : data(values), rows(row_count), cols(col_count), stride(row_stride) {}
  Matrix(T* values, Index row_count, Index col_count) : Matrix(values, row_count, col_count, col_count) {}
  /// A batch as a matrix of one row a sample.
  Matrix(const Tensor<T>& tensor) : Matrix(tensor.data, tensor.batch, tensor.width()) {}  // NOLINT: a view of a view
  T* row(Index index) const { return data + index * stride; }
  operator Matrix<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, rows, cols, stride};
  }
};

}  // namespace pdnn
