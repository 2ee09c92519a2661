#pragma once
/// y = f(x w + b) of a few rows, which wait for w: it is read once, some of its rows at a time along all their columns,
/// and factors that are rounded are rounded in registers. Sums go on in y, in ascending order, as those of tiles do.
#include "pdnn/kernels/impl/operands.hpp"
#include "pdnn/kernels/impl/parts.hpp"
#include "pdnn/kernels/impl/some_columns.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kPlaces = 8;         // rows of w that are multiplied together
inline constexpr Index kRowsOfPlaces = 4;   // of x, with them, at most
inline constexpr int kVectorsOfPlaces = 2;  // whose sums do not wait for each other

/// Whether they take less time so. Sums of a narrow y wait for each other, on their way through it.
template <class T>
PDNN_INLINE bool are_few_rows(Index rows, Index cols, Index depth) {
  return rows <= kRowsOfPlaces && cols >= (rows - 1) * kVectorsOfPlaces * kLanes<T> && depth > 0;
}

/// y += x w of so many rows of x, kPlaces apart, and of w.
template <class Operands, int rows, Index places, class T>
PDNN_INLINE void add_places(const T* x, const T* w, Index stride, Index cols, T* y, Index y_stride) {
  Vector<T> each[rows][places];
  PDNN_UNROLL for (int r = 0; r < rows; ++r) PDNN_UNROLL for (Index k = 0; k < places; ++k) each[r][k] =
      broadcast(x[r * kPlaces + k]);
  for_some_columns<T, kVectorsOfPlaces>(
      cols, [&]<int n, bool partial>(const SomeColumns<T, n, partial>& some, Index j) {
        Vector<T> sum[rows][n];
        PDNN_UNROLL for (int r = 0; r < rows; ++r) PDNN_UNROLL for (int v = 0; v < n; ++v) sum[r][v] =
            some.load(y + r * y_stride + j, v);
        PDNN_UNROLL for (Index k = 0; k < places; ++k) {
          Vector<T> row[n];
          PDNN_UNROLL for (int v = 0; v < n; ++v) row[v] = Operands::factor(some.load(w + k * stride + j, v));
          PDNN_UNROLL for (int r = 0; r < rows; ++r) PDNN_UNROLL for (int v = 0; v < n; ++v) sum[r][v] =
              fma<T>(each[r][k], row[v], sum[r][v]);
        }
        PDNN_UNROLL for (int r = 0; r < rows; ++r) PDNN_UNROLL for (int v = 0; v < n; ++v)
            some.store(y + r * y_stride + j, v, sum[r][v]);
      });
}

/// y [rows, cols] = x w + b; w's rows lie `stride` apart.
template <class Operands, int rows, class T>
__attribute__((noinline)) void multiply_rows_of_places(const Matrix<const T>& x, const T* w, Index stride, const T* b,
                                                       const Matrix<T>& y) {
  for (int r = 0; r < rows; ++r)
    for (Index j = 0; j < y.cols; j += kLanes<T>)
      store(y.data + r * y.stride + j, b ? load(b + j, y.cols - j) : Vector<T>{}, y.cols - j);
  T factors[rows * kPlaces];
  for (Index k = 0; k < x.cols; k += kPlaces) {
    const Index places = min(kPlaces, x.cols - k);
    Operands::copy_along(x.data + k, x.stride, rows, places, factors, kPlaces);
    if (places == kPlaces) {
      add_places<Operands, rows, kPlaces>(factors, w, stride, y.cols, y.data, y.stride);
      w += kPlaces * stride;
    } else {
      for (Index i = 0; i < places; ++i, w += stride)
        add_places<Operands, rows, 1>(factors + i, w, stride, y.cols, y.data, y.stride);
    }
  }
}

template <class Operands, class T, int... less>
PDNN_INLINE auto rows_of_places(Index rows, std::integer_sequence<int, less...>) {
  static constexpr decltype(&multiply_rows_of_places<Operands, 1, T>) kernels[] = {
      multiply_rows_of_places<Operands, less + 1, T>...};
  return kernels[rows - 1];
}

/// Of 1 to kRowsOfPlaces rows.
template <class Operands, class T>
void product_of_few_rows(Part part, const Matrix<const T>& x, const PanelMatrix<const T>& w, const T* b, Activation f,
                         const Matrix<T>& y) {
  constexpr auto heights = std::make_integer_sequence<int, kRowsOfPlaces>{};
  const Index unit = w.panel < w.cols ? w.panel : 4 * kLanes<T>;
  const auto [rows, cols] = own_block(part, y.rows, y.cols, unit, kLanes<T>);
  if (rows.size() <= 0) return;
  for (Index j = cols.begin, end; j < cols.end; j = end) {
    end = min((j / w.panel + 1) * w.panel, cols.end);
    const Element<const T> first = spot(w, 0, j);
    const Matrix<T> sums{y.data + rows.begin * y.stride + j, rows.size(), end - j, y.stride};
    rows_of_places<Operands, T>(rows.size(), heights)({x.data + rows.begin * x.stride, rows.size(), x.cols, x.stride},
                                                      first.data, first.stride, b ? b + j : nullptr, sums);
    if (f != Activation::identity)
      activate_rows<T>(f, rows.size(), end - j, {sums.data, y.stride}, {sums.data, y.stride});
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
