#pragma once
/// How the output of a product is dealt out to workers, and where the parts of a weight lie.
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/panels.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kFetchedRows = 4;  // of a tile: an element of b takes as long to be fetched, at least

/// Which part of the output is a worker's: some rows of whole tiles of columns. The number of parts side by side is the
/// one with which the worker that has most is done first, columns counted in whole vectors. It reads all of b under its
/// columns; of a weight that is what other cores have just updated.
struct Block {
  Range rows, cols;
};
PDNN_INLINE Block own_block(Part part, Index rows, Index cols, Index tile_cols, Index lanes) {
  if (part.size == 1) return {{0, rows}, {0, cols}};
  const Index tiles = ceil_div(cols, tile_cols), all = ceil_div(cols, lanes) * lanes;
  int across = 1;
  for (Index count = 1, least = 0; count <= min(part.size, tiles); ++count) {
    const Index most_cols = min(ceil_div(tiles, count) * tile_cols, all);
    const Index most = (ceil_div(rows, part.size / count) + kFetchedRows) * most_cols;
    if (count == 1 || most <= least) across = static_cast<int>(count), least = most;
  }
  const int down = part.size / across;
  const Range own_rows = part.index < across * down ? deal({part.index / across, down}, rows) : Range{rows, rows};
  return {own_rows, in_tiles(deal({part.index % across, across}, tiles), tile_cols, cols)};
}

/// Where element (r, j) lies, and how far from it the one in the next row.
template <class T>
struct Element {
  T* data;
  Index stride;
};
template <class T>
PDNN_INLINE Element<T> spot(const PanelMatrix<T>& w, Index r, Index j) {
  if (w.panel >= w.cols) return {w.data + r * w.stride + j, w.stride};
  const Index first = j / w.panel * w.panel, width = min(w.panel, w.cols - first);
  return {w.data + first * w.rows + r * width + (j - first), width};
}

}  // namespace
}  // namespace pdnn::kernels::impl
