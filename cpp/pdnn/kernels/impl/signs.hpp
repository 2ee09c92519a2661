#pragma once
/// Codecs' kernels for signs, for the values of largest magnitude, and for what a codec lost.
#include "pdnn/kernels/impl/coding.hpp"

namespace pdnn::kernels::impl {
namespace {

// ---- signs

/// One bit a lane: its top bit.
#if PDNN_VECTOR_BYTES == 64
PDNN_INLINE unsigned top_bits(Vector<float> x) { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(x)); }
PDNN_INLINE unsigned top_bits(Vector<double> x) { return _mm512_movepi64_mask(reinterpret_cast<__m512i>(x)); }
#elif PDNN_VECTOR_BYTES == 32
PDNN_INLINE unsigned top_bits(Vector<float> x) { return static_cast<unsigned>(_mm256_movemask_ps(x)); }
PDNN_INLINE unsigned top_bits(Vector<double> x) { return static_cast<unsigned>(_mm256_movemask_pd(x)); }
#elif defined(__SSE2__)
PDNN_INLINE unsigned top_bits(Vector<float> x) { return static_cast<unsigned>(_mm_movemask_ps(x)); }
PDNN_INLINE unsigned top_bits(Vector<double> x) { return static_cast<unsigned>(_mm_movemask_pd(x)); }
#else
template <class V>
PDNN_INLINE unsigned top_bits(V x) {
  unsigned bits = 0;
  for (unsigned lane = 0; lane < sizeof(V) / sizeof x[0]; ++lane)
    bits |= (__builtin_signbit(x[lane]) ? 1u : 0u) << lane;
  return bits;
}
#endif

/// Adds up a group's 16 sums, in order.
PDNN_INLINE float sum_in_order(const Group& sums) {
  float lanes[kGroup], sum = 0;
  __builtin_memcpy(lanes, sums.v, sizeof lanes);
  for (Index i = 0; i < kGroup; ++i) sum += lanes[i];
  return sum;
}

template <class T>
void encode_signs(Index block, Index n, const T* x, std::uint8_t* levels, std::uint8_t* signs) {
  for (Index begin = 0; begin < n; begin += block, levels += 2 * sizeof(float)) {
    const Index end = min(begin + block, n);
    Group plus{}, minus{};
    Index signed_ones = 0;
    for_groups(begin, end, [&](Index i, Index count) PDNN_INLINE_LAMBDA {
      const Group group = load_group(x + i, count);
      unsigned bits = 0;
      PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
        const Ints negative = bits_of<float>(group.v[k]) < 0;
        plus.v[k] += negative ? Floats{} : group.v[k];
        minus.v[k] += negative ? group.v[k] : Floats{};
        bits |= top_bits(group.v[k]) << (k * kWide);
      }
      signed_ones += __builtin_popcount(bits);
      signs[i / 8] = static_cast<std::uint8_t>(bits);
      if (count > 8) signs[i / 8 + 1] = static_cast<std::uint8_t>(bits >> 8);
    });
    const Index others = end - begin - signed_ones;
    const float means[2] = {others > 0 ? sum_in_order(plus) / static_cast<float>(others) : 0,
                            signed_ones > 0 ? sum_in_order(minus) / static_cast<float>(signed_ones) : 0};
    __builtin_memcpy(levels, means, sizeof means);
  }
}

template <class T>
void decode_signs(Index block, Index n, const std::uint8_t* levels, const std::uint8_t* signs, Into into, T* x) {
  const Ints lane_bit = all(1) << lane_numbers<float>(std::make_integer_sequence<std::int32_t, kWide>{});
  for (Index begin = 0; begin < n; begin += block, levels += 2 * sizeof(float)) {
    float means[2];
    __builtin_memcpy(means, levels, sizeof means);
    const Floats plus = broadcast(means[0]), minus = broadcast(means[1]);
    for_groups(begin, min(begin + block, n), [=](Index i, Index count) PDNN_INLINE_LAMBDA {
      const int high = count > 8 ? signs[i / 8 + 1] : 0, bits = signs[i / 8] | high << 8;
      Group group;
      PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) group.v[k] =
          (all(bits >> (k * kWide)) & lane_bit) != 0 ? minus : plus;
      put_group(into, x + i, group, count);
    });
  }
}

// ---- the largest

template <class T>
inline constexpr Integer<T> kMagnitude = static_cast<Integer<T>>(~(std::uint64_t{1} << kMagnitudeDigits<T>));

template <class T>
PDNN_INLINE Integer<T> magnitude_bits(const T* x) {
  Integer<T> bits;
  __builtin_memcpy(&bits, x, sizeof bits);
  return bits & kMagnitude<T>;
}

/// One bit for each of the first `count` lanes where the comparison holds.
template <class T>
PDNN_INLINE unsigned found(Integers<T> comparison, Index count) {
  const unsigned lanes = top_bits(from_bits<T>(comparison));
  return count >= kLanes<T> ? lanes : lanes & ((1u << count) - 1);
}

template <class T>
void count_magnitudes(Index n, const T* x, std::uint64_t prefix, int shift, int width, Index* counts) {
  const Integer<T> digits = (Integer<T>{1} << width) - 1;
  const int drop = shift - width;
  if (shift == kMagnitudeDigits<T>) {  // all of them
    for (Index i = 0; i < n; ++i) ++counts[(magnitude_bits(x + i) >> drop) & digits];
    return;
  }
  for (Index i = 0; i < n; i += kLanes<T>) {
    const Integers<T> magnitudes = bits_of<T>(load(x + i, n - i)) & kMagnitude<T>;
    unsigned lanes = found<T>((magnitudes >> shift) == static_cast<Integer<T>>(prefix), n - i);
    for (; lanes != 0; lanes &= lanes - 1) ++counts[(magnitude_bits(x + i + __builtin_ctz(lanes)) >> drop) & digits];
  }
}

template <class T>
void pick_largest(Index n, const T* x, std::uint64_t threshold, Index ties, std::uint8_t* indices,
                  std::uint8_t* values) {
  const auto least = static_cast<Integer<T>>(threshold);
  for (Index i = 0; i < n; i += kLanes<T>) {
    const Integers<T> magnitudes = bits_of<T>(load(x + i, n - i)) & kMagnitude<T>;
    unsigned lanes = found<T>(magnitudes >= least, n - i);
    for (; lanes != 0; lanes &= lanes - 1) {
      const Index at = i + __builtin_ctz(lanes);
      if (magnitude_bits(x + at) == least && ties-- <= 0) continue;
      const auto index = static_cast<std::uint32_t>(at);
      __builtin_memcpy(indices, &index, sizeof index);
      __builtin_memcpy(values, x + at, sizeof(T));
      indices += sizeof index;
      values += sizeof(T);
    }
  }
}

// ---- residuals

inline constexpr Index kSquareRun = 1024;  // elements whose squares are added up before they become a double

/// Σ of the squares of what visit(i, left) returns for each vector of n elements.
template <class T, class Visit>
PDNN_INLINE double sum_squares(Index n, Visit visit) {
  double total = 0;
  for (Index begin = 0; begin < n; begin += kSquareRun) {
    const Index end = min(begin + kSquareRun, n);
    Vector<T> sum{};
    for (Index i = begin; i < end; i += kLanes<T>) {
      const Vector<T> x = visit(i, end - i);
      sum = fma<T>(x, x, sum);
    }
    total += static_cast<double>(sum_of_lanes<T>(sum)[0]);
  }
  return total;
}

template <class T>
double add_and_square(Index n, const T* x, T* sum) {
  return sum_squares<T>(n, [=](Index i, Index left) {
    const Vector<T> result = load(sum + i, left) + load(x + i, left);
    store(sum + i, result, left);
    return result;
  });
}

template <class T>
double keep_finite(Index n, T* x) {
  const Integers<T> infinite = bits_of<T>(broadcast(T(__builtin_inff())));
  return sum_squares<T>(n, [=](Index i, Index left) {
    const Vector<T> all_of_it = load(x + i, left);
    const Vector<T> finite = (bits_of<T>(all_of_it) & kMagnitude<T>) >= infinite ? Vector<T>{} : all_of_it;
    store(x + i, finite, left);
    return finite;
  });
}

}  // namespace
}  // namespace pdnn::kernels::impl
