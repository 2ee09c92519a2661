#pragma once
/// How a product's depth is cut into pieces: whole nodes of the tree over leaves where these fit, parts of a leaf where
/// one is too long. What a piece sums to waits in memory until its neighbor is there.
#include "pdnn/kernels/impl/tile.hpp"

namespace pdnn::kernels::impl {
namespace {

/// How many leaves go into a piece of `most` places: the size of the largest nodes that all fit.
template <class Operands, class T>
PDNN_INLINE Index leaves_together(const LeafSums<T>& leaves, Index most) {
  for (Index together = kMostTileLeaves; together > 1; together /= 2) {
    bool fit = true;
    for (Index leaf = 0, begin = 0, places = 0; leaf < leaves.count; begin = leaves.ends[leaf++]) {
      places = (leaf % together == 0 ? 0 : places) + places_of<Operands>(leaves.ends[leaf] - begin);
      fit = fit && places <= most;
    }
    if (fit) return together;
  }
  return 1;
}

/// A piece of the depth; of leaves it has `leaves` from `leaf` on, whole, or a part of one.
struct Piece {
  Index k, depth;
  bool begins, ends;  // with its rows a sum begins at 0, or is complete
  bool last;
  Index leaf = 0, leaves = 0;
  int joins = 0;  // so many of the sums that wait
};

/// The piece of leaves after `before`, for nodes of `together` leaves.
template <class T>
PDNN_INLINE Piece next_piece(const LeafSums<T>& leaves, Index together, Index most, const Piece& before) {
  const Index k = before.k + before.depth, leaf = before.leaf + (before.ends ? before.leaves : 0);
  const Index behind = min(leaf + together, leaves.count), end = leaves.ends[behind - 1];
  const Index depth = min(most, end - k);
  const bool ends = k + depth == end;
  const int joins = ends ? joins_after(leaf / together, ceil_div(leaves.count, together)) : 0;
  return {k, depth, before.ends, ends, ends && behind == leaves.count, leaf, behind - leaf, joins};
}

/// to[r, j] = sums[r, j] + what waits for it, the last of `joins` sums at `waiting` and `apart` elements before each
/// the one that has waited longer; they lie as rows `stride` apart.
template <class T>
PDNN_INLINE void join_waiting(const T* sums, Index sums_stride, Index rows, Index cols, const T* waiting, Index apart,
                              int joins, Index stride, T* to, Index to_stride) {
  for (Index r = 0; r < rows; ++r, sums += sums_stride, waiting += stride, to += to_stride) {
    for (Index j = 0; j < cols; j += kLanes<T>) {
      Vector<T> sum = load(sums + j, cols - j);
      for (int i = 0; i < joins; ++i) sum += load(waiting - i * apart + j, cols - j);
      store(to + j, sum, cols - j);
    }
  }
}

/// The place behind each leaf of a piece; a leaf begins with a place of its own.
struct PlaceEnds {
  Index ends[kMostTileLeaves];
};
template <class Operands, class T>
PDNN_INLINE PlaceEnds place_ends(const LeafSums<T>& leaves, const Piece& piece) {
  PlaceEnds places;
  for (Index leaf = 0, begin = piece.k, end = 0; leaf < piece.leaves; ++leaf) {
    const Index behind = min(leaves.ends[piece.leaf + leaf], piece.k + piece.depth);
    places.ends[leaf] = end += places_of<Operands>(behind - begin);
    begin = behind;
  }
  return places;
}

/// Copies the depth of each leaf by itself: copy(from, depth, to). Places of `to` lie `apart` elements apart.
template <class Operands, bool leaves, class T, class Copy>
PDNN_INLINE void copy_depth(const T* from, Index stride, Index depth, const LeafSums<T>* sums, const Piece& piece,
                            T* to, Index apart, Copy copy) {
  if constexpr (!leaves || Operands::kGroup == 1) return copy(from, depth, to);
  for (Index leaf = piece.leaf, k = 0; leaf < piece.leaf + piece.leaves; ++leaf) {
    const Index rows = min(sums->ends[leaf], piece.k + depth) - piece.k - k;
    copy(from + k * stride, rows, to);
    to += places_of<Operands>(rows) * apart;
    k += rows;
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
