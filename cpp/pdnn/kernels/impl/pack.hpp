#pragma once
/// Copies of matrix blocks into compact buffers, as they are or transposed, padded with zeros.
#include "pdnn/kernels/impl/vector.hpp"

namespace pdnn::kernels::impl {
namespace {

struct AsItIs {
  template <class V>
  PDNN_INLINE V operator()(V x) const {
    return x;
  }
};

/// to[r, j] = change(from[r, j]) for j < cols, 0 for cols ≤ j < width, a multiple of kLanes; rows of `to` lie `width`
/// apart. change(0) is 0.
template <Index width, class T, class Change = AsItIs>
void copy_block(const T* from, Index stride, Index rows, Index cols, T* to, Change change = {}) {
  constexpr Index n = kLanes<T>;
  for (Index r = 0; r < rows; ++r, from += stride, to += width) {
    if (cols == width)
      PDNN_UNROLL for (Index j = 0; j < width; j += n) store(to + j, change(load(from + j)));
    else
      PDNN_UNROLL for (Index j = 0; j < width; j += n) store(to + j, change(load(from + j, cols - j)));
  }
}

/// to[r, j] = change(from[j, r]) for j < cols, 0 for cols ≤ j < width. Writes rows up to the next multiple of kLanes.
template <Index width, class T, class Change = AsItIs>
void transpose_block(const T* from, Index stride, Index rows, Index cols, T* to, Change change = {}) {
  constexpr Index n = kLanes<T>;
  for (Index r = 0; r < rows; r += n) {
    for (Index j = 0; j < width; j += n) {
      Vector<T> square[n];
      PDNN_UNROLL for (Index i = 0; i < n; ++i) square[i] =
          j + i < cols ? change(load(from + (j + i) * stride + r, rows - r)) : Vector<T>{};
      transpose<T>(square);
      PDNN_UNROLL for (Index i = 0; i < n; ++i) store(to + (r + i) * width + j, square[i]);
    }
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
