#pragma once
/// Codecs' kernels. They work on groups of 16 values, one to four vectors of them, so that sums are taken in the same
/// order by every instruction set; and no product here is added to anything while it is not exact.
#include "pdnn/kernels/coding.hpp"
#include "pdnn/kernels/impl/vector.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kGroup = kCodingGroup;
inline constexpr Index kWide = kLanes<float>;
inline constexpr Index kVectors = kGroup / kWide;  // of floats in a group

using Floats = Vector<float>;
using Ints = Integers<float>;
typedef float HalfFloats __attribute__((vector_size(PDNN_VECTOR_BYTES / 2)));
typedef std::uint16_t Shorts __attribute__((vector_size(PDNN_VECTOR_BYTES / 2)));
typedef std::int8_t Chars __attribute__((vector_size(PDNN_VECTOR_BYTES / 4)));

struct Group {
  Floats v[kVectors];
};

#define PDNN_INLINE_LAMBDA __attribute__((always_inline))

/// visit(i, count) for the groups of [begin, end), the last of which may be shorter; whole ones are compiled apart.
template <class Visit>
PDNN_INLINE void for_groups(Index begin, Index end, Visit visit) {
  for (; begin + kGroup <= end; begin += kGroup) visit(begin, kGroup);
  if (begin < end) visit(begin, end - begin);
}

// ---- groups of values

template <int... lane>
PDNN_INLINE Floats joined(HalfFloats low, HalfFloats high, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(low, high, lane...);
}
template <int... lane>
PDNN_INLINE Vector<double> doubles_from(Floats x, int first, std::integer_sequence<int, lane...>) {
  const HalfFloats low = __builtin_shufflevector(x, x, lane...);
  const HalfFloats high = __builtin_shufflevector(x, x, (lane + static_cast<int>(sizeof...(lane)))...);
  return __builtin_convertvector(first == 0 ? low : high, Vector<double>);
}

PDNN_INLINE Group load_whole(const float* from) {
  Group group;
  PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) group.v[k] = load(from + k * kWide);
  return group;
}
PDNN_INLINE Group load_whole(const double* from) {
  Group group;
  PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
    const Vector<double> low = load(from + k * kWide), high = load(from + k * kWide + kWide / 2);
    group.v[k] = joined(__builtin_convertvector(low, HalfFloats), __builtin_convertvector(high, HalfFloats),
                        std::make_integer_sequence<int, kWide>{});
  }
  return group;
}
/// The first `count` of a group, or all of it; the others are 0.
template <class T>
PDNN_INLINE Group load_group(const T* from, Index count) {
  if (count >= kGroup) return load_whole(from);
  T values[kGroup] = {};
  for (Index i = 0; i < count; ++i) values[i] = from[i];
  return load_whole(values);
}

template <class T>
PDNN_INLINE void put(Into into, T* to, Vector<T> x) {
  store(to, into == Into::store ? x : into == Into::add ? load(to) + x : load(to) - x);
}
PDNN_INLINE void put_whole(Into into, float* to, const Group& group) {
  PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) put<float>(into, to + k * kWide, group.v[k]);
}
PDNN_INLINE void put_whole(Into into, double* to, const Group& group) {
  constexpr auto lanes = std::make_integer_sequence<int, kWide / 2>{};
  PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
    put<double>(into, to + k * kWide, doubles_from(group.v[k], 0, lanes));
    put<double>(into, to + k * kWide + kWide / 2, doubles_from(group.v[k], 1, lanes));
  }
}
template <class T>
PDNN_INLINE void put_group(Into into, T* to, const Group& group, Index count) {
  if (count >= kGroup) return put_whole(into, to, group);
  T values[kGroup] = {};
  for (Index i = 0; i < count; ++i) values[i] = to[i];
  put_whole(into, values, group);
  for (Index i = 0; i < count; ++i) to[i] = values[i];
}

/// Codes of a group where some of it do not exist: copies the first `count` of type Code, at most a group of them.
template <class Code>
PDNN_INLINE void copy_codes(std::uint8_t* to, const std::uint8_t* from, Index count) {
  const Index bytes = min(count, kGroup) * static_cast<Index>(sizeof(Code));
  for (Index i = 0; i < bytes; ++i) to[i] = from[i];
}
/// Calls write(room for a group's codes): at `to`, or beside it where fewer than a group exist.
template <class Code, class Write>
PDNN_INLINE void write_codes(std::uint8_t* to, Index count, Write write) {
  if (count >= kGroup) return write(to);
  std::uint8_t codes[kGroup * sizeof(Code)];
  write(codes);
  copy_codes<Code>(to, codes, count);
}
/// Calls read(a group's codes): those at `from`, with zeros behind them where fewer than a group exist.
template <class Code, class Read>
PDNN_INLINE void read_codes(const std::uint8_t* from, Index count, Read read) {
  if (count >= kGroup) return read(from);
  std::uint8_t codes[kGroup * sizeof(Code)] = {};
  copy_codes<Code>(codes, from, count);
  read(codes);
}

// ---- halves

PDNN_INLINE Ints all(std::int32_t number) { return number - Ints{}; }

PDNN_INLINE Ints float16_bits(Floats x) {
  const Ints bits = bits_of<float>(x), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  const Ints normal = (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2⁻¹⁴ the unit is 2⁻²⁴, which is the unit of floats at ½: the addition rounds.
  const Floats half = broadcast(0.5f);
  const Ints tiny = bits_of<float>(from_bits<float>(magnitude) + half) - bits_of<float>(half);
  Ints result = magnitude < 0x38800000 ? tiny : normal;
  result = magnitude >= 0x477ff000 ? all(0x7c00) : result;  // from 65520 up
  result = magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : result;
  return result | sign;
}
PDNN_INLINE Floats from_float16(Ints h) {
  const Ints magnitude = (h & 0x7fff) << 13;
  const Floats smallest_normal = broadcast(0x1p-14f);
  const Ints tiny = bits_of<float>(from_bits<float>(magnitude + (113 << 23)) - smallest_normal);
  Ints bits = magnitude < (1 << 23) ? tiny : magnitude + (112 << 23);
  bits = magnitude >= (31 << 23) ? magnitude | 0x7f800000 : bits;
  return from_bits<float>(bits | ((h & 0x8000) << 16));
}

PDNN_INLINE Ints bfloat16_bits(Floats x) {
  const Ints bits = bits_of<float>(x), high = (bits >> 16) & 0xffff;
  const Ints rounded = ((bits + 0x7fff + (high & 1)) >> 16) & 0xffff;
  return (bits & 0x7fffffff) > 0x7f800000 ? high | 0x40 : rounded;
}
PDNN_INLINE Floats from_bfloat16(Ints h) { return from_bits<float>(h << 16); }

template <Half half, class T>
PDNN_INLINE void encode_half_run(Index n, const T* x, std::uint8_t* bytes) {
  for_groups(0, n, [=](Index i, Index count) PDNN_INLINE_LAMBDA {
    const Group group = load_group(x + i, count);
    write_codes<std::uint16_t>(bytes + 2 * i, count, [&](std::uint8_t* to) PDNN_INLINE_LAMBDA {
      PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
        const Ints bits = half == Half::float16 ? float16_bits(group.v[k]) : bfloat16_bits(group.v[k]);
        const Shorts codes = __builtin_convertvector(bits, Shorts);
        __builtin_memcpy(to + 2 * k * kWide, &codes, sizeof codes);
      }
    });
  });
}
template <Half half, class T>
PDNN_INLINE void decode_half_run(Index n, const std::uint8_t* bytes, Into into, T* x) {
  for_groups(0, n, [=](Index i, Index count) PDNN_INLINE_LAMBDA {
    read_codes<std::uint16_t>(bytes + 2 * i, count, [&](const std::uint8_t* from) PDNN_INLINE_LAMBDA {
      Group group;
      PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
        Shorts codes;
        __builtin_memcpy(&codes, from + 2 * k * kWide, sizeof codes);
        const Ints bits = __builtin_convertvector(codes, Ints);
        group.v[k] = half == Half::float16 ? from_float16(bits) : from_bfloat16(bits);
      }
      put_group(into, x + i, group, count);
    });
  });
}

template <class T>
void encode_half(Half half, Index n, const T* x, std::uint8_t* bytes) {
  if (half == Half::float16) return encode_half_run<Half::float16>(n, x, bytes);
  encode_half_run<Half::bfloat16>(n, x, bytes);
}
template <class T>
void decode_half(Half half, Index n, const std::uint8_t* bytes, Into into, T* x) {
  if (half == Half::float16) return decode_half_run<Half::float16>(n, bytes, into, x);
  decode_half_run<Half::bfloat16>(n, bytes, into, x);
}

// ---- int8

/// A vector of bytes as integers, and floats to the nearest integer, ties to even.
#if PDNN_VECTOR_BYTES == 64
PDNN_INLINE Ints widened(const std::uint8_t* from) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Ints>(_mm512_maskz_cvtepi8_epi32(0xffff, codes));
}
PDNN_INLINE Ints rounded(Floats x) { return reinterpret_cast<Ints>(_mm512_maskz_cvtps_epi32(0xffff, x)); }
#elif PDNN_VECTOR_BYTES == 32
PDNN_INLINE Ints widened(const std::uint8_t* from) {
  return reinterpret_cast<Ints>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}
PDNN_INLINE Ints rounded(Floats x) { return reinterpret_cast<Ints>(_mm256_cvtps_epi32(x)); }
#else
PDNN_INLINE Ints widened(const std::uint8_t* from) {
  Chars codes;
  __builtin_memcpy(&codes, from, sizeof codes);
  return __builtin_convertvector(codes, Ints);
}
#ifdef __SSE2__
PDNN_INLINE Ints rounded(Floats x) { return reinterpret_cast<Ints>(_mm_cvtps_epi32(x)); }
#else
PDNN_INLINE Ints rounded(Floats x) {
  Ints whole{};
  for (Index lane = 0; lane < kWide; ++lane) whole[lane] = static_cast<std::int32_t>(__builtin_rintf(x[lane]));
  return whole;
}
#endif
#endif

PDNN_INLINE std::int32_t largest_of_lanes(Ints x) {
  const auto larger = [](Floats a, Floats b) { return bits_of<float>(a) > bits_of<float>(b) ? a : b; };
  return bits_of<float>(fold<float>(from_bits<float>(x), larger))[0];
}

/// The scale of a block whose largest magnitude has these bits.
PDNN_INLINE float int8_scale(std::int32_t largest) {
  float scale;
  if (largest >= 0x7f800000) return __builtin_nanf("");
  __builtin_memcpy(&scale, &largest, sizeof scale);
  scale /= 127;
  std::int32_t bits;
  __builtin_memcpy(&bits, &scale, sizeof bits);
  bits = (bits + 0x7f) & ~0x7f;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  const float most = 0x1.0204p121f;  // 127 times it is still finite
  return scale < 0x1p-120f ? 0 : scale < most ? scale : most;
}

template <class T>
void encode_int8(Index block, Index n, const T* x, std::uint8_t* scales, std::uint8_t* numbers) {
  for (Index begin = 0; begin < n; begin += block, scales += sizeof(float)) {
    const Index end = min(begin + block, n);
    Ints largest{};
    for_groups(begin, end, [&](Index i, Index count) PDNN_INLINE_LAMBDA {
      const Group group = load_group(x + i, count);
      PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
        const Ints magnitude = bits_of<float>(group.v[k]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
      }
    });
    const float scale = int8_scale(largest_of_lanes(largest));
    __builtin_memcpy(scales, &scale, sizeof scale);
    if (!(scale > 0)) {
      __builtin_memset(numbers + begin, 0, static_cast<std::size_t>(end - begin));
      continue;
    }
    const float inverse = 1 / scale;
    for_groups(begin, end, [=](Index i, Index count) PDNN_INLINE_LAMBDA {
      const Group group = load_group(x + i, count);
      write_codes<std::int8_t>(numbers + i, count, [&](std::uint8_t* to) PDNN_INLINE_LAMBDA {
        PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
          const Chars codes = __builtin_convertvector(rounded(group.v[k] * inverse), Chars);
          __builtin_memcpy(to + k * kWide, &codes, sizeof codes);
        }
      });
    });
  }
}

template <class T>
void decode_int8(Index block, Index n, const std::uint8_t* scales, const std::uint8_t* numbers, Into into, T* x) {
  for (Index begin = 0; begin < n; begin += block, scales += sizeof(float)) {
    float scale;
    __builtin_memcpy(&scale, scales, sizeof scale);
    for_groups(begin, min(begin + block, n), [=](Index i, Index count) PDNN_INLINE_LAMBDA {
      read_codes<std::int8_t>(numbers + i, count, [&](const std::uint8_t* from) PDNN_INLINE_LAMBDA {
        Group group;
        PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) group.v[k] =
            __builtin_convertvector(widened(from + k * kWide), Floats) * scale;
        put_group(into, x + i, group, count);
      });
    });
  }
}

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
      sum += x * x;
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
