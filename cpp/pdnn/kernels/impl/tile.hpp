#pragma once
/// The micro-kernel of all matrix products: a tile of the output is summed in registers over the whole depth.
#include "pdnn/kernels/impl/leaves.hpp"
#include "pdnn/kernels/impl/operands.hpp"

namespace pdnn::kernels::impl {
namespace {

/// c[r, j] = start[r, j] + Σ_k a[r · row_step + k · depth_step] b[k, j], the sum in ascending k, from start on: cutting
/// the depth into pieces, each starting from what the one before stored, changes no bit. Null start: 0. A start_stride
/// of 0 repeats one row, a bias. The depth counts groups of the operands.
template <class T>
struct Tile {
  Index depth;
  const T* a;
  Index row_step, depth_step;
  const T* b;
  Index b_stride;
  Index ahead;  // what lies so many elements behind a row of b is fetched with it, existing or not
  const T* start;
  Index start_stride;
  T* c;
  Index c_stride;
  const char* far = nullptr;  // what is fetched into the second-level cache, existing or not
  Index far_step = 0;         // bytes of it for each place along the depth
  bool half = false;          // of the last vector only the lower half is wanted
  bool descend = false;       // with adjacent rows: plain gradient descent on c, c −= lr (sum + l2 c)
  T lr = 0, l2 = 0;
};
/// With several leaves (of adjacent rows) the depth is cut at their ends: each is summed from 0, and c is the sum of
/// their tree.
template <class T>
struct LeafTile : Tile<T> {
  const Index* ends = nullptr;
  Index leaves = 0;
};
template <class T, bool leaves>
using TileOf = std::conditional_t<leaves, LeafTile<T>, Tile<T>>;

/// How many rows fill the registers beside a row of b and one broadcast element of a; or as many as the operands say.
template <class Operands, int vectors>
inline constexpr int kMostRows = Operands::kRows > 1               ? Operands::kHighest
                                 : vectors > 2 && !kManyRegisters  ? 2
                                 : vectors == 4                    ? 6
                                 : vectors == 3                    ? 8
                                 : vectors == 2 && !kManyRegisters ? 6
                                                                   : 12;

/// Leaves of one tile, and the sums of theirs that wait at most. Where registers allow, a tile is half as large and has
/// two leaves in them at once: half as many sums must wait.
inline constexpr Index kMostTileLeaves = 128;
inline constexpr int kMostTileLevels = 7;
inline constexpr bool kLeafPairs = kManyRegisters;
template <class Operands, int vectors>
inline constexpr int kMostLeafRows = kLeafPairs && Operands::kRows == 1 ? 12 / vectors : kMostRows<Operands, vectors>;

/// c −= lr (sum + l2 c).
template <class T>
PDNN_INLINE void descend(T lr, T l2, Vector<T> sum, T* c) {
  const Vector<T> old = load(c);
  store(c, fnma<T>(lr, fma<T>(l2, old, sum), old));
}

/// A tile's sums into c. What the tile says is read first: for the compiler, what is stored might change it.
template <class T, int vectors, int rows, bool adjacent_rows>
PDNN_INLINE void put_sums(const Tile<T>& tile, const Vector<T> (&sum)[rows][vectors]) {
  constexpr Index n = kLanes<T>;
  T* c = tile.c;
  const Index stride = tile.c_stride;
  if (adjacent_rows && tile.descend) {
    const T lr = tile.lr, l2 = tile.l2;
    PDNN_UNROLL for (int r = 0; r < rows; ++r, c += stride) {
      PDNN_UNROLL for (int v = 0; v < vectors; ++v) descend(lr, l2, sum[r][v], c + v * n);
    }
    return;
  }
  PDNN_UNROLL for (int r = 0; r < rows; ++r, c += stride) {
    PDNN_UNROLL for (int v = 0; v < vectors; ++v) store(c + v * n, sum[r][v]);
  }
}

/// Fetches a tile's c.
template <class T, int vectors, int rows>
PDNN_INLINE void fetch_sums(const Tile<T>& tile) {
  PDNN_UNROLL for (int r = 0; r < rows; ++r) {
    PDNN_UNROLL for (int v = 0; v < vectors; v += kVectorsOfLine)
        __builtin_prefetch(tile.c + r * tile.c_stride + v * kLanes<T>);
  }
}

template <class Operands, int vectors, int rows, bool adjacent_rows, bool half>
__attribute__((noinline)) void multiply_tile(const Tile<typename Operands::Value>& tile) {
  using T = typename Operands::Value;
  constexpr Index n = kLanes<T>;
  constexpr int last = half ? vectors - 1 : vectors;
  Vector<T> sum[rows][vectors];
  [[maybe_unused]] HalfVector<T> half_sum[rows];  // of the last vector
  const T* start = tile.start;
  PDNN_UNROLL for (int r = 0; r < rows; ++r) {
    PDNN_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] =
        start ? load(start + r * tile.start_stride + v * n) : Vector<T>{};
  }
  if constexpr (half) PDNN_UNROLL for (int r = 0; r < rows; ++r) half_sum[r] = lower(sum[r][last]);
  if constexpr (adjacent_rows) fetch_sums<T, vectors, rows>(tile);
  const Index row_step = adjacent_rows ? 1 : tile.row_step;
  const T *a = tile.a, *b = tile.b;
  constexpr bool pointers = kNeon && !adjacent_rows;  // which move as they load; such a depth is without gaps
  const T* row_of_a[rows];
  if constexpr (pointers) {
    PDNN_UNROLL for (int r = 0; r < rows; ++r) row_of_a[r] = a + r * row_step;
  }
  const Index ahead = tile.ahead;
  const char* far = tile.far;
  _Pragma("GCC unroll 2") for (Index k = tile.depth; k > 0; --k) {
    Vector<T> row[vectors];
    PDNN_UNROLL for (int v = 0; v < vectors; ++v) row[v] = load(b + v * n);
    PDNN_UNROLL for (int r = 0; r < rows; ++r) {
      const Vector<T> x = Operands::spread(pointers ? row_of_a[r]++ : a + r * row_step);
      PDNN_UNROLL for (int v = 0; v < last; ++v) sum[r][v] = Operands::multiply_add(x, row[v], sum[r][v]);
      if constexpr (half) half_sum[r] = fmadd(lower(x), lower(row[last]), half_sum[r]);
    }
    if constexpr (!adjacent_rows && !Operands::kCopied)
      PDNN_UNROLL for (int v = 0; v < vectors; v += kVectorsOfLine) __builtin_prefetch(b + ahead + v * n);
    if constexpr (!adjacent_rows && !kNeon) {
      __builtin_prefetch(far, 0, 2);
      far += tile.far_step;
    }
    a += tile.depth_step;
    b += tile.b_stride;
  }
  if constexpr (half) PDNN_UNROLL for (int r = 0; r < rows; ++r) sum[r][last] = whole(half_sum[r]);
  put_sums<T, vectors, rows, adjacent_rows>(tile, sum);
}

/// sum = Σ_k a[k, r] b[k, v] over `depth` rows, from 0; a and b go on to what is behind these.
template <class Operands, class T, int vectors, int rows>
PDNN_INLINE void sum_leaf(const Tile<T>& tile, Index depth, const T*& a, const T*& b, Vector<T> (&sum)[rows][vectors]) {
  constexpr Index n = kLanes<T>;
  PDNN_UNROLL for (int r = 0; r < rows; ++r) PDNN_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] = Vector<T>{};
  _Pragma("GCC unroll 2") for (; depth > 0; --depth) {
    Vector<T> row[vectors];
    PDNN_UNROLL for (int v = 0; v < vectors; ++v) row[v] = load(b + v * n);
    PDNN_UNROLL for (int r = 0; r < rows; ++r) {
      const Vector<T> x = Operands::spread(a + r);
      PDNN_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] = Operands::multiply_add(x, row[v], sum[r][v]);
    }
    a += tile.depth_step;
    b += tile.b_stride;
  }
}

template <class T, int vectors, int rows>
PDNN_INLINE void add_sums(Vector<T> (&sum)[rows][vectors], const Vector<T> (&other)[rows][vectors]) {
  PDNN_UNROLL for (int r = 0; r < rows; ++r) PDNN_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] += other[r][v];
}

/// multiply_tile() of several leaves. Their sums, or those of pairs, wait in a stack beside the registers, and join as
/// a binary counter carries.
template <class Operands, int vectors, int rows>
__attribute__((noinline)) void multiply_leaves(const LeafTile<typename Operands::Value>& tile) {
  using T = typename Operands::Value;
  Vector<T> waiting[kMostTileLevels][rows][vectors], sum[rows][vectors];
  fetch_sums<T, vectors, rows>(tile);
  const T *a = tile.a, *b = tile.b;
  const Index nodes = kLeafPairs ? ceil_div(tile.leaves, 2) : tile.leaves;
  Index leaf = 0, begin = 0;
  const auto depth = [&] { return tile.ends[leaf] - begin; };
  int waits = 0;
  for (Index node = 0;; ++node) {
    sum_leaf<Operands>(tile, depth(), a, b, sum);
    begin = tile.ends[leaf++];
    if (kLeafPairs && leaf < tile.leaves) {
      Vector<T> right[rows][vectors];
      sum_leaf<Operands>(tile, depth(), a, b, right);
      begin = tile.ends[leaf++];
      add_sums<T, vectors, rows>(sum, right);
    }
    for (int joins = joins_after(node, nodes); joins > 0; --joins) add_sums<T, vectors, rows>(sum, waiting[--waits]);
    if (node + 1 == nodes) break;
    PDNN_UNROLL for (int r = 0; r < rows; ++r) PDNN_UNROLL for (int v = 0; v < vectors; ++v) waiting[waits][r][v] =
        sum[r][v];
    ++waits;
  }
  put_sums<T, vectors, rows, true>(tile, sum);
}

template <class AnyTile>
using TileKernel = void (*)(const AnyTile&);

template <class Operands, int vectors, bool adjacent_rows, class T, int... rows>
TileKernel<Tile<T>> tile_kernel_of(Index height, bool half, std::integer_sequence<int, rows...>) {
  static constexpr TileKernel<Tile<T>> kernels[][sizeof...(rows)] = {
      {multiply_tile<Operands, vectors, rows + 1, adjacent_rows, false>...},
      {multiply_tile<Operands, vectors, rows + 1, adjacent_rows, Operands::kHalves>...}};
  return kernels[half][height - 1];
}
template <class Operands, int vectors, class T, int... rows>
TileKernel<LeafTile<T>> leaves_kernel_of(Index height, std::integer_sequence<int, rows...>) {
  static constexpr TileKernel<LeafTile<T>> kernels[] = {multiply_leaves<Operands, vectors, rows + 1>...};
  return kernels[height - 1];
}

/// The most rows of a tile.
template <class Operands, int vectors, class T>
PDNN_INLINE Index most_rows(const Tile<T>&) {
  return kMostRows<Operands, vectors>;
}
template <class Operands, int vectors, class T>
PDNN_INLINE Index most_rows(const LeafTile<T>& tile) {
  return tile.leaves > 1 ? kMostLeafRows<Operands, vectors> : kMostRows<Operands, vectors>;
}

/// Multiplies a tile of `height` rows.
template <class Operands, int vectors, bool adjacent_rows, class T>
PDNN_INLINE void multiply_rows(const Tile<T>& tile, Index height) {
  if constexpr (Operands::kRows > 1) {
    Operands::template multiply<vectors>(tile, height);
  } else {
    constexpr auto heights = std::make_integer_sequence<int, kMostRows<Operands, vectors>>{};
    tile_kernel_of<Operands, vectors, adjacent_rows, T>(height, tile.half, heights)(tile);
  }
}
template <class Operands, int vectors, bool adjacent_rows, class T>
PDNN_INLINE void multiply_rows(const LeafTile<T>& tile, Index height) {
  if (tile.leaves == 1)
    return multiply_rows<Operands, vectors, adjacent_rows, T>(static_cast<const Tile<T>&>(tile), height);
  if constexpr (Operands::kRows > 1) {
    Operands::template multiply_leaves<vectors>(tile, height);
  } else {
    constexpr auto heights = std::make_integer_sequence<int, kMostLeafRows<Operands, vectors>>{};
    leaves_kernel_of<Operands, vectors, T>(height, heights)(tile);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
