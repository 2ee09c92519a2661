#pragma once
/// The micro-kernel of convolutions: a tile of the output is summed in registers over three nested loops, which are the
/// taps of a window, or the places of the images of a batch.
#include "pdnn/kernels/images.hpp"
#include "pdnn/kernels/impl/operands.hpp"

namespace pdnn::kernels::impl {
namespace {

/// One of the loops, and how many elements a and b move on with each turn.
struct Loop {
  Index count, a_step, b_step;
};

/// How the rows of a lie: one element apart, row_step elements apart (and then the innermost loop goes over adjacent
/// elements), or at offsets.
enum class Rows { adjacent, strided, scattered };

/// c[r, j] = f(start[r, j] + Σ a[row r + at] b[at, j]), the sum over the loops, the last of them innermost, in
/// ascending order; elements of a and b are groups of the operands. Null start: 0. A start_stride of 0 repeats one row,
/// a bias. f is relu if that is set.
template <class T>
struct WindowTile {
  Loop loops[3];
  const T* a;
  Index row_step;
  const Index* offsets;
  const T* b;
  Index cols;   // that exist, where they are fewer than the lanes of one vector
  Index ahead;  // so many rows of b are fetched before their use, existing or not
  const T* start;
  Index start_stride;
  T* c;
  Index c_stride;
  bool relu;
};

/// How many rows fill the registers beside a row of b and one broadcast element of a; scattered rows need registers for
/// their places, too. A few columns are not worth the code of many heights.
template <int vectors, Rows lie, bool few>
inline constexpr int kMostWindowRows = vectors == 4 || few               ? 6
                                       : !kManyRegisters && vectors == 2 ? 6
                                       : lie == Rows::scattered          ? 9
                                       : !kManyRegisters                 ? 12
                                                                         : 14;

template <class Operands, int vectors, int rows, Rows lie, bool few>
__attribute__((noinline)) void sum_windows(const WindowTile<typename Operands::Value>& tile) {
  using T = typename Operands::Value;
  static_assert(vectors == 1 || !few);
  constexpr Index n = kLanes<T>;
  const Index cols = tile.cols;
  const auto read = [&](const T* from) { return few ? load_few(from, cols) : load(from); };
  Vector<T> sum[rows][vectors];
  const T* start = tile.start;
  PDNN_UNROLL for (int r = 0; r < rows; ++r) {
    PDNN_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] =
        start ? read(start + r * tile.start_stride + v * n) : Vector<T>{};
  }
  const Index row_step = lie == Rows::strided ? tile.row_step : 0;
  constexpr int kBases = (rows + 2) / 3;
  Index offsets[rows];
  if constexpr (lie == Rows::scattered) {
    PDNN_UNROLL for (int r = 0; r < rows; ++r) offsets[r] = tile.offsets[r];
  }
  const auto [outer, middle, inner] = tile.loops;
  const Index ahead = tile.ahead * inner.b_step;
  for (Index o = 0; o < outer.count; ++o) {
    for (Index m = 0; m < middle.count; ++m) {
      const T* a = tile.a + o * outer.a_step + m * middle.a_step;
      const T* b = tile.b + o * outer.b_step + m * middle.b_step;
      const T* bases[kBases];  // of every third row: the others are one and two steps behind, as addresses can say
      PDNN_UNROLL for (int i = 0; i < kBases; ++i) bases[i] = a + 3 * i * row_step;
      for (Index k = inner.count; k > 0; --k) {
        Vector<T> row[vectors];
        PDNN_UNROLL for (int v = 0; v < vectors; ++v) row[v] = read(b + v * n);
        PDNN_UNROLL for (int r = 0; r < rows; ++r) {
          const Vector<T> x = Operands::spread(lie == Rows::scattered  ? a + offsets[r]
                                               : lie == Rows::adjacent ? a + r
                                                                       : bases[r / 3] + r % 3 * row_step);
          PDNN_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] = Operands::multiply_add(x, row[v], sum[r][v]);
        }
        if constexpr (lie != Rows::adjacent) __builtin_prefetch(b + ahead);
        if constexpr (lie == Rows::strided) {
          PDNN_UNROLL for (int i = 0; i < kBases; ++i) {
            ++bases[i];
            asm("" : "+r"(bases[i]));  // or the compiler keeps an address of each row, more than it has registers for
          }
        } else {
          a += inner.a_step;
        }
        b += inner.b_step;
      }
    }
  }
  if (tile.relu) {
    PDNN_UNROLL for (int r = 0; r < rows; ++r) {
      PDNN_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] = sum[r][v] < T(0) ? Vector<T>{} : sum[r][v];
    }
  }
  PDNN_UNROLL for (int r = 0; r < rows; ++r) {
    PDNN_UNROLL for (int v = 0; v < vectors; ++v) {
      T* const to = tile.c + r * tile.c_stride + v * n;
      few ? store_few(to, sum[r][v], cols) : store(to, sum[r][v]);
    }
  }
}

template <class T>
using WindowKernel = void (*)(const WindowTile<T>&);

/// A strip of columns, as wide as whole vectors or the first few lanes of one, and the kernels for its tiles.
template <class T>
struct Strip {
  Index cols, most_rows;
  const WindowKernel<T>* kernels;  // by the height of a tile, from 1 on
  void sum(Index height, const WindowTile<T>& tile) const { kernels[height - 1](tile); }
};

template <class Operands, int vectors, Rows lie, bool few, int... rows>
Strip<typename Operands::Value> strip_of(std::integer_sequence<int, rows...>) {
  using T = typename Operands::Value;
  static constexpr WindowKernel<T> kernels[] = {sum_windows<typename Operands::InTile, vectors, rows + 1, lie, few>...};
  return {vectors * kLanes<T>, sizeof...(rows), kernels};
}
template <class Operands, int vectors, Rows lie, bool few = false>
Strip<typename Operands::Value> strip_of() {
  return strip_of<Operands, vectors, lie, few>(std::make_integer_sequence<int, kMostWindowRows<vectors, lie, few>>{});
}

/// Calls action(strip, col) for the columns, in strips as wide as the registers take.
template <class Operands, Rows lie, class Action>
PDNN_INLINE void for_strips(Index cols, Action action) {
  constexpr Index n = kLanes<typename Operands::Value>;
  constexpr int widest = kManyRegisters ? 4 : 2;
  for (Index col = 0; col < cols;) {
    const Index left = cols - col;
    const auto strip = left >= widest * n ? strip_of<Operands, widest, lie>()
                       : left >= 2 * n    ? strip_of<Operands, 2, lie>()
                       : left >= n        ? strip_of<Operands, 1, lie>()
                                          : strip_of<Operands, 1, lie, true>();
    action(strip, col);
    col += strip.cols;
  }
}

/// Calls action(first, height) for `rows` rows in tiles of nearly equal height.
template <class Action>
PDNN_INLINE void for_tiles(Index rows, Index most, Action action) {
  const Index tiles = ceil_div(rows, most);
  for (Index t = 0, row = 0; t < tiles; ++t) {
    const Index height = rows / tiles + (t < rows % tiles ? 1 : 0);
    action(row, height);
    row += height;
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
