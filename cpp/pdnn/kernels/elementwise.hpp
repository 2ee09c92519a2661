#pragma once
/// Kernels that work element by element: activations, dropout, sums, and rows of raw numbers gathered.
#include "pdnn/core/types.hpp"

namespace pdnn::kernels {

/// The activations whose derivative is computed from y, so that a product can apply them.
enum class Activation { identity, relu, sigmoid, tanh };

/// The activations whose derivative is computed from x. GELU is x Φ(x), Φ being the normal distribution function: to 3
/// units in the last place from x = −0.6 up, to 6 in the lower tail; floats to 1. SiLU is x σ(x), σ being the logistic
/// function: to 4 units in the last place, where σ(x) is a normal number. ELU is x where x > 0, else a (eˣ − 1).
/// Softplus is log(1 + exp(a x)) / a, or x where a x > b.
struct Curve {
  enum Kind { gelu, silu, elu, softplus };
  Kind kind;
  double a, b;
  constexpr Curve(Kind of, double first = 1, double second = 20) : kind(of), a(first), b(second) {}
};

/// out[r, :] = scale · x[rows[r], :] + shift for `count` rows of `width` elements; rows of x start `stride` elements
/// apart.
template <class T, class Source>
using GatherRows = void (*)(Part part, const Source* x, Index stride, const Index* rows, Index count, Index width,
                            double scale, double shift, T* out);

/// On n elements, where nothing else is said.
template <class T>
struct ElementwiseKernels {
  /// y = f(x); y may be x.
  void (*activate)(Part part, Activation f, Index n, const T* x, T* y);

  /// dx = dy ∘ f'(x), from y = f(x); dx may be dy.
  void (*activate_backward)(Part part, Activation f, Index n, const T* y, const T* dy, T* dx);

  /// to = from where x > 0, else slope · from: LeakyReLU forward (from = x) and backward (from = dy).
  void (*leaky_relu)(Part part, T slope, Index n, const T* x, const T* from, T* to);

  /// y = f(x).
  void (*curve)(Part part, Curve f, Index n, const T* x, T* y);
  /// dx = dy ∘ f'(x).
  void (*curve_backward)(Part part, Curve f, Index n, const T* x, const T* dy, T* dx);

  /// y = exp x, to 3 units in the last place, and y = log x; y may be x.
  void (*exp)(Part part, Index n, const T* x, T* y);
  void (*log)(Part part, Index n, const T* x, T* y);

  /// y = x / (1 − p) where the mask keeps an element, 0 elsewhere. Element (r, j) is kept if
  /// Rng(key).bits32(first + r · stride + j) ≥ p 2³². The same call turns dy into dx.
  void (*dropout)(Part part, std::uint64_t key, Index first, Index stride, double p, Matrix<const T> x, Matrix<T> y);

  /// y = a + b; y may be either.
  void (*add)(Part part, Index n, const T* a, const T* b, T* y);

  GatherRows<T, std::uint8_t> gather_bytes;
  GatherRows<T, float> gather_floats;
  GatherRows<T, double> gather_doubles;
  /// The one for elements of this type.
  template <class Source>
  GatherRows<T, Source> gather_rows() const {
    if constexpr (std::is_same_v<Source, std::uint8_t>)
      return gather_bytes;
    else if constexpr (std::is_same_v<Source, float>)
      return gather_floats;
    else
      return gather_doubles;
  }
};

}  // namespace pdnn::kernels
