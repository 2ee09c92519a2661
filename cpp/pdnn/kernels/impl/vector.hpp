#pragma once
/// Vectors of one instruction set in the compiler's own vector extensions: loads and stores, whole or of a few lanes,
/// choices lane by lane, sums over lanes, and the transposition of a square.
///
/// Everything in this folder is compiled once for each instruction set, by v2.cpp, v3.cpp, v4.cpp and neon.cpp, which
/// define PDNN_VECTOR_BYTES. It all lives in an anonymous namespace and calls no inline function from outside: the
/// linker would merge such a function's copies and might keep the one with instructions that another machine lacks.
#include <cstdint>
#include <utility>

#include "pdnn/core/types.hpp"

#if PDNN_VECTOR_BYTES > 16
#include <immintrin.h>
#elif defined(PDNN_NEON)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PDNN_INLINE __attribute__((always_inline)) inline
#define PDNN_UNROLL _Pragma("GCC unroll 32")  // keeps arrays of vectors in registers

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kVectorBytes = PDNN_VECTOR_BYTES;
#ifdef PDNN_NEON
inline constexpr bool kNeon = true;
#else
inline constexpr bool kNeon = false;
#endif
inline constexpr bool kManyRegisters = kVectorBytes == 64 || kNeon;  // 32 of vectors, not 16
template <class T>
inline constexpr Index kLanes = kVectorBytes / static_cast<Index>(sizeof(T));
inline constexpr int kVectorsOfLine = 64 / kVectorBytes;

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(PDNN_VECTOR_BYTES)));
  typedef T Unaligned __attribute__((vector_size(PDNN_VECTOR_BYTES), aligned(alignof(T)), may_alias));
};
template <class T>
using Vector = typename VectorOf<T>::Type;

/// The integers as wide as T: comparisons give them, and their bits are a number's bits.
template <class T>
struct IntegerOf;
template <>
struct IntegerOf<float> {
  using Type = std::int32_t;
};
template <>
struct IntegerOf<double> {
  using Type = std::int64_t;
};
template <class T>
using Integer = typename IntegerOf<T>::Type;
template <class T>
using Integers = Vector<Integer<T>>;

PDNN_INLINE Index min(Index a, Index b) { return b < a ? b : a; }
PDNN_INLINE Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

template <class T>
PDNN_INLINE Integers<T> bits_of(Vector<T> x) {
  return reinterpret_cast<Integers<T>>(x);
}
template <class T>
PDNN_INLINE Vector<T> from_bits(Integers<T> bits) {
  return reinterpret_cast<Vector<T>>(bits);
}
/// A number in all lanes; a vector as it is.
template <class T>
PDNN_INLINE Vector<T> broadcast(T x) {
  return x - Vector<T>{};
}
template <class T>
PDNN_INLINE Vector<T> broadcast(Vector<T> x) {
  return x;
}
// ---- bounds: one instruction each, for which the compiler takes two

#define PDNN_BOUND(name, floats, doubles)                                             \
  PDNN_INLINE Vector<float> name(Vector<float> a, Vector<float> b) { return floats; } \
  PDNN_INLINE Vector<double> name(Vector<double> a, Vector<double> b) { return doubles; }
#if PDNN_VECTOR_BYTES == 64
PDNN_BOUND(smaller, _mm512_maskz_min_ps(0xffff, a, b), _mm512_maskz_min_pd(0xff, a, b))
PDNN_BOUND(larger, _mm512_maskz_max_ps(0xffff, a, b), _mm512_maskz_max_pd(0xff, a, b))
#elif PDNN_VECTOR_BYTES == 32
PDNN_BOUND(smaller, _mm256_min_ps(a, b), _mm256_min_pd(a, b))
PDNN_BOUND(larger, _mm256_max_ps(a, b), _mm256_max_pd(a, b))
#else
PDNN_BOUND(smaller, a < b ? a : b, a < b ? a : b)
PDNN_BOUND(larger, a > b ? a : b, a > b ? a : b)
#endif
#undef PDNN_BOUND

/// The smaller one; a NaN in x stays.
template <class T>
PDNN_INLINE Vector<T> at_most(Vector<T> x, Vector<T> bound) {
  return smaller(bound, x);
}
/// The larger one; a NaN in x stays.
template <class T>
PDNN_INLINE Vector<T> at_least(Vector<T> x, Vector<T> bound) {
  return larger(bound, x);
}

template <class T>
PDNN_INLINE Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::Unaligned*>(from);
}
template <class T>
PDNN_INLINE void store(T* to, Vector<T> x) {
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(to) = x;
}

// ---- the first `count` lanes, 0 < count < kLanes; memory behind them is not touched

#if PDNN_VECTOR_BYTES == 64
PDNN_INLINE __mmask16 float_lanes(Index count) { return static_cast<__mmask16>((1u << count) - 1); }
PDNN_INLINE __mmask8 double_lanes(Index count) { return static_cast<__mmask8>((1u << count) - 1); }
PDNN_INLINE Vector<float> load_few(const float* from, Index count) {
  return _mm512_maskz_loadu_ps(float_lanes(count), from);
}
PDNN_INLINE Vector<double> load_few(const double* from, Index count) {
  return _mm512_maskz_loadu_pd(double_lanes(count), from);
}
PDNN_INLINE void store_few(float* to, Vector<float> x, Index count) {
  _mm512_mask_storeu_ps(to, float_lanes(count), x);
}
PDNN_INLINE void store_few(double* to, Vector<double> x, Index count) {
  _mm512_mask_storeu_pd(to, double_lanes(count), x);
}
#elif PDNN_VECTOR_BYTES == 32
PDNN_INLINE __m256i float_lanes(Index count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PDNN_INLINE __m256i double_lanes(Index count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
PDNN_INLINE Vector<float> load_few(const float* from, Index count) {
  return _mm256_maskload_ps(from, float_lanes(count));
}
PDNN_INLINE Vector<double> load_few(const double* from, Index count) {
  return _mm256_maskload_pd(from, double_lanes(count));
}
PDNN_INLINE void store_few(float* to, Vector<float> x, Index count) { _mm256_maskstore_ps(to, float_lanes(count), x); }
PDNN_INLINE void store_few(double* to, Vector<double> x, Index count) {
  _mm256_maskstore_pd(to, double_lanes(count), x);
}
#else
template <class T>
PDNN_INLINE Vector<T> load_few(const T* from, Index count) {
  Vector<T> x{};
  for (Index lane = 0; lane < count; ++lane) x[lane] = from[lane];
  return x;
}
template <class T>
PDNN_INLINE void store_few(T* to, Vector<T> x, Index count) {
  for (Index lane = 0; lane < count; ++lane) to[lane] = x[lane];
}
#endif

/// A vector of which `count` elements exist: all lanes if count ≥ kLanes, none if count ≤ 0; the others become 0.
template <class T>
PDNN_INLINE Vector<T> load(const T* from, Index count) {
  if (count >= kLanes<T>) return load(from);
  return count > 0 ? load_few(from, count) : Vector<T>{};
}
template <class T>
PDNN_INLINE void store(T* to, Vector<T> x, Index count) {
  if (count >= kLanes<T>) return store(to, x);
  if (count > 0) store_few(to, x, count);
}

// ---- products in sums. The compiler contracts none (-ffp-contract=off): these say which are rounded once, together
// with the sum, so that v3, v4 and neon have the same bits. v2 has no such instruction.

#if PDNN_VECTOR_BYTES > 16 || defined(PDNN_NEON)
#define PDNN_FUSED(name, floats, doubles)                                                              \
  PDNN_INLINE Vector<float> name(Vector<float> a, Vector<float> b, Vector<float> c) { return floats; } \
  PDNN_INLINE Vector<double> name(Vector<double> a, Vector<double> b, Vector<double> c) { return doubles; }
#if PDNN_VECTOR_BYTES == 64
PDNN_FUSED(fmadd, _mm512_fmadd_ps(a, b, c), _mm512_fmadd_pd(a, b, c))
PDNN_FUSED(fmsub, _mm512_fmsub_ps(a, b, c), _mm512_fmsub_pd(a, b, c))
PDNN_FUSED(fnmadd, _mm512_fnmadd_ps(a, b, c), _mm512_fnmadd_pd(a, b, c))
#elif PDNN_VECTOR_BYTES == 32
PDNN_FUSED(fmadd, _mm256_fmadd_ps(a, b, c), _mm256_fmadd_pd(a, b, c))
PDNN_FUSED(fmsub, _mm256_fmsub_ps(a, b, c), _mm256_fmsub_pd(a, b, c))
PDNN_FUSED(fnmadd, _mm256_fnmadd_ps(a, b, c), _mm256_fnmadd_pd(a, b, c))
#else
PDNN_FUSED(fmadd, vfmaq_f32(c, a, b), vfmaq_f64(c, a, b))
PDNN_FUSED(fmsub, vfmaq_f32(-c, a, b), vfmaq_f64(-c, a, b))
PDNN_FUSED(fnmadd, vfmsq_f32(c, a, b), vfmsq_f64(c, a, b))
#endif
#undef PDNN_FUSED
PDNN_INLINE float fmadd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PDNN_INLINE double fmadd(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
template <class V>
PDNN_INLINE V fmadd(V a, V b, V c) {
  return a * b + c;
}
template <class V>
PDNN_INLINE V fmsub(V a, V b, V c) {
  return a * b - c;
}
template <class V>
PDNN_INLINE V fnmadd(V a, V b, V c) {
  return c - a * b;
}
#endif

/// a b + c of vectors, or of numbers in all lanes.
template <class T, class A, class B, class C>
PDNN_INLINE Vector<T> fma(A a, B b, C c) {
  return fmadd(broadcast<T>(a), broadcast<T>(b), broadcast<T>(c));
}
/// a b − c.
template <class T, class A, class B, class C>
PDNN_INLINE Vector<T> fms(A a, B b, C c) {
  return fmsub(broadcast<T>(a), broadcast<T>(b), broadcast<T>(c));
}
/// c − a b.
template <class T, class A, class B, class C>
PDNN_INLINE Vector<T> fnma(A a, B b, C c) {
  return fnmadd(broadcast<T>(a), broadcast<T>(b), broadcast<T>(c));
}

// ---- bfloat16: the upper half of a float's bits

/// Of the nearest one, ties to even. A NaN stays one.
PDNN_INLINE Integers<float> bfloat16_bits(Vector<float> x) {
  const Integers<float> bits = bits_of<float>(x), high = (bits >> 16) & 0xffff;
  const Integers<float> rounded = ((bits + 0x7fff + (high & 1)) >> 16) & 0xffff;
  return (bits & 0x7fffffff) > 0x7f800000 ? high | 0x40 : rounded;
}
PDNN_INLINE Vector<float> from_bfloat16(Integers<float> bits) { return from_bits<float>(bits << 16); }

// ---- square roots, correctly rounded

#if PDNN_VECTOR_BYTES == 64
PDNN_INLINE Vector<float> sqrt(Vector<float> x) { return _mm512_maskz_sqrt_ps(0xffff, x); }
PDNN_INLINE Vector<double> sqrt(Vector<double> x) { return _mm512_maskz_sqrt_pd(0xff, x); }
#elif PDNN_VECTOR_BYTES == 32
PDNN_INLINE Vector<float> sqrt(Vector<float> x) { return _mm256_sqrt_ps(x); }
PDNN_INLINE Vector<double> sqrt(Vector<double> x) { return _mm256_sqrt_pd(x); }
#elif defined(PDNN_NEON)
PDNN_INLINE Vector<float> sqrt(Vector<float> x) { return vsqrtq_f32(x); }
PDNN_INLINE Vector<double> sqrt(Vector<double> x) { return vsqrtq_f64(x); }
#elif defined(__SSE2__)
PDNN_INLINE Vector<float> sqrt(Vector<float> x) { return _mm_sqrt_ps(x); }
PDNN_INLINE Vector<double> sqrt(Vector<double> x) { return _mm_sqrt_pd(x); }
#else
PDNN_INLINE Vector<float> sqrt(Vector<float> x) {
  for (Index lane = 0; lane < kLanes<float>; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
}
PDNN_INLINE Vector<double> sqrt(Vector<double> x) {
  for (Index lane = 0; lane < kLanes<double>; ++lane) x[lane] = __builtin_sqrt(x[lane]);
  return x;
}
#endif
template <class T>
PDNN_INLINE Vector<T> sqrt(Vector<T> x) {
  return sqrt(x);  // of one type, above
}

// ---- the lower half of a vector. Some processors make two instructions of one for 64 bytes

#if PDNN_VECTOR_BYTES == 64
template <class T>
struct HalfOf {
  typedef T Type __attribute__((vector_size(PDNN_VECTOR_BYTES / 2)));
};
template <class T>
using HalfVector = typename HalfOf<T>::Type;
PDNN_INLINE HalfVector<float> lower(Vector<float> x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
PDNN_INLINE HalfVector<double> lower(Vector<double> x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3); }
/// With zeros behind it.
PDNN_INLINE Vector<float> whole(HalfVector<float> x) {
  return __builtin_shufflevector(x, HalfVector<float>{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
PDNN_INLINE Vector<double> whole(HalfVector<double> x) {
  return __builtin_shufflevector(x, HalfVector<double>{}, 0, 1, 2, 3, 4, 5, 6, 7);
}
PDNN_INLINE HalfVector<float> fmadd(HalfVector<float> a, HalfVector<float> b, HalfVector<float> c) {
  return _mm256_fmadd_ps(a, b, c);
}
PDNN_INLINE HalfVector<double> fmadd(HalfVector<double> a, HalfVector<double> b, HalfVector<double> c) {
  return _mm256_fmadd_pd(a, b, c);
}
#else
template <class T>
using HalfVector = Vector<T>;
#endif

// ---- across lanes

template <class T, Integer<T>... lane>
PDNN_INLINE Integers<T> lane_numbers(std::integer_sequence<Integer<T>, lane...>) {
  return Integers<T>{lane...};
}
/// Which lanes of such a vector exist.
template <class T>
PDNN_INLINE Integers<T> existing(Index count) {
  return lane_numbers<T>(std::make_integer_sequence<Integer<T>, kLanes<T>>{}) < static_cast<Integer<T>>(count);
}

template <class T, int distance, int... lane>
PDNN_INLINE Vector<T> swap_lanes(Vector<T> x, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(x, x, (lane ^ distance)...);
}
/// Joins all lanes by a commutative operation, pairwise; every lane holds the result.
template <class T, int distance = kLanes<T> / 2, class Join>
PDNN_INLINE Vector<T> fold(Vector<T> x, Join join) {
  x = join(x, swap_lanes<T, distance>(x, std::make_integer_sequence<int, kLanes<T>>{}));
  if constexpr (distance > 1) return fold<T, distance / 2>(x, join);
  return x;
}
template <class T>
PDNN_INLINE Vector<T> sum_of_lanes(Vector<T> x) {
  return fold<T>(x, [](Vector<T> a, Vector<T> b) { return a + b; });
}
/// The same of a cache line of lanes in several vectors: the sum is the same for vectors of any width.
template <class T>
PDNN_INLINE Vector<T> sum_of_line(Vector<T> (&line)[kVectorsOfLine]) {
  PDNN_UNROLL for (int half = kVectorsOfLine / 2; half > 0; half /= 2) PDNN_UNROLL for (int v = 0; v < half; ++v)
      line[v] += line[v + half];
  return sum_of_lanes<T>(line[0]);
}
template <class T>
PDNN_INLINE Vector<T> largest_lane(Vector<T> x) {
  return fold<T>(x, [](Vector<T> a, Vector<T> b) { return at_least<T>(a, b); });
}

template <class T, int... lane>
PDNN_INLINE void interleave(Vector<T>& a, Vector<T>& b, std::integer_sequence<int, lane...>) {
  constexpr int n = kLanes<T>;
  const Vector<T> low = __builtin_shufflevector(a, b, (lane / 2 + (lane % 2) * n)...);
  b = __builtin_shufflevector(a, b, (n / 2 + lane / 2 + (lane % 2) * n)...);
  a = low;
}
/// Transposes a square of kLanes vectors: log₂ kLanes perfect shuffles.
template <class T>
PDNN_INLINE void transpose(Vector<T> (&rows)[kLanes<T>]) {
  constexpr Index n = kLanes<T>;
  PDNN_UNROLL for (Index pass = 1; pass < n; pass *= 2) {
    Vector<T> shuffled[n];
    PDNN_UNROLL for (Index i = 0; i < n / 2; ++i) {
      interleave<T>(rows[i], rows[i + n / 2], std::make_integer_sequence<int, n>{});
      shuffled[2 * i] = rows[i];
      shuffled[2 * i + 1] = rows[i + n / 2];
    }
    PDNN_UNROLL for (Index i = 0; i < n; ++i) rows[i] = shuffled[i];
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
