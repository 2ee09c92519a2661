#pragma once
/// exp, log, sigmoid and tanh on vectors, to within 3 units in the last place over their whole range: infinities,
/// NaN, denormal arguments and results included.
///
/// exp: x = n ln 2 + r with |r| ≤ ln 2 / 2, exp x = 2ⁿ (1 + (r + r² p(r))). The part in the inner brackets, exp r − 1,
/// has no cancellation, so tanh uses it too. log: x = 2ᵉ m with m around 1, log m = 2 artanh(s) with s = (m−1)/(m+1).
#include "pdnn/kernels/impl/vector.hpp"

namespace pdnn::kernels::impl {
namespace {

/// What the two formats differ in. `magic` is 1.5 · 2^digits: adding it rounds to an integer, left in the low bits.
template <class T>
struct Format;

template <>
struct Format<float> {
  static constexpr int kDigits = 23, kBias = 127;
  static constexpr float kMagic = 0x1.8p23f;
  static constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;  // n · high is exact
  static constexpr float kSmallestExp = -104, kLargestExp = 89;               // beyond them exp is 0 or infinite
  static constexpr float kSaturatedTanh = 10;
  static constexpr float kSmallestNormal = 0x1p-126f;
  /// (exp r − 1 − r) / r², highest power first: a minimax fit, the prototype's.
  static constexpr float kExp[] = {1.98755692e-4f, 1.39819994e-3f, 8.33345207e-3f,
                                   4.16657962e-2f, 1.66666657e-1f, 5.00000000e-1f};
  static constexpr int kLogTerms = 5;
};

template <>
struct Format<double> {
  static constexpr int kDigits = 52, kBias = 1023;
  static constexpr double kMagic = 0x1.8p52;
  static constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kSmallestExp = -746, kLargestExp = 710;
  static constexpr double kSaturatedTanh = 22;
  static constexpr double kSmallestNormal = 0x1p-1022;
  /// 1 / k! for k = 13 … 2.
  static constexpr double kExp[] = {1 / 6227020800., 1 / 479001600., 1 / 39916800., 1 / 3628800.,
                                    1 / 362880.,     1 / 40320.,     1 / 5040.,     1 / 720.,
                                    1 / 120.,        1 / 24.,        1 / 6.,        1 / 2.};
  static constexpr int kLogTerms = 11;
};

/// 2ⁿ for n = t − magic.
template <class T>
PDNN_INLINE Vector<T> power_of_two(Vector<T> t) {
  return from_bits<T>((bits_of<T>(t) + Format<T>::kBias) << Format<T>::kDigits);
}

/// exp r − 1 for r = x − n ln 2.
template <class T>
PDNN_INLINE Vector<T> reduced_expm1(Vector<T> x, Vector<T> n) {
  using F = Format<T>;
  const Vector<T> r = fnma<T>(n, F::kLn2Low, fnma<T>(n, F::kLn2High, x));
  Vector<T> p = broadcast(F::kExp[0]);
  PDNN_UNROLL for (int k = 1; k < static_cast<int>(sizeof F::kExp / sizeof(T)); ++k) p = fma<T>(p, r, F::kExp[k]);
  return fma<T>(r * r, p, r);
}

template <class T>
PDNN_INLINE Vector<T> exp(Vector<T> x) {
  using F = Format<T>;
  x = at_least<T>(at_most<T>(x, broadcast(F::kLargestExp)), broadcast(F::kSmallestExp));
  const Vector<T> n = fma<T>(x, T(0x1.71547652b82fep0), F::kMagic) - F::kMagic;
  const Vector<T> half = fma<T>(n, T(0.5), F::kMagic);  // 2ⁿ itself may overflow
  const Vector<T> rest = (n - (half - F::kMagic)) + F::kMagic;
  const Vector<T> scale = power_of_two<T>(half);
  return fma<T>(scale, reduced_expm1<T>(x, n), scale) * power_of_two<T>(rest);
}

template <class T>
PDNN_INLINE Vector<T> log(Vector<T> x) {
  using F = Format<T>;
  using Bits = Integers<T>;
  const Bits finite = x<T(__builtin_inff()), positive = x> T(0), tiny = positive & (x < F::kSmallestNormal);
  const Vector<T> normal = tiny ? x * T(Integer<T>{1} << F::kDigits) : (positive & finite ? x : broadcast(T(1)));
  // Bits from √½ up: the exponent field counts e from there, and m lies in [√½, √2).
  const Bits root = bits_of<T>(broadcast(T(0x1.6a09e667f3bcdp-1)));
  const Bits one = bits_of<T>(broadcast(T(1)));
  const Bits from_root = bits_of<T>(normal) - root + one;
  const Bits mantissa = (Integer<T>{1} << F::kDigits) - Bits{} - 1;
  const Vector<T> m = from_bits<T>((from_root & mantissa) + root);
  const Bits exponent = (from_root >> F::kDigits) & (2 * F::kBias + 1);
  const Vector<T> shift = F::kMagic + T(F::kBias) + (tiny ? broadcast(T(F::kDigits)) : Vector<T>{});
  const Vector<T> e = from_bits<T>(exponent + bits_of<T>(broadcast(F::kMagic))) - shift;

  const Vector<T> f = m - T(1), s = f / (f + T(2)), z = s * s;
  Vector<T> p = broadcast(T(2) / T(2 * F::kLogTerms + 1));
  PDNN_UNROLL for (int k = F::kLogTerms - 1; k >= 1; --k) p = fma<T>(p, z, T(2) / T(2 * k + 1));
  // log m = 2 s + s z p = f − s (f − z p): the first term is exact.
  Vector<T> y = fms<T>(e, F::kLn2High, fms<T>(s, fnma<T>(z, p, f), e * F::kLn2Low) - f);
  y = x == T(0) ? broadcast(-T(__builtin_inff())) : y;
  y = x < T(0) ? broadcast(T(__builtin_nanf(""))) : y;
  return finite ? y : x;  // infinity and NaN
}

template <class T>
PDNN_INLINE Vector<T> magnitude(Vector<T> x) {
  return from_bits<T>(bits_of<T>(x) & ~bits_of<T>(broadcast(T(-0.0))));
}

template <class T>
PDNN_INLINE Vector<T> sigmoid(Vector<T> x) {
  const Vector<T> e = exp<T>(-magnitude<T>(x));
  return (x < T(0) ? e : broadcast(T(1))) / (T(1) + e);
}

template <class T>
PDNN_INLINE Vector<T> tanh(Vector<T> x) {
  using F = Format<T>;
  const Vector<T> a = at_most<T>(magnitude<T>(x), broadcast(F::kSaturatedTanh)) * T(2);
  const Vector<T> t = fma<T>(a, T(0x1.71547652b82fep0), F::kMagic);
  const Vector<T> scale = power_of_two<T>(t);
  const Vector<T> expm1 = fma<T>(scale, reduced_expm1<T>(a, t - F::kMagic), scale - T(1));
  const Integers<T> sign = bits_of<T>(x) & bits_of<T>(broadcast(T(-0.0)));
  return from_bits<T>(bits_of<T>(expm1 / (expm1 + T(2))) | sign);
}

}  // namespace
}  // namespace pdnn::kernels::impl
