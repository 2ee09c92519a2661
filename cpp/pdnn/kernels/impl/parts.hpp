#pragma once
/// How the output of a product is dealt out to workers.
#include "pdnn/kernels/impl/elementwise.hpp"

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

}  // namespace
}  // namespace pdnn::kernels::impl
