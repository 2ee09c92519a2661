#pragma once
/// Sums over columns, and rows gathered by number with conversion.
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/impl/leaves.hpp"

namespace pdnn::kernels::impl {
namespace {

template <class T, bool several>
PDNN_INLINE void sum_columns(Part part, Matrix<const T> x, const LeafSums<T>& leaves, bool add, T* sums) {
  constexpr int together = 4;  // vectors, to keep several additions in flight
  constexpr Index width = together * kLanes<T>;
  const Range mine = deal_elements<T>(part, x.cols);
  for (Index j = mine.begin; j < mine.end; j += width) {
    const Index left = mine.end - j;
    Vector<T> sum[together];
    PDNN_UNROLL for (int v = 0; v < together; ++v) sum[v] =
        add ? load(sums + j + v * kLanes<T>, left - v * kLanes<T>) : Vector<T>{};
    sum_leaves<T, together, several>(leaves, x.rows, sum, [&](Range rows, Vector<T>(&own)[together]) {
      for (Index r = rows.begin; r < rows.end; ++r) {
        const T* row = x.data + r * x.stride + j;
        PDNN_UNROLL for (int v = 0; v < together; ++v) own[v] += load(row + v * kLanes<T>, left - v * kLanes<T>);
      }
    });
    PDNN_UNROLL for (int v = 0; v < together; ++v) store(sums + j + v * kLanes<T>, sum[v], left - v * kLanes<T>);
  }
}

template <class T>
void column_sums(Part part, Matrix<const T> x, const LeafSums<T>& leaves, bool add, T* sums) {
  return leaves.several() ? sum_columns<T, true>(part, x, leaves, add, sums)
                          : sum_columns<T, false>(part, x, leaves, add, sums);
}

template <class T, class Source>
void gather_rows(Part part, const Source* x, Index stride, const Index* rows, Index count, Index width, double scale,
                 double shift, T* out) {
  const Range mine = deal(part, count);
  const T factor = static_cast<T>(scale), offset = static_cast<T>(shift);
  for (Index r = mine.begin; r < mine.end; ++r) {
    const Source* const from = x + rows[r] * stride;
    T* const to = out + r * width;
    for (Index j = 0; j < width; ++j) to[j] = fmadd(static_cast<T>(from[j]), factor, offset);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
