#pragma once
/// PanelMatrix: a weight, row-major or cut into panels that lie one after another.
#include <algorithm>
#include <type_traits>

#include "pdnn/core/types.hpp"

namespace pdnn::kernels {

/// A weight or its gradient: row-major, or cut into panels of `panel` columns (the last may be narrower) that lie one
/// after another, each row-major. Members of a team who own panels own whole pages of memory; of a row-major matrix the
/// prefetchers of a core would fetch, and so take away, what its neighbors are writing.
template <class T>
struct PanelMatrix {
  T* data;
  Index rows, cols, stride, panel;

  PanelMatrix(const Matrix<T>& m)
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride), panel(m.cols) {}  // NOLINT
  PanelMatrix(const Matrix<std::remove_const_t<T>>& m)                                // NOLINT: a view of a view
    requires(std::is_const_v<T>)
      : PanelMatrix(Matrix<T>(m)) {}
  PanelMatrix(T* values, Index row_count, Index col_count) : PanelMatrix(Matrix<T>(values, row_count, col_count)) {}
  PanelMatrix(T* values, Index row_count, Index col_count, Index columns_of_a_panel)
      : data(values), rows(row_count), cols(col_count), stride(col_count), panel(columns_of_a_panel) {}
  Index panels() const { return (cols + panel - 1) / panel; }
  /// The columns of these panels.
  Range columns(Range of_panels) const {
    return {std::min(of_panels.begin * panel, cols), std::min(of_panels.end * panel, cols)};
  }
  /// These panels by themselves.
  PanelMatrix panels(Range of_panels) const {
    const Range own = columns(of_panels);
    return {data + own.begin * rows, rows, own.size(), panel};
  }
};

/// The columns of a panel.
template <class T>
inline constexpr Index kPanel = 256 / Index{sizeof(T)};

/// Copies a row-major weight [rows, cols] into panels, or back.
template <class T>
void to_panels(Index rows, Index cols, const T* row_major, T* panels);
template <class T>
void from_panels(Index rows, Index cols, const T* panels, T* row_major);

}  // namespace pdnn::kernels
