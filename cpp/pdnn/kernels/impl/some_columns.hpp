#pragma once
/// Columns of row-major matrices, a few vectors at a time.
#include "pdnn/kernels/impl/elementwise.hpp"

namespace pdnn::kernels::impl {
namespace {

/// A few adjacent columns of row-major matrices in vectors, the last of which may exist in part.
template <class T, int vectors, bool partial>
struct SomeColumns {
  Index last;  // lanes of the last vector

  PDNN_INLINE Vector<T> load(const T* row, int v) const {
    return partial && v + 1 == vectors ? load_few(row + v * kLanes<T>, last) : impl::load(row + v * kLanes<T>);
  }
  PDNN_INLINE void store(T* row, int v, Vector<T> x) const {
    if (partial && v + 1 == vectors) return store_few(row + v * kLanes<T>, x, last);
    impl::store(row + v * kLanes<T>, x);
  }
};

/// Calls run(columns, first) for as many columns at a time as fill a few registers, from column j on.
template <class T, int most = 4, class Run>
PDNN_INLINE void for_some_columns(Index cols, Run run, Index j = 0) {
  for (; j + most * kLanes<T> <= cols; j += most * kLanes<T>) run(SomeColumns<T, most, false>{}, j);
  if constexpr (most > 1) {
    for_some_columns<T, most / 2>(cols, run, j);
  } else if (j < cols) {
    run(SomeColumns<T, 1, true>{cols - j}, j);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
