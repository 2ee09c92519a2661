#pragma once
/// Normalization: of columns over a batch, whose sums are cut into a fixed number of chunks of rows, and of rows.
#include "pdnn/kernels/impl/leaves.hpp"
#include "pdnn/kernels/impl/rows.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kBlock = 32;  // rows whose sums are taken at once: they stay in the nearest cache
inline constexpr int kStripe = kManyRegisters ? 4 : 2;  // vectors of a stripe of columns, at most
inline constexpr Index kLongRow = 4096;  // the sum of a longer one is rounded too often: its mean is corrected
// So many rows are summed at a time, to keep additions in flight: as many for vectors of any width.
inline constexpr int kMomentWays = 4, kSumWays = 2;

template <int n>
struct Width {
  static constexpr int value = n;
};

/// Calls action(Width<n>, j, left): the stripe has n vectors and begins at column j, from which on there are `left`.
template <class T, class Action>
PDNN_INLINE void with_stripe(Index cols, Index stripe, Action action) {
  const Index j = stripe * kStripe * kLanes<T>, left = cols - j, vectors = ceil_div(left, kLanes<T>);
  if constexpr (kStripe == 4) {
    if (vectors >= 4) return action(Width<4>{}, j, left);
    if (vectors == 3) return action(Width<3>{}, j, left);
  }
  if (vectors >= 2) return action(Width<2>{}, j, left);
  return action(Width<1>{}, j, left);
}
template <class T>
PDNN_INLINE Index stripes(Index cols) {
  return ceil_div(cols, kStripe * kLanes<T>);
}

/// Sums over rows of n vectors, `ways` rows at a time: plus(sum, row, v) is `sum` and what the row adds.
template <class T, int n, int ways, class Plus>
PDNN_INLINE void sum_rows(Index rows, Vector<T> (&sum)[n], Plus plus) {
  Vector<T> way[ways][n] = {};
  Index r = 0;
  for (; r + ways <= rows; r += ways)
    PDNN_UNROLL for (int w = 0; w < ways; ++w) PDNN_UNROLL for (int v = 0; v < n; ++v) way[w][v] =
        plus(way[w][v], r + w, v);
  for (; r < rows; ++r) PDNN_UNROLL for (int v = 0; v < n; ++v) way[0][v] = plus(way[0][v], r, v);
  PDNN_UNROLL for (int v = 0; v < n; ++v) {
    sum[v] = way[0][v];
    PDNN_UNROLL for (int w = 1; w < ways; ++w) sum[v] += way[w][v];
  }
}

/// Calls action(rows of the chunk, chunk, stripe) for each pair that falls to a worker.
template <class T, class Action>
PDNN_INLINE void for_chunks(Part part, Index rows, Index cols, Chunks chunks, Action action) {
  const Index each = stripes<T>(cols), count = chunks.leaves > 0 ? chunks.leaves : kChunks;
  const Range mine = deal(part, count * each);
  for (Index tile = mine.begin; tile < mine.end; ++tile) {
    const Index chunk = tile / each;
    Range own = deal({static_cast<int>(chunk), static_cast<int>(kChunks)}, rows);
    if (chunks.leaves > 0)
      own = {chunk == 0 ? 0 : chunks.ends[chunk - 1] * chunks.places, chunks.ends[chunk] * chunks.places};
    action(own, chunk, tile % each);
  }
}

template <class T>
void column_moments(Part part, Matrix<const T> x, Chunks chunks, T* moments) {
  for_chunks<T>(part, x.rows, x.cols, chunks, [&](Range rows, Index chunk, Index stripe) {
    with_stripe<T>(x.cols, stripe, [&](auto width, Index j, Index left) {
      constexpr int n = width.value;
      Vector<T> mean[n] = {}, squares[n] = {};
      T seen = 0;
      for (Index r = rows.begin; r < rows.end; r += kBlock) {
        const Index count = min(kBlock, rows.end - r);
        const T* const block = x.data + r * x.stride + j;
        const auto at = [&](Index row, int v) {
          return load(block + row * x.stride + v * kLanes<T>, left - v * kLanes<T>);
        };
        Vector<T> here[n], about[n];
        sum_rows<T, n, kMomentWays>(count, here, [&](Vector<T> sum, Index row, int v) { return sum + at(row, v); });
        PDNN_UNROLL for (int v = 0; v < n; ++v) here[v] *= T(1) / static_cast<T>(count);
        sum_rows<T, n, kMomentWays>(count, about, [&](Vector<T> sum, Index row, int v) {
          const Vector<T> d = at(row, v) - here[v];
          return fma<T>(d, d, sum);
        });
        // Two sets of rows become one (Chan, Golub, LeVeque 1979).
        const T all = seen + static_cast<T>(count), weight = static_cast<T>(count) / all;
        PDNN_UNROLL for (int v = 0; v < n; ++v) {
          const Vector<T> apart = here[v] - mean[v];
          mean[v] = fma<T>(apart, weight, mean[v]);
          squares[v] += fma<T>(apart * apart, seen * weight, about[v]);
        }
        seen = all;
      }
      T* const to = moments + 2 * chunk * x.cols + j;
      PDNN_UNROLL for (int v = 0; v < n; ++v) {
        store(to + v * kLanes<T>, mean[v], left - v * kLanes<T>);
        store(to + x.cols + v * kLanes<T>, squares[v], left - v * kLanes<T>);
      }
    });
  });
}

/// What `normalize` does to the columns of a stripe.
template <class T, int n>
struct Columns {
  PDNN_INLINE Columns(const NormParams<T>& normal, Index j, Index left) {
    PDNN_UNROLL for (int v = 0; v < n; ++v) {
      const Index at = j + v * kLanes<T>, rest = left - v * kLanes<T>;
      mean[v] = load(normal.mean + at, rest);
      scale[v] = load(normal.gamma + at, rest) / sqrt(load(normal.var + at, rest) + static_cast<T>(normal.eps));
      beta[v] = load(normal.beta + at, rest);
    }
  }
  Vector<T> mean[n], scale[n], beta[n];
};

template <class T>
void normalize(Part part, Matrix<const T> x, const NormParams<T>& normal, bool relu, Matrix<T> y) {
  const Range mine = deal(part, x.rows);
  for (Index stripe = 0; stripe < stripes<T>(x.cols); ++stripe)
    with_stripe<T>(x.cols, stripe, [&](auto width, Index j, Index left) {
      constexpr int n = width.value;
      const Columns<T, n> columns(normal, j, left);
      for (Index r = mine.begin; r < mine.end; ++r) PDNN_UNROLL for (int v = 0; v < n; ++v) {
          const Index at = j + v * kLanes<T>, rest = left - v * kLanes<T>;
          const Vector<T> apart = load(x.data + r * x.stride + at, rest) - columns.mean[v];
          const Vector<T> value = fma<T>(apart, columns.scale[v], columns.beta[v]);
          store(y.data + r * y.stride + at, relu ? activation<T>(Activation::relu, value) : value, rest);
        }
    });
}

/// A vector of dz = dy f'(y) for f the identity or ReLU, of the columns from j on.
template <class T>
PDNN_INLINE Vector<T> dz_at(Matrix<const T> y, Matrix<const T> dy, bool relu, Index r, Index j, Index left) {
  const Vector<T> dz = load(dy.data + r * dy.stride + j, left);
  return relu ? times_derivative<T>(Activation::relu, dz, load(y.data + r * y.stride + j, left)) : dz;
}

template <class T>
void normalize_sums(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy, const T* mean, bool relu,
                    Chunks chunks, T* sums) {
  for_chunks<T>(part, x.rows, x.cols, chunks, [&](Range rows, Index chunk, Index stripe) {
    with_stripe<T>(x.cols, stripe, [&](auto width, Index j, Index left) {
      constexpr int n = width.value;
      Vector<T> center[n], total[2 * n] = {};
      PDNN_UNROLL for (int v = 0; v < n; ++v) center[v] = load(mean + j + v * kLanes<T>, left - v * kLanes<T>);
      for (Index r = rows.begin; r < rows.end; r += kBlock) {
        Vector<T> here[2 * n];
        sum_rows<T, 2 * n, kSumWays>(min(kBlock, rows.end - r), here, [&](Vector<T> sum, Index row, int v) {
          const int w = v % n;
          const Index at = j + w * kLanes<T>, rest = left - w * kLanes<T>;
          const Vector<T> dz = dz_at<T>(y, dy, relu, r + row, at, rest);
          return v < n ? sum + dz : fma<T>(dz, load(x.data + (r + row) * x.stride + at, rest) - center[w], sum);
        });
        PDNN_UNROLL for (int v = 0; v < 2 * n; ++v) total[v] += here[v];
      }
      T* const to = sums + 2 * chunk * x.cols + j;
      PDNN_UNROLL for (int v = 0; v < n; ++v) {
        store(to + v * kLanes<T>, total[v], left - v * kLanes<T>);
        store(to + x.cols + v * kLanes<T>, total[n + v], left - v * kLanes<T>);
      }
    });
  });
}

template <class T>
void normalize_backward(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy,
                        const NormParams<T>& normal, const T* shift, const T* slope, bool relu, Matrix<T> dx) {
  const Range mine = deal(part, x.rows);
  for (Index stripe = 0; stripe < stripes<T>(x.cols); ++stripe)
    with_stripe<T>(x.cols, stripe, [&](auto width, Index j, Index left) {
      constexpr int n = width.value;
      const Columns<T, n> columns(normal, j, left);
      Vector<T> shifts[n], slopes[n];
      PDNN_UNROLL for (int v = 0; v < n; ++v) {
        shifts[v] = load(shift + j + v * kLanes<T>, left - v * kLanes<T>);
        slopes[v] = load(slope + j + v * kLanes<T>, left - v * kLanes<T>);
      }
      for (Index r = mine.begin; r < mine.end; ++r) PDNN_UNROLL for (int v = 0; v < n; ++v) {
          const Index at = j + v * kLanes<T>, rest = left - v * kLanes<T>;
          const Vector<T> apart = load(x.data + r * x.stride + at, rest) - columns.mean[v];
          const Vector<T> dz = dz_at<T>(y, dy, relu, r, at, rest);
          store(dx.data + r * dx.stride + at, fnma<T>(apart, slopes[v], dz - shifts[v]) * columns.scale[v], rest);
        }
    });
}

// ---- rows

template <class T>
void layer_norm(Part part, Matrix<const T> x, const T* gamma, const T* beta, double eps, Matrix<T> y, T* moments) {
  const T each = T(1) / static_cast<T>(x.cols);
  for_rows(part, x.rows, [&](Index r) {
    const T* const from = x.data + r * x.stride;
    T* const to = y.data + r * y.stride;
    Vector<T> mean = row_total<T>(x.cols, from) * each;
    if (x.cols > kLongRow) {
      const Vector<T> rest = sum_row<T>(x.cols, [&](Vector<T> sum, Index j, Index left) {
        return sum + padded<T>(load(from + j, left) - mean, left, T(0));
      });
      mean = fma<T>(rest, each, mean);
    }
    const Vector<T> squares = sum_row<T>(x.cols, [&](Vector<T> sum, Index j, Index left) {
      const Vector<T> apart = padded<T>(load(from + j, left) - mean, left, T(0));
      return fma<T>(apart, apart, sum);
    });
    const Vector<T> scale = T(1) / sqrt<T>(fma<T>(squares, each, static_cast<T>(eps)));
    for_vectors<T>(x.cols, [&](Index j, Index left) {
      const Vector<T> normal = (load(from + j, left) - mean) * scale;
      store(to + j, fma<T>(normal, load(gamma + j, left), load(beta + j, left)), left);
    });
    moments[2 * r] = mean[0];
    moments[2 * r + 1] = scale[0];
  });
}

template <class T>
void layer_norm_backward(Part part, Matrix<const T> x, Matrix<const T> dy, const T* gamma, const T* moments,
                         Matrix<T> dx) {
  const T each = T(1) / static_cast<T>(x.cols);
  for_rows(part, x.rows, [&](Index r) {
    const T *const from = x.data + r * x.stride, *const gradient = dy.data + r * dy.stride;
    T* const to = dx.data + r * dx.stride;
    const T mean = moments[2 * r], scale = moments[2 * r + 1];
    const auto normal = [&](Index j, Index left) { return (load(from + j, left) - mean) * scale; };
    const Vector<T> shift = dot<T>(x.cols, gradient, gamma) * each;
    const Vector<T> tilt =
        sum_row<T>(x.cols,
                   [&](Vector<T> sum, Index j, Index left) {
                     return fma<T>(load(gradient + j, left) * load(gamma + j, left), normal(j, left), sum);
                   }) *
        each;
    for_vectors<T>(x.cols, [&](Index j, Index left) {
      const Vector<T> apart = fms<T>(load(gradient + j, left), load(gamma + j, left), shift);
      store(to + j, fnma<T>(normal(j, left), tilt, apart) * scale, left);
    });
  });
}

template <class T, bool several>
PDNN_INLINE void sum_layer_norm(Part part, Matrix<const T> x, Matrix<const T> dy, const T* moments,
                                const LeafSums<T>& leaves, bool add, T* dgamma, T* dbeta) {
  const Range mine = deal_elements<T>(part, x.cols);
  for (Index j = mine.begin; j < mine.end; j += kLanes<T>) {
    const Index left = mine.end - j;
    Vector<T> sum[2] = {};  // dgamma, dbeta
    if (add) sum[0] = load(dgamma + j, left), sum[1] = load(dbeta + j, left);
    sum_leaves<T, 2, several>(leaves, x.rows, sum, [&](Range rows, Vector<T>(&own)[2]) {
      for (Index r = rows.begin; r < rows.end; ++r) {
        const Vector<T> gradient = load(dy.data + r * dy.stride + j, left);
        const Vector<T> normal = (load(x.data + r * x.stride + j, left) - moments[2 * r]) * moments[2 * r + 1];
        own[0] = fma<T>(gradient, normal, own[0]);
        own[1] += gradient;
      }
    });
    store(dgamma + j, sum[0], left);
    store(dbeta + j, sum[1], left);
  }
}

template <class T>
void layer_norm_sums(Part part, Matrix<const T> x, Matrix<const T> dy, const T* moments, const LeafSums<T>& leaves,
                     bool add, T* dgamma, T* dbeta) {
  return leaves.several() ? sum_layer_norm<T, true>(part, x, dy, moments, leaves, add, dgamma, dbeta)
                          : sum_layer_norm<T, false>(part, x, dy, moments, leaves, add, dgamma, dbeta);
}

}  // namespace
}  // namespace pdnn::kernels::impl
