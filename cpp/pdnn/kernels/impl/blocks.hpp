#pragma once
/// Products of pairs by an instruction that multiplies blocks, arm64's BFMMLA: it adds to 2 × 2 sums the products of
/// two rows of a and two columns of b, four numbers deep. A register has two places of two rows, two places of two
/// columns, or four sums; both copies are in this order, so that each is loaded once and nothing is moved while it
/// multiplies.
#include "pdnn/kernels/impl/tile.hpp"

namespace pdnn::kernels::impl {
namespace {

/// The sums of a tile of 2 · `pairs` rows: registers (r, v) of rows 2 r and 2 r + 1 and of columns 2 v and 2 v + 1.
template <int vectors, int pairs>
struct BlockSums {
  static constexpr int kAcross = 2 * vectors;
  static constexpr Index kWidth = vectors * kLanes<float>;
  Vector<float> sum[pairs][kAcross];

  /// Two rows of four sums, from the blocks that have them; or the blocks, from such rows.
  static PDNN_INLINE Vector<float> first(Vector<float> a, Vector<float> b) {
    return reinterpret_cast<Vector<float>>(
        vzip1q_f64(reinterpret_cast<float64x2_t>(a), reinterpret_cast<float64x2_t>(b)));
  }
  static PDNN_INLINE Vector<float> second(Vector<float> a, Vector<float> b) {
    return reinterpret_cast<Vector<float>>(
        vzip2q_f64(reinterpret_cast<float64x2_t>(a), reinterpret_cast<float64x2_t>(b)));
  }

  PDNN_INLINE void zero() {
    PDNN_UNROLL for (int r = 0; r < pairs; ++r) PDNN_UNROLL for (int v = 0; v < kAcross; ++v) sum[r][v] =
        Vector<float>{};
  }
  PDNN_INLINE void load(const float* from, Index stride, Index height) {
    PDNN_UNROLL for (int r = 0; r < pairs; ++r) {
      PDNN_UNROLL for (int v = 0; v < vectors; ++v) {
        const float* const row = from + 2 * r * stride + v * kLanes<float>;
        const Vector<float> above = impl::load(row);
        const Vector<float> below = 2 * r + 1 < height ? impl::load(row + stride) : Vector<float>{};
        sum[r][2 * v] = first(above, below), sum[r][2 * v + 1] = second(above, below);
      }
    }
  }
  /// Adds the products of places [begin, end), an even number of them.
  PDNN_INLINE void add(const Tile<float>& tile, Index begin, Index end) {
    const float *rows[pairs], *b = tile.b + begin * kWidth;
    PDNN_UNROLL for (int r = 0; r < pairs; ++r) rows[r] = tile.a + 2 * (r * tile.row_step + begin);
    _Pragma("GCC unroll 2") for (Index k = (end - begin) / 2; k > 0; --k, b += 2 * kWidth) {
      Vector<float> columns[kAcross];
      PDNN_UNROLL for (int v = 0; v < kAcross; ++v) columns[v] = impl::load(b + v * kLanes<float>);
      PDNN_UNROLL for (int r = 0; r < pairs; ++r) {
        const auto x = reinterpret_cast<bfloat16x8_t>(impl::load(rows[r]));
        rows[r] += kLanes<float>;
        PDNN_UNROLL for (int v = 0; v < kAcross; ++v) sum[r][v] =
            vbfmmlaq_f32(sum[r][v], x, reinterpret_cast<bfloat16x8_t>(columns[v]));
      }
    }
  }
  PDNN_INLINE void add(const BlockSums& other) {
    PDNN_UNROLL for (int r = 0; r < pairs; ++r) PDNN_UNROLL for (int v = 0; v < kAcross; ++v) sum[r][v] +=
        other.sum[r][v];
  }
  /// The first `height` rows into c.
  PDNN_INLINE void put(const Tile<float>& tile, Index height) const {
    const auto put_row = [&](Vector<float> row, float* c) {
      tile.descend ? descend(tile.lr, tile.l2, row, c) : store(c, row);
    };
    PDNN_UNROLL for (int r = 0; r < pairs; ++r) {
      PDNN_UNROLL for (int v = 0; v < vectors; ++v) {
        float* const c = tile.c + 2 * r * tile.c_stride + v * kLanes<float>;
        put_row(first(sum[r][2 * v], sum[r][2 * v + 1]), c);
        if (2 * r + 1 < height) put_row(second(sum[r][2 * v], sum[r][2 * v + 1]), c + tile.c_stride);
      }
    }
  }
};

struct Blocks : Pairs {
  using InTile = Blocks;
  static constexpr Index kStep = 2, kRows = 2, kBeside = 2;
  static constexpr int kWidest = 2, kHighest = 12;

  /// Two places of each of four columns, one column's beside the next one's.
  static PDNN_INLINE void store_by_columns(Vector<float> place, Vector<float> next, float* first, float* second) {
    store(first, vzip1q_f32(place, next)), store(second, vzip2q_f32(place, next));
  }
  /// The pairs of rows k and k + 1 and of k + 2 and k + 3, 0 where there are none.
  static PDNN_INLINE void store_four_rows(const float* from, Index stride, Index rows, Index cols, float* first,
                                          float* second) {
    const Vector<float> next = rows > 2 ? pairs_of_rows(from + 2 * stride, stride, rows - 2, cols) : Vector<float>{};
    store_by_columns(pairs_of_rows(from, stride, rows, cols), next, first, second);
  }

  /// b's copy: for each two places all columns, of from[k, j] for j < cols, 0 for cols ≤ j < width.
  template <Index width>
  static void copy(const float* from, Index stride, Index depth, Index cols, float* to) {
    for (; depth > 0; depth -= 4, from += 4 * stride, to += 2 * width)
      PDNN_UNROLL for (Index j = 0; j < width; j += kLanes<float>)
          store_four_rows(from + j, stride, depth, cols - j, to + 2 * j, to + 2 * j + kLanes<float>);
  }
  /// The same of from[j, k]. Writes places up to the next multiple of kLanes.
  template <Index width>
  static void copy_transposed(const float* from, Index stride, Index depth, Index cols, float* to) {
    for (Index k = 0; k < depth; k += 8, to += 4 * width)
      PDNN_UNROLL for (Index j = 0; j < width; j += 2)
          store_two_rows(from + j * stride + k, stride, cols - j, depth - k, to + 2 * j, to + 2 * (width + j));
  }
  /// a's copy: for each two rows all places, two of one row beside two of the other; each takes 2 · to_stride.
  static void copy_along(const float* from, Index stride, Index rows, Index depth, float* to, Index to_stride) {
    for (; rows > 0; rows -= 2, from += 2 * stride, to += 2 * to_stride)
      for (Index k = 0; k < depth; k += 8)
        store_two_rows(from + k, stride, rows, depth - k, to + k, to + k + kLanes<float>);
  }
  /// The same of from[k, r].
  static void copy_across(const float* from, Index stride, Index depth, Index rows, float* to, Index to_stride) {
    for (Index r = 0; r < rows; r += kLanes<float>)
      for (Index k = 0; k < depth; k += 4) {
        float* const there = to + r * to_stride + k;
        store_four_rows(from + k * stride + r, stride, depth - k, rows - r, there, there + 2 * to_stride);
      }
  }

  template <int vectors>
  static void multiply(const Tile<float>& tile, Index height) {
    kernel_of<Whole, vectors>(height, kHeights)(tile, height);
  }
  template <int vectors>
  static void multiply_leaves(const LeafTile<float>& tile, Index height) {
    kernel_of<OfLeaves, vectors>(height, kHeights)(tile, height);
  }

 private:
  static constexpr auto kHeights = std::make_integer_sequence<int, kHighest / 2>{};

  /// Eight numbers of each of two rows, of which there may be one only, as blocks of four of each.
  static PDNN_INLINE void store_two_rows(const float* from, Index stride, Index rows, Index depth, float* first,
                                         float* second) {
    const auto eight = [&](const float* row) { return joined(load(row, depth), load(row + 4, depth - 4)); };
    const Vector<float> above = rows > 0 ? eight(from) : Vector<float>{};
    const Vector<float> below = rows > 1 ? eight(from + stride) : Vector<float>{};
    store(first, BlockSums<1, 1>::first(above, below)), store(second, BlockSums<1, 1>::second(above, below));
  }

  struct Whole {
    using Tile = impl::Tile<float>;
    template <int vectors, int pairs>
    static __attribute__((noinline)) void multiply(const Tile& tile, Index height) {
      BlockSums<vectors, pairs> sums;
      tile.start ? sums.load(tile.start, tile.start_stride, height) : sums.zero();
      sums.add(tile, 0, tile.depth);
      sums.put(tile, height);
    }
  };
  /// Sums of leaves, or of their nodes, wait beside the registers, and join as a binary counter carries.
  struct OfLeaves {
    using Tile = LeafTile<float>;
    template <int vectors, int pairs>
    static __attribute__((noinline)) void multiply(const Tile& tile, Index height) {
      BlockSums<vectors, pairs> waiting[kMostTileLevels], sums;
      int waits = 0;
      for (Index leaf = 0, begin = 0;; begin = tile.ends[leaf++]) {
        sums.zero();
        sums.add(tile, begin, tile.ends[leaf]);
        for (int joins = joins_after(leaf, tile.leaves); joins > 0; --joins) sums.add(waiting[--waits]);
        if (leaf + 1 == tile.leaves) break;
        waiting[waits++] = sums;
      }
      sums.put(tile, height);
    }
  };
  template <class Kind, int vectors, int... less>
  static auto kernel_of(Index height, std::integer_sequence<int, less...>) {
    static constexpr void (*kernels[])(const typename Kind::Tile&,
                                       Index) = {Kind::template multiply<vectors, less + 1>...};
    return kernels[(height - 1) / 2];
  }
};

}  // namespace
}  // namespace pdnn::kernels::impl
