#pragma once
/// Products of sparse samples: a row of y is a sum over the elements of a row of x, and one of dw over those of a
/// column.
#include "pdnn/kernels/impl/product.hpp"
#include "pdnn/kernels/impl/some_columns.hpp"
#include "pdnn/kernels/sparse.hpp"

namespace pdnn::kernels::impl {
namespace {

/// Vectors of a row that are summed at once.
inline constexpr int kSparseVectors = kVectorBytes == 64 ? 4 : 8;
/// Rows of dw whose gradient is made before it is applied.
inline constexpr Index kSparseRows = 32;

/// sums += Σ value · its row of b, over the values of a line.
template <class T, int n, bool partial>
PDNN_INLINE void add_rows(const SomeColumns<T, n, partial>& some, const typename SparseBatch<T>::Lines& lines,
                          Index line, const T* b, Index stride, Vector<T> (&sums)[n]) {
  for (Index i = lines.starts[line]; i < lines.starts[line + 1]; ++i) {
    const T* const row = b + lines.at[i] * stride;
    const Vector<T> each = broadcast(lines.values[i]);
    PDNN_UNROLL for (int v = 0; v < n; ++v) sums[v] = fma<T>(each, some.load(row, v), sums[v]);
  }
}

/// Calls run(first, width) for the columns of each panel, or as many of a row.
template <class T, class Run>
PDNN_INLINE void for_panels(const PanelMatrix<T>& w, Run run) {
  const Index most = min(w.panel, kPanel<std::remove_const_t<T>>);
  for (Index first = 0; first < w.cols; first += most) run(first, min(most, w.cols - first));
}

template <class T>
void sparse_nn(Part part, const SparseBatch<T>& x, PanelMatrix<const T> w, const T* b, Activation f, Matrix<T> y) {
  const Range mine = deal(part, y.rows);
  for_panels(w, [&](Index first, Index width) {
    const Element<const T> panel = spot(w, 0, first);
    for_some_columns<T, kSparseVectors>(
        width, [&]<int n, bool partial>(const SomeColumns<T, n, partial>& some, Index j) {
          for (Index r = mine.begin; r < mine.end; ++r) {
            Vector<T> sums[n];
            PDNN_UNROLL for (int v = 0; v < n; ++v) sums[v] = b ? some.load(b + first + j, v) : Vector<T>{};
            add_rows(some, x.rows, r, panel.data + j, panel.stride, sums);
            T* const out = y.row(r) + first + j;
            PDNN_UNROLL for (int v = 0; v < n; ++v) some.store(out, v, activation<T>(f, sums[v]));
          }
        });
  });
}

template <class T>
void sparse_tn(Part part, const SparseBatch<T>& x, Matrix<const T> dy, const T* from, const Update<T>* update,
               PanelMatrix<T> dw) {
  alignas(64) T room[kSparseRows * kPanel<T>];
  const Range mine = in_tiles(deal(part, ceil_div(dw.rows, kSparseRows)), kSparseRows, dw.rows);
  for_panels(dw, [&](Index first, Index width) {
    for (Index row = mine.begin; row < mine.end; row += kSparseRows) {
      const Index rows = min(kSparseRows, mine.end - row);
      const Element<T> own = spot(dw, row, first);
      const Index at = own.data - dw.data;
      T* const sums = update ? room : own.data;
      const Index stride = update ? width : own.stride;
      for_some_columns<T, kSparseVectors>(
          width, [&]<int n, bool partial>(const SomeColumns<T, n, partial>& some, Index j) {
            for (Index r = 0; r < rows; ++r) {
              Vector<T> sum[n];
              PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] =
                  from ? some.load(from + at + r * own.stride + j, v) : Vector<T>{};
              add_rows(some, x.columns, row + r, dy.data + first + j, dy.stride, sum);
              PDNN_UNROLL for (int v = 0; v < n; ++v) some.store(sums + r * stride + j, v, sum[v]);
            }
          });
      if (!update) continue;
      const bool whole = own.stride == width;  // rows of w touch each other
      for (Index r = 0; r < rows; r += whole ? rows : 1)
        update_run<T>(*update, at + r * own.stride, whole ? rows * width : width, room + r * width);
    }
  });
}

}  // namespace
}  // namespace pdnn::kernels::impl
