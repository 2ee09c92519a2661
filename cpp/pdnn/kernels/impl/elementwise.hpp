#pragma once
/// Kernels that treat every element alike: activations and their derivatives, exp and log, and sums.
#include "pdnn/kernels/elementwise.hpp"
#include "pdnn/kernels/impl/math.hpp"

namespace pdnn::kernels::impl {
namespace {

/// Part `index` of `count` things dealt to `parts`: core's share(), which is not ours to instantiate here.
PDNN_INLINE Range deal(Part part, Index count) {
  if (part.size == 1) return {0, count};
  const Index each = count / part.size, more = count % part.size;
  const Index begin = part.index * each + min(part.index, more);
  return {begin, begin + each + (part.index < more ? 1 : 0)};
}

/// The elements of some tiles, of n in all; the last tile may be narrower. Never negative: dealt to more workers than
/// there are tiles, those left over get the empty range [n, n).
PDNN_INLINE Range in_tiles(Range tiles, Index width, Index n) {
  return {min(tiles.begin * width, n), min(tiles.end * width, n)};
}

/// A worker's part of n elements: whole cache lines of them.
template <class T>
PDNN_INLINE Range deal_elements(Part part, Index n) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(T));
  return in_tiles(deal(part, ceil_div(n, line)), line, n);
}

template <class T>
PDNN_INLINE Vector<T> activation(Activation f, Vector<T> x) {
  switch (f) {
    case Activation::relu:
      return at_least<T>(x, Vector<T>{});
    case Activation::sigmoid:
      return sigmoid<T>(x);
    case Activation::tanh:
      return tanh<T>(x);
    case Activation::identity:
      break;
  }
  return x;
}

/// dy f'(x), from y = f(x).
template <class T>
PDNN_INLINE Vector<T> times_derivative(Activation f, Vector<T> dy, Vector<T> y) {
  switch (f) {
    case Activation::relu:
      return y <= T(0) ? Vector<T>{} : dy;
    case Activation::sigmoid:
      return dy * (y * (T(1) - y));
    case Activation::tanh:
      return dy * fnma<T>(y, y, T(1));
    case Activation::identity:
      break;
  }
  return dy;
}

/// Calls action with f as a constant: a loop in there knows it.
template <class Action>
PDNN_INLINE void with_activation(Activation f, Action action) {
  switch (f) {
    case Activation::relu:
      return action(std::integral_constant<Activation, Activation::relu>{});
    case Activation::sigmoid:
      return action(std::integral_constant<Activation, Activation::sigmoid>{});
    case Activation::tanh:
      return action(std::integral_constant<Activation, Activation::tanh>{});
    case Activation::identity:
      return action(std::integral_constant<Activation, Activation::identity>{});
  }
}

/// Rows, `stride` apart.
template <class T>
struct Strided {
  T* data;
  Index stride;
};

/// y = f(x) for some rows of n elements.
template <class T>
void activate_rows(Activation f, Index rows, Index n, Strided<const T> x, Strided<T> y) {
  with_activation(f, [=](auto which) {
    for (Index r = 0; r < rows; ++r)
      for (Index i = 0; i < n; i += kLanes<T>)
        store(y.data + r * y.stride + i, activation<T>(which, load(x.data + r * x.stride + i, n - i)), n - i);
  });
}

/// dx = dy f'(x) for some rows of n elements, from y = f(x).
template <class T>
void times_derivative_rows(Activation f, Index rows, Index n, Strided<const T> y, Strided<const T> dy, Strided<T> dx) {
  with_activation(f, [=](auto which) {
    for (Index r = 0; r < rows; ++r)
      for (Index i = 0; i < n; i += kLanes<T>) {
        const Vector<T> at = which == Activation::identity ? Vector<T>{} : load(y.data + r * y.stride + i, n - i);
        store(dx.data + r * dx.stride + i, times_derivative<T>(which, load(dy.data + r * dy.stride + i, n - i), at),
              n - i);
      }
  });
}

template <class T>
void activate(Part part, Activation f, Index n, const T* x, T* y) {
  const Range mine = deal_elements<T>(part, n);
  activate_rows<T>(f, 1, mine.end - mine.begin, {x + mine.begin, 0}, {y + mine.begin, 0});
}

template <class T>
void activate_backward(Part part, Activation f, Index n, const T* y, const T* dy, T* dx) {
  const Range mine = deal_elements<T>(part, n);
  times_derivative_rows<T>(f, 1, mine.end - mine.begin, {y + mine.begin, 0}, {dy + mine.begin, 0},
                           {dx + mine.begin, 0});
}

template <class T>
void exp(Part part, Index n, const T* x, T* y) {
  const Range mine = deal_elements<T>(part, n);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>)
    store(y + i, exp<T>(load(x + i, mine.end - i)), mine.end - i);
}

template <class T>
void log(Part part, Index n, const T* x, T* y) {
  const Range mine = deal_elements<T>(part, n);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>)
    store(y + i, log<T>(load(x + i, mine.end - i)), mine.end - i);
}

template <class T>
void add(Part part, Index n, const T* a, const T* b, T* y) {
  const Range mine = deal_elements<T>(part, n);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>) {
    const Index left = mine.end - i;
    store(y + i, load(a + i, left) + load(b + i, left), left);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
