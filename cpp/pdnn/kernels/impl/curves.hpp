#pragma once
/// Activations whose derivative is computed from x: LeakyReLU with any slope, and the curves.
///
/// gelu(x) = x Φ(x) with Φ the normal distribution. Its lower half is Φ(−a) = exp(−a²/2) h(t) / (a + 4), where h, a
/// polynomial in t = (a − 4)/(a + 4), has neither overflow nor cancellation however far out a lies; the other half is
/// 1 − Φ(−a), and around 0 there is a series. Floats are computed in double.
#include "pdnn/kernels/impl/elementwise.hpp"

namespace pdnn::kernels::impl {
namespace {

using Doubles = Vector<double>;

/// (a + 4) exp(a²/2) Φ(−a), highest power of t first: from Chebyshev's polynomials over 0 ≤ a ≤ 39.
inline constexpr double kMills[] = {
    -6.95649302535283133e-10, -2.45452350442590308e-9, 1.84475352324857427e-9,   1.93748863805227975e-8,
    1.33207723103677727e-8,   -8.50250817666336292e-8, -1.5491337180991329e-7,   2.71464321319307404e-7,
    1.02146186966159723e-6,   -6.29508343694982946e-7, -5.92010979972196914e-6,  7.16599053420817386e-7,
    0.000035144661627251375,  -1.90824291613574622e-6, -0.000231094929588765226, 0.000133344310140816401,
    0.00163081845684388542,   -0.00347969236719796571, -0.0075401889666731237,   0.0603965748909277606,
    -0.186521857959658997,    0.387137400742214699,    -0.607896641971892091,    0.755285130415751493};

/// a = |x| up to 39, where Φ(−a) has vanished; exp(−a²/2), and Φ(−a) without that factor.
struct Tail {
  Doubles a, e, mills;
};
PDNN_INLINE Tail tail(Doubles x) {
  const Doubles a = at_most<double>(magnitude<double>(x), broadcast(39.0));
  // a² to twice the digits: the error of a rounded square would be multiplied by a² in exp.
  const Doubles high = from_bits<double>(bits_of<double>(a) & ~((std::int64_t{1} << 27) - 1)), low = a - high;
  const Doubles square = a * a;
  const Doubles rest = fma<double>(low, low, fma<double>(2 * high, low, fms<double>(high, high, square)));
  const Doubles e = exp<double>(square * -0.5);
  const Doubles reciprocal = 1 / (a + 4), t = (a - 4) * reciprocal;
  Doubles h = broadcast(kMills[0]);
  PDNN_UNROLL for (int k = 1; k < static_cast<int>(sizeof kMills / sizeof(double)); ++k) h =
      fma<double>(h, t, kMills[k]);
  return {a, fnma<double>(e, rest * 0.5, e), h * reciprocal};
}

/// Φ(x) = ½ + x (power series of x²), for |x| < kNear: this keeps more digits than 1 − Φ(−x).
inline constexpr double kNear = 0.6;
inline constexpr double kSeries[] = {-2.12176147421704591e-13, 5.11243479025631062e-12, -1.13011716416192129e-10,
                                     2.27352982437280637e-9,   -4.12266741486268888e-8, 6.65969351631665127e-7,
                                     -9.44465625950361453e-6,  0.000115434687616155289, -0.0011873282154804544,
                                     0.00997355701003581695,   -0.0664903800669054463,  0.398942280401432678};
PDNN_INLINE Doubles near_half(Doubles x) {
  const Doubles z = x * x;
  Doubles p = broadcast(kSeries[0]);
  PDNN_UNROLL for (int k = 1; k < static_cast<int>(sizeof kSeries / sizeof(double)); ++k) p =
      fma<double>(p, z, kSeries[k]);
  return fma<double>(x, p, 0.5);
}

PDNN_INLINE Doubles gelu(Doubles x) {
  const Tail far = tail(x);
  const Doubles outer = x < 0 ? -(far.e * (far.a * far.mills)) : x * fnma<double>(far.e, far.mills, 1.0);
  return far.a < kNear ? x * near_half(x) : outer;
}

/// Φ(x) + x φ(x).
PDNN_INLINE Doubles gelu_derivative(Doubles x) {
  const Tail far = tail(x);
  const Doubles density = far.e * (far.a * 0.398942280401432678);
  return x < 0 ? fms<double>(far.e, far.mills, density) : fnma<double>(far.e, far.mills, 1.0) + density;
}

/// σ(x) and 1 − σ(x), neither by subtraction, and x itself, bounded where both are 0 or 1 anyway: −∞ σ(−∞) is 0.
template <class T>
struct Logistic {
  Vector<T> x, value, rest;

  PDNN_INLINE explicit Logistic(Vector<T> at) {
    const Vector<T> most = broadcast(T(1000));
    x = at_least<T>(at_most<T>(at, most), -most);
    const Vector<T> e = exp<T>(-magnitude<T>(x)), near = T(1) / (T(1) + e), far = e / (T(1) + e);
    value = x < T(0) ? far : near;
    rest = x < T(0) ? near : far;
  }
};

template <class T>
PDNN_INLINE Vector<T> silu(Vector<T> x) {
  const Logistic<T> at(x);
  return (x < T(0) ? at.x : x) * at.value;
}
template <class T>
PDNN_INLINE Vector<T> silu_derivative(Vector<T> x) {
  const Logistic<T> at(x);
  return at.value * fma<T>(at.x, at.rest, T(1));
}

/// eˣ − 1 for x ≤ 0; where it is −1, for any x.
template <class T>
PDNN_INLINE Vector<T> expm1_below(Vector<T> x) {
  using F = Format<T>;
  x = at_least<T>(at_most<T>(x, Vector<T>{}), broadcast(-2 * F::kSaturatedTanh));
  const Vector<T> t = fma<T>(x, T(0x1.71547652b82fep0), F::kMagic), scale = power_of_two<T>(t);
  return fma<T>(scale, reduced_expm1<T>(x, t - F::kMagic), scale - T(1));
}

template <class T>
PDNN_INLINE Vector<T> elu(Vector<T> x, T alpha) {
  return x > T(0) ? x : alpha * expm1_below<T>(x);
}
template <class T>
PDNN_INLINE Vector<T> elu_derivative(Vector<T> x, T alpha) {
  return x > T(0) ? broadcast(T(1)) : alpha * exp<T>(at_most<T>(x, Vector<T>{}));
}

/// log(1 + e^z) = max(z, 0) + log(1 + e), e = e^−|z|; log(1 + e) is that of the rounded sum and what rounding left out.
template <class T>
PDNN_INLINE Vector<T> softplus(Vector<T> x, T beta, T threshold) {
  const Vector<T> z = x * beta, e = exp<T>(-magnitude<T>(z)), sum = T(1) + e;
  const Vector<T> log1p = log<T>(sum) + (e - (sum - T(1))) / sum;
  return z > threshold ? x : (at_least<T>(z, Vector<T>{}) + log1p) / beta;
}
template <class T>
PDNN_INLINE Vector<T> softplus_derivative(Vector<T> x, T beta, T threshold) {
  const Vector<T> z = x * beta;
  return z > threshold ? broadcast(T(1)) : sigmoid<T>(z);
}

/// f, a function of Doubles, on a vector of T.
template <class F>
PDNN_INLINE Doubles in_double(Doubles x, F f) {
  return f(x);
}
template <int... lane, class F>
PDNN_INLINE Vector<float> in_double(Vector<float> x, F f, std::integer_sequence<int, lane...>) {
  constexpr int half = kLanes<double>;
  const auto low = __builtin_convertvector(__builtin_shufflevector(x, x, lane...), Doubles);
  const auto high = __builtin_convertvector(__builtin_shufflevector(x, x, (half + lane)...), Doubles);
  typedef float Half __attribute__((vector_size(PDNN_VECTOR_BYTES / 2)));
  const Half y_low = __builtin_convertvector(f(low), Half), y_high = __builtin_convertvector(f(high), Half);
  return __builtin_shufflevector(y_low, y_high, lane..., (half + lane)...);
}
template <class F>
PDNN_INLINE Vector<float> in_double(Vector<float> x, F f) {
  return in_double(x, f, std::make_integer_sequence<int, kLanes<double>>{});
}

/// f(x) and f'(x), f being a curve.
template <class T>
PDNN_INLINE Vector<T> value_of(Curve f, Vector<T> x) {
  switch (f.kind) {
    case Curve::gelu:
      return in_double(x, [](Doubles value) { return gelu(value); });
    case Curve::silu:
      return silu<T>(x);
    case Curve::elu:
      return elu<T>(x, T(f.a));
    case Curve::softplus:
      return softplus<T>(x, T(f.a), T(f.b));
  }
  return x;
}
template <class T>
PDNN_INLINE Vector<T> derivative_of(Curve f, Vector<T> x) {
  switch (f.kind) {
    case Curve::gelu:
      return in_double(x, [](Doubles value) { return gelu_derivative(value); });
    case Curve::silu:
      return silu_derivative<T>(x);
    case Curve::elu:
      return elu_derivative<T>(x, T(f.a));
    case Curve::softplus:
      return softplus_derivative<T>(x, T(f.a), T(f.b));
  }
  return x;
}

template <class T>
void curve(Part part, Curve f, Index n, const T* x, T* y) {
  const Range mine = deal_elements<T>(part, n);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>) {
    const Index left = mine.end - i;
    store(y + i, value_of<T>(f, load(x + i, left)), left);
  }
}

template <class T>
void curve_backward(Part part, Curve f, Index n, const T* x, const T* dy, T* dx) {
  const Range mine = deal_elements<T>(part, n);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>) {
    const Index left = mine.end - i;
    store(dx + i, load(dy + i, left) * derivative_of<T>(f, load(x + i, left)), left);
  }
}

template <class T>
void leaky_relu(Part part, T slope, Index n, const T* x, const T* from, T* to) {
  const Range mine = deal_elements<T>(part, n);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>) {
    const Index left = mine.end - i;
    const Vector<T> value = load(from + i, left);
    store(to + i, load(x + i, left) > T(0) ? value : value * slope, left);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
