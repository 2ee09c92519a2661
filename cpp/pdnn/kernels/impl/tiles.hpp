#pragma once
/// Products of pairs on a unit that multiplies tiles (impl/amx.hpp): a register has 16 rows of a with 16 pairs each, 16
/// pairs of rows of b, or 16 × 16 sums. Four registers of sums share two of a and two of b: one load a multiplication.
#include "pdnn/kernels/impl/amx.hpp"
#include "pdnn/kernels/impl/tile.hpp"

namespace pdnn::kernels::impl {
namespace {

/// Calls action<i, j>() for each of `down` × `across` registers of sums.
template <int down, int across, class Action>
PDNN_INLINE void each_sum(Action action) {
  action.template operator()<0, 0>();
  if constexpr (across == 2) action.template operator()<0, 1>();
  if constexpr (down == 2) action.template operator()<1, 0>();
  if constexpr (down == 2 && across == 2) action.template operator()<1, 1>();
}

/// The registers of a tile: 0 to 3 are sums, 4 and 5 rows of a, 6 and 7 columns of b.
template <class Unit, int down, int across>
struct TileSums {
  static constexpr Index kSize = down * kTileRows * across * kTileRows, kWidth = across * kTileRows;

  static PDNN_INLINE void zero() {
    each_sum<down, across>([]<int i, int j>() { Unit::template zero<2 * i + j>(); });
  }
  static PDNN_INLINE void load(const float* from, Index stride) {
    each_sum<down, across>(
        [&]<int i, int j>() { Unit::template load<2 * i + j>(from + i * kTileRows * stride + j * kTileRows, stride); });
  }
  static PDNN_INLINE void store(float* to, Index stride) {
    each_sum<down, across>(
        [&]<int i, int j>() { Unit::template store<2 * i + j>(to + i * kTileRows * stride + j * kTileRows, stride); });
  }
  /// Adds the products of places [begin, end), whole registers of them.
  static PDNN_INLINE void add(const Tile<float>& tile, Index begin, Index end) {
    const Index a_stride = tile.row_step, b_stride = tile.b_stride;
    const float *a = tile.a + begin, *const last = tile.a + end, *b = tile.b + begin * b_stride;
    for (; a < last; a += kTileRows, b += kTileRows * b_stride) {
      each_sum<1, across>([&]<int, int j>() { Unit::template load<6 + j>(b + j * kTileRows, b_stride); });
      each_sum<down, 1>([&]<int i, int>() { Unit::template load<4 + i>(a + i * kTileRows * a_stride, a_stride); });
      each_sum<down, across>([]<int i, int j>() { Unit::template multiply_add<2 * i + j, 4 + i, 6 + j>(); });
    }
  }
  /// The first `height` rows of sums that were stored compactly, into c.
  static PDNN_INLINE void put(const Tile<float>& tile, Index height, const float* sums) {
    for (Index r = 0; r < height; ++r) {
      for (Index j = 0; j < kWidth; j += kTileRows) {
        const Vector<float> sum = impl::load(sums + r * kWidth + j);
        float* const c = tile.c + r * tile.c_stride + j;
        tile.descend ? descend(tile.lr, tile.l2, sum, c) : impl::store(c, sum);
      }
    }
  }
};

template <class Unit>
struct Tiles : Pairs {
  using InTile = Tiles;
  static constexpr Index kStep = kTileRows, kRows = kTileRows;
  static constexpr int kWidest = 2, kHighest = 2 * kTileRows;

  struct InUse {
    InUse() { Unit::configure(TileConfig{}); }
    ~InUse() { Unit::release(); }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;
  };

  /// to[k / 2, j] = the pair of from[k, j] and from[k + 1, j] for j < cols, 0 for cols ≤ j < width and up to whole
  /// steps.
  template <Index width>
  static void copy(const float* from, Index stride, Index depth, Index cols, float* to) {
    Pairs::copy<width>(from, stride, depth, cols, to);
    for (Index k = ceil_div(depth, kGroup); k < places_of<Tiles>(depth); ++k)
      for (Index j = 0; j < width; j += kLanes<float>) store(to + k * width + j, Vector<float>{});
  }
  /// to[r, k / 2] = the pair of from[r, k] and from[r, k + 1], 0 up to whole steps; rows of `to` lie `to_stride` apart.
  static void copy_along(const float* from, Index stride, Index rows, Index depth, float* to, Index to_stride) {
    constexpr Index n = kLanes<float>;
    for (; rows > 0; --rows, from += stride, to += to_stride)
      for (Index k = 0; k < depth; k += 2 * n)
        store(to + k / 2, joined(load(from + k, depth - k), load(from + k + n, depth - k - n)));
  }
  /// to[r, k / 2] = the pair of from[k, r] and from[k + 1, r], 0 up to whole steps and up to whole registers of rows.
  static void copy_across(const float* from, Index stride, Index depth, Index rows, float* to, Index to_stride) {
    constexpr Index n = kLanes<float>;
    for (Index r = 0; r < rows; r += n) {
      for (Index k = 0; k < depth; k += 2 * n) {
        Vector<float> square[n];
        PDNN_UNROLL for (Index i = 0; i < n; ++i) {
          const Index left = depth - k - 2 * i;
          square[i] =
              left > 0 ? pairs_of_rows(from + (k + 2 * i) * stride + r, stride, left, rows - r) : Vector<float>{};
        }
        transpose<float>(square);
        PDNN_UNROLL for (Index i = 0; i < n; ++i) store(to + (r + i) * to_stride + k / 2, square[i]);
      }
    }
  }

  template <int vectors>
  static void multiply(const Tile<float>& tile, Index height) {
    height > kRows ? multiply<vectors, 2>(tile, height) : multiply<vectors, 1>(tile, height);
  }
  template <int vectors>
  static void multiply_leaves(const LeafTile<float>& tile, Index height) {
    height > kRows ? multiply_leaves<vectors, 2>(tile, height) : multiply_leaves<vectors, 1>(tile, height);
  }

 private:
  template <int vectors, int down>
  static __attribute__((noinline)) void multiply(const Tile<float>& tile, Index height) {
    using Sums = TileSums<Unit, down, vectors>;
    alignas(64) float room[Sums::kSize];
    const bool whole = height == down * kRows;
    if (!tile.start) {
      Sums::zero();
    } else if (whole || tile.start_stride == 0) {
      Sums::load(tile.start, tile.start_stride);
    } else {
      copy_block<Sums::kWidth>(tile.start, tile.start_stride, height, Sums::kWidth, room);
      Sums::load(room, Sums::kWidth);
    }
    Sums::add(tile, 0, tile.depth);
    if (whole && !tile.descend) return Sums::store(tile.c, tile.c_stride);
    Sums::store(room, Sums::kWidth);
    Sums::put(tile, height, room);
  }
  /// Sums of leaves, or of their nodes, wait beside the registers, and join as a binary counter carries.
  template <int vectors, int down>
  static __attribute__((noinline)) void multiply_leaves(const LeafTile<float>& tile, Index height) {
    using Sums = TileSums<Unit, down, vectors>;
    alignas(64) float sums[kMostTileLevels + 1][Sums::kSize];
    int waits = 0;
    for (Index leaf = 0, begin = 0; leaf < tile.leaves; begin = tile.ends[leaf++], ++waits) {
      Sums::zero();
      Sums::add(tile, begin, tile.ends[leaf]);
      Sums::store(sums[waits], Sums::kWidth);
      for (int joins = joins_after(leaf, tile.leaves); joins > 0; --joins, --waits)
        join_run(Sums::kSize, sums[waits], sums[waits - 1]);
    }
    Sums::put(tile, height, sums[0]);
  }
};

}  // namespace
}  // namespace pdnn::kernels::impl
