#pragma once
/// Pooling: the largest or the mean of each window, channel by channel; and images turned between channels first and
/// last.
#include "pdnn/kernels/images.hpp"
#include "pdnn/kernels/impl/elementwise.hpp"

namespace pdnn::kernels::impl {
namespace {

template <class T>
struct BytesOf {
  typedef std::uint8_t Type __attribute__((vector_size(kVectorBytes / sizeof(T))));
  typedef std::uint8_t Unaligned __attribute__((vector_size(kVectorBytes / sizeof(T)), aligned(1), may_alias));
};

template <class T>
PDNN_INLINE void store_bytes(std::uint8_t* to, Integers<T> x, Index count) {
  const auto bytes = __builtin_convertvector(x, typename BytesOf<T>::Type);
  if (count >= kLanes<T>)
    *reinterpret_cast<typename BytesOf<T>::Unaligned*>(to) = bytes;
  else
    for (Index lane = 0; lane < count; ++lane) to[lane] = bytes[lane];
}
template <class T>
PDNN_INLINE Integers<T> load_bytes(const std::uint8_t* from, Index count) {
  typename BytesOf<T>::Type bytes{};
  if (count >= kLanes<T>)
    bytes = *reinterpret_cast<const typename BytesOf<T>::Unaligned*>(from);
  else
    for (Index lane = 0; lane < count; ++lane) bytes[lane] = from[lane];
  return __builtin_convertvector(bytes, Integers<T>);
}

/// The part of a window that is not in the padding, which has at least one tap.
struct Window {
  Range y, x;
};
PDNN_INLINE Range taps_inside(const Axis& axis, Index place) {
  const Index begin = place * axis.stride - axis.padding;
  return {begin < 0 ? -begin : 0, min(axis.kernel, axis.extent - begin)};
}

template <bool padded, class Action>
PDNN_INLINE void for_places(const Windows& v, Index channels, Range rows, Action action) {
  for (Index p = rows.begin; p < rows.end; ++p) {
    const Index row = (p * v.y.stride - v.y.padding) * v.x.extent - v.x.padding;
    for (Index q = 0; q < v.x.places; ++q) {
      const Window taps =
          padded ? Window{taps_inside(v.y, p), taps_inside(v.x, q)} : Window{{0, v.y.kernel}, {0, v.x.kernel}};
      action(taps, (row + q * v.x.stride) * channels, (p * v.x.places + q) * channels);
    }
  }
}

/// Calls action(taps, offset of the window in a sample of x, offset of the place in one of y) for rows of places.
template <class Action>
PDNN_INLINE void for_places(const Windows& v, Index channels, Range rows, Action action) {
  if (v.y.padding == 0 && v.x.padding == 0)
    for_places<false>(v, channels, rows, action);
  else
    for_places<true>(v, channels, rows, action);
}

/// Calls action(number of the tap, offset from the window's first element) for each.
template <class Action>
PDNN_INLINE void for_taps(const Windows& v, const Window& taps, Index channels, Action action) {
  for (Index i = taps.y.begin; i < taps.y.end; ++i)
    for (Index j = taps.x.begin; j < taps.x.end; ++j) action(i * v.x.kernel + j, (i * v.x.extent + j) * channels);
}

template <class T, class Pool>
PDNN_INLINE void pool_forward(Part part, const Windows& v, Index channels, Index batch, Pool pool) {
  const Range mine = deal(part, batch * v.y.places);
  for (Index row = mine.begin; row < mine.end; ++row) {
    const Index n = row / v.y.places, p = row % v.y.places;
    const Index x = n * v.y.extent * v.x.extent * channels, y = n * v.y.places * v.x.places * channels;
    for_places(v, channels, {p, p + 1}, [&](const Window& taps, Index from, Index to) {
      for (Index j = 0; j < channels; j += kLanes<T>) pool(taps, x + from + j, y + to + j, channels - j);
    });
  }
}

template <class T>
void max_pool(Part part, const Windows& v, Index channels, Index batch, bool relu, const T* x, T* y,
              std::uint8_t* winners) {
  pool_forward<T>(part, v, channels, batch, [&](const Window& taps, Index from, Index to, Index left) {
    Vector<T> best = Vector<T>{} - std::numeric_limits<T>::infinity();
    Integers<T> winner = Integers<T>{} + static_cast<Integer<T>>(taps.y.begin * v.x.kernel + taps.x.begin);
    for_taps(v, taps, channels, [&](Index tap, Index offset) {
      const Vector<T> other = load(x + (from + offset), left);
      const Integers<T> better = (other > best) | (other != other);  // NOLINT(misc-redundant-expression): a NaN wins
      best = better ? other : best;
      winner = better ? Integers<T>{} + static_cast<Integer<T>>(tap) : winner;
    });
    if (relu) {
      const Integers<T> cut = best <= T(0);
      best = cut ? Vector<T>{} : best;
      winner = cut ? Integers<T>{} + 255 : winner;
    }
    store(y + to, best, left);
    store_bytes<T>(winners + to, winner, left);
  });
}

template <class T>
void mean_pool(Part part, const Windows& v, Index channels, Index batch, const T* x, T* y) {
  const T scale = T(1) / static_cast<T>(v.y.kernel * v.x.kernel);
  pool_forward<T>(part, v, channels, batch, [&](const Window& taps, Index from, Index to, Index left) {
    Vector<T> sum{};
    for_taps(v, taps, channels, [&](Index, Index offset) { sum += load(x + (from + offset), left); });
    store(y + to, sum * scale, left);
  });
}

/// dx from gradient(place in y, left), which gives the function of a tap that is that tap's share of dy. Windows that
/// cover an image without overlapping store, others add to zeros.
template <class T, class Gradient>
PDNN_INLINE void pool_backward(Part part, const Windows& v, Index channels, Index batch, T* dx, Gradient gradient) {
  const Range mine = deal(part, batch);
  const Index sample = v.y.extent * v.x.extent * channels;
  const auto tiled = [](const Axis& axis) {
    return axis.padding == 0 && axis.stride == axis.kernel && axis.places * axis.stride == axis.extent;
  };
  const bool cover = tiled(v.y) && tiled(v.x);
  for (Index n = mine.begin; n < mine.end; ++n) {
    T* const out = dx + n * sample;
    const Index y = n * v.y.places * v.x.places * channels;
    for (Index i = 0; !cover && i < sample; i += kLanes<T>) store(out + i, Vector<T>{}, sample - i);
    for_places(v, channels, {0, v.y.places}, [&](const Window& taps, Index to, Index from) {
      for (Index j = 0; j < channels; j += kLanes<T>) {
        const Index left = channels - j;
        const auto share = gradient(y + from + j, left);
        for_taps(v, taps, channels, [&](Index tap, Index offset) {
          T* const at = out + (to + offset + j);
          store(at, cover ? share(tap) : load(at, left) + share(tap), left);
        });
      }
    });
  }
}

template <class T>
void max_pool_backward(Part part, const Windows& v, Index channels, Index batch, const std::uint8_t* winners,
                       const T* dy, T* dx) {
  pool_backward(part, v, channels, batch, dx, [&](Index place, Index left) {
    const Vector<T> gradient = load(dy + place, left);
    const Integers<T> winner = load_bytes<T>(winners + place, left);
    return [=](Index tap) { return winner == static_cast<Integer<T>>(tap) ? gradient : Vector<T>{}; };
  });
}

template <class T>
void mean_pool_backward(Part part, const Windows& v, Index channels, Index batch, const T* dy, T* dx) {
  const T scale = T(1) / static_cast<T>(v.y.kernel * v.x.kernel);
  pool_backward(part, v, channels, batch, dx, [&](Index place, Index left) {
    const Vector<T> gradient = load(dy + place, left) * scale;
    return [=](Index) { return gradient; };
  });
}

/// to[j, i] = from[i, j] for so few rows that the compiler knows an order of whole vectors.
template <Index rows, class T>
PDNN_INLINE void transpose_few(const T* from, Index cols, T* to) {
  for (Index j = 0; j < cols; ++j, to += rows) PDNN_UNROLL for (Index i = 0; i < rows; ++i) to[i] = from[i * cols + j];
}

/// to[j, i] = from[i, j].
template <class T>
PDNN_INLINE void transpose_many(const T* from, Index rows, Index cols, T* to) {
  constexpr Index n = kLanes<T>;
  for (Index i = 0; i < rows; i += n)
    for (Index j = 0; j < cols; j += n) {
      Vector<T> square[n];
      PDNN_UNROLL for (Index k = 0; k < n; ++k) square[k] =
          i + k < rows ? load(from + (i + k) * cols + j, cols - j) : Vector<T>{};
      transpose<T>(square);
      for (Index k = 0; k < min(n, cols - j); ++k) store(to + (j + k) * rows + i, square[k], rows - i);
    }
}

template <class T>
void transpose_samples(Part part, Index batch, Index rows, Index cols, const T* x, T* y) {
  const Range mine = deal(part, batch);
  for (Index n = mine.begin; n < mine.end; ++n) {
    const T* const from = x + n * rows * cols;
    T* const to = y + n * rows * cols;
    if (rows == 3)
      transpose_few<3>(from, cols, to);
    else
      transpose_many(from, rows, cols, to);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
