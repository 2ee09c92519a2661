#include "pdnn/kernels/panels.hpp"

namespace pdnn::kernels {

namespace {

/// Calls move(row-major elements, panel's elements, columns) for each row of each panel.
template <class T, class Move>
void for_panel_rows(Index rows, Index cols, T* row_major, T* panels, Move move) {
  for (Index col = 0; col < cols; col += kPanel<T>) {
    const Index width = std::min(kPanel<T>, cols - col);
    for (Index r = 0; r < rows; ++r, panels += width) move(row_major + r * cols + col, panels, width);
  }
}

}  // namespace

template <class T>
void to_panels(Index rows, Index cols, T* w, T* room) {
  std::copy_n(w, rows * cols, room);
  for_panel_rows(rows, cols, room, w, [](const T* from, T* to, Index width) { std::copy_n(from, width, to); });
}

template <class T>
void from_panels(Index rows, Index cols, T* w, T* room) {
  std::copy_n(w, rows * cols, room);
  for_panel_rows(rows, cols, w, room, [](T* to, const T* from, Index width) { std::copy_n(from, width, to); });
}

template void to_panels<float>(Index, Index, float*, float*);
template void to_panels<double>(Index, Index, double*, double*);
template void from_panels<float>(Index, Index, float*, float*);
template void from_panels<double>(Index, Index, double*, double*);

}  // namespace pdnn::kernels
