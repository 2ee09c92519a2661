#include "pdnn/kernels/panels.hpp"

namespace pdnn::kernels {

namespace {

/// Calls copy(from, to, columns) with the places of each row of each panel in both layouts.
template <class T, class Copy>
void each_row_of_panels(Index rows, Index cols, Copy copy) {
  Index at = 0;
  for (Index col = 0; col < cols; col += kPanel<T>) {
    const Index width = std::min(kPanel<T>, cols - col);
    for (Index row = 0; row < rows; ++row, at += width) copy(row * cols + col, at, width);
  }
}

}  // namespace

template <class T>
void to_panels(Index rows, Index cols, const T* row_major, T* panels) {
  each_row_of_panels<T>(rows, cols, [=](Index in_rows, Index in_panels, Index width) {
    std::copy_n(row_major + in_rows, width, panels + in_panels);
  });
}

template <class T>
void from_panels(Index rows, Index cols, const T* panels, T* row_major) {
  each_row_of_panels<T>(rows, cols, [=](Index in_rows, Index in_panels, Index width) {
    std::copy_n(panels + in_panels, width, row_major + in_rows);
  });
}

template void to_panels<float>(Index, Index, const float*, float*);
template void to_panels<double>(Index, Index, const double*, double*);
template void from_panels<float>(Index, Index, const float*, float*);
template void from_panels<double>(Index, Index, const double*, double*);

}  // namespace pdnn::kernels
