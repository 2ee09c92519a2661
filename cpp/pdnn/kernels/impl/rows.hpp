#pragma once
/// Kernels that treat rows alike: softmax and its kin, and the cross-entropy on top of it.
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/rows.hpp"

namespace pdnn::kernels::impl {
namespace {

/// Calls action(j, left) for each vector of a row; `left` elements of the row begin there.
template <class T, class Action>
PDNN_INLINE void for_vectors(Index cols, Action action) {
  for (Index j = 0; j < cols; j += kLanes<T>) action(j, cols - j);
}

/// Elements that exist, and `otherwise` in the lanes behind them.
template <class T>
PDNN_INLINE Vector<T> padded(Vector<T> x, Index left, T otherwise) {
  if (left >= kLanes<T>) return x;
  return existing<T>(left) ? x : broadcast(otherwise);
}

/// A sum over a row's vectors, in all lanes: plus(sum, j, left) is `sum` and what the vector at j adds. There are as
/// many sums as a cache line has elements, for vectors of any width.
template <class T, class Plus>
PDNN_INLINE Vector<T> sum_row(Index cols, Plus plus) {
  Vector<T> line[kVectorsOfLine] = {};
  for (Index j = 0; j < cols; j += kVectorsOfLine * kLanes<T>) PDNN_UNROLL for (int v = 0; v < kVectorsOfLine; ++v) {
      const Index left = cols - j - v * kLanes<T>;
      if (v == 0 || left > 0) line[v] = plus(line[v], j + v * kLanes<T>, left);
    }
  return sum_of_line<T>(line);
}

/// A row's largest element, in all lanes; NaN is none.
template <class T>
PDNN_INLINE Vector<T> row_largest(Index cols, const T* x) {
  const T lowest = -T(__builtin_inff());
  Vector<T> largest = broadcast(lowest);
  for_vectors<T>(
      cols, [&](Index j, Index left) { largest = at_least<T>(largest, padded<T>(load(x + j, left), left, lowest)); });
  return largest_lane<T>(largest);
}

/// A row's largest element and Σ exp(x − largest), each in all lanes; take(j, left, terms) gets exp(x − largest).
template <class T>
struct Normalizer {
  Vector<T> largest, sum;
};
template <class T, class Take>
PDNN_INLINE Normalizer<T> normalizer_with(Index cols, const T* x, Take take) {
  const Vector<T> largest = row_largest<T>(cols, x);
  const Vector<T> sum = sum_row<T>(cols, [&](Vector<T> so_far, Index j, Index left) {
    const Vector<T> term = padded<T>(exp<T>(load(x + j, left) - largest), left, T(0));
    take(j, left, term);
    return so_far + term;
  });
  return {largest, sum};
}
/// The same; exp(x − largest) is left in e if that is given.
template <class T>
PDNN_INLINE Normalizer<T> normalizer(Index cols, const T* x, T* e) {
  return normalizer_with<T>(cols, x, [&](Index j, Index left, Vector<T> terms) {
    if (e) store(e + j, terms, left);
  });
}

/// The numbers of a vector's lanes.
template <class T>
PDNN_INLINE Vector<T> lanes() {
  return __builtin_convertvector(lane_numbers<T>(std::make_integer_sequence<Integer<T>, kLanes<T>>{}), Vector<T>);
}

/// Σ_j x_j, in all lanes.
template <class T>
PDNN_INLINE Vector<T> row_total(Index cols, const T* x) {
  return sum_row<T>(cols, [&](Vector<T> sum, Index j, Index left) { return sum + load(x + j, left); });
}
/// Σ_j x_j y_j, in all lanes.
template <class T>
PDNN_INLINE Vector<T> dot(Index cols, const T* x, const T* y) {
  return sum_row<T>(
      cols, [&](Vector<T> sum, Index j, Index left) { return fma<T>(load(x + j, left), load(y + j, left), sum); });
}

/// Calls action(row) for a worker's rows.
template <class Action>
PDNN_INLINE void for_rows(Part part, Index rows, Action action) {
  const Range mine = deal(part, rows);
  for (Index r = mine.begin; r < mine.end; ++r) action(r);
}

template <class T>
void softmax(Part part, Matrix<const T> x, Matrix<T> y) {
  for_rows(part, x.rows, [&](Index r) {
    T* const to = y.data + r * y.stride;
    const Vector<T> scale = T(1) / normalizer<T>(x.cols, x.data + r * x.stride, to).sum;
    for_vectors<T>(x.cols, [&](Index j, Index left) { store(to + j, load(to + j, left) * scale, left); });
  });
}

template <class T>
void softmax_backward(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx) {
  for_rows(part, y.rows, [&](Index r) {
    const T *at = y.data + r * y.stride, *gradient = dy.data + r * dy.stride;
    T* const to = dx.data + r * dx.stride;
    const Vector<T> mean = dot<T>(y.cols, gradient, at);
    for_vectors<T>(y.cols, [&](Index j, Index left) {
      store(to + j, load(at + j, left) * (load(gradient + j, left) - mean), left);
    });
  });
}

template <class T>
void log_softmax(Part part, Matrix<const T> x, Matrix<T> y) {
  for_rows(part, x.rows, [&](Index r) {
    const T* from = x.data + r * x.stride;
    T* const to = y.data + r * y.stride;
    const Normalizer<T> n = normalizer<T>(x.cols, from, nullptr);
    const Vector<T> log_sum = log<T>(n.sum);
    for_vectors<T>(x.cols,
                   [&](Index j, Index left) { store(to + j, (load(from + j, left) - n.largest) - log_sum, left); });
  });
}

template <class T>
void log_softmax_backward(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx) {
  for_rows(part, y.rows, [&](Index r) {
    const T *at = y.data + r * y.stride, *gradient = dy.data + r * dy.stride;
    T* const to = dx.data + r * dx.stride;
    const Vector<T> sum = row_total<T>(y.cols, gradient);
    for_vectors<T>(y.cols, [&](Index j, Index left) {
      store(to + j, fnma<T>(exp<T>(load(at + j, left)), sum, load(gradient + j, left)), left);
    });
  });
}

/// Where the first of a row's largest elements is, which are `largest`; 0 if the row begins with NaN.
template <class T>
PDNN_INLINE Index first_largest(Index cols, const T* x, Vector<T> largest) {
  Vector<T> first = broadcast(static_cast<T>(cols));
  for_vectors<T>(cols, [&](Index j, Index left) {
    first = at_most<T>(load(x + j, left) == largest ? lanes<T>() + static_cast<T>(j) : first, first);
  });
  first = fold<T>(first, [](Vector<T> a, Vector<T> b) { return at_most<T>(a, b); });
  return __builtin_isnan(x[0]) ? 0 : static_cast<Index>(first[0]);
}

template <class T>
void cross_entropy_of_classes(Part part, Matrix<const T> y, const std::int32_t* classes, double scale, Matrix<T> dy,
                              double* rows) {
  const bool one_vector = y.cols <= kLanes<T>;  // its terms stay in a register
  const T each = static_cast<T>(scale);
  // Returns Σ exp(y − largest), in all lanes. The row's loss lacks its logarithm, which is taken of many rows at once.
  const auto of_row = [&](Index r) {
    const T* at = y.data + r * y.stride;
    T* const to = dy.data ? dy.data + r * dy.stride : nullptr;
    const Index wanted = classes[r];
    Vector<T> all{};
    const Normalizer<T> n = normalizer_with<T>(y.cols, at, [&](Index j, Index left, Vector<T> terms) {
      if (one_vector)
        all = terms;
      else if (to)
        store(to + j, terms, left);
    });
    rows[2 * r] = -static_cast<double>(at[wanted] - n.largest[0]);
    rows[2 * r + 1] = first_largest<T>(y.cols, at, n.largest) == wanted ? 1 : 0;
    if (!to) return n.sum;
    const Vector<T> factor = each / n.sum;
    if (one_vector) {
      const Vector<T> target = lanes<T>() == static_cast<T>(wanted) ? broadcast(each) : Vector<T>{};
      store(to, all * factor - target, y.cols);
    } else {
      for_vectors<T>(y.cols, [&](Index j, Index left) { store(to + j, load(to + j, left) * factor, left); });
      to[wanted] -= each;
    }
    return n.sum;
  };
  Vector<T> sums{};
  const Range mine = deal(part, y.rows);
  for (Index r = mine.begin; r < mine.end; ++r) {
    const Vector<T> sum = of_row(r);
    const Index lane = (r - mine.begin) % kLanes<T>;
    if (lane == 0)
      sums = sum;
    else
      sums[lane] = sum[0];
    if (lane + 1 < kLanes<T> && r + 1 < mine.end) continue;
    const Vector<T> logs = log<T>(sums);
    for (Index k = 0; k <= lane; ++k) rows[2 * (r - lane + k)] += static_cast<double>(logs[k]);
  }
}

template <class T>
void cross_entropy_of_targets(Part part, Matrix<const T> y, Matrix<const T> targets, double scale, Matrix<T> dy,
                              double* rows) {
  for_rows(part, y.rows, [&](Index r) {
    const T *at = y.data + r * y.stride, *t = targets.data + r * targets.stride;
    T* const to = dy.data ? dy.data + r * dy.stride : nullptr;
    const Normalizer<T> n = normalizer<T>(y.cols, at, to);
    const Vector<T> log_sum = log<T>(n.sum), total = row_total<T>(y.cols, t);
    const Vector<T> loss = sum_row<T>(y.cols, [&](Vector<T> sum, Index j, Index left) {
      return fma<T>(load(t + j, left), padded<T>(log_sum - (load(at + j, left) - n.largest), left, T(0)), sum);
    });
    rows[2 * r] = static_cast<double>(loss[0]);
    const Index wanted = first_largest<T>(y.cols, t, row_largest<T>(y.cols, t));
    rows[2 * r + 1] = first_largest<T>(y.cols, at, n.largest) == wanted ? 1 : 0;
    if (!to) return;
    const Vector<T> factor = static_cast<T>(scale) * total / n.sum;
    for_vectors<T>(y.cols, [&](Index j, Index left) {
      store(to + j, fms<T>(load(to + j, left), factor, static_cast<T>(scale) * load(t + j, left)), left);
    });
  });
}

}  // namespace
}  // namespace pdnn::kernels::impl
