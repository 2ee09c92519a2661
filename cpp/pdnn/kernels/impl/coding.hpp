#pragma once
/// Codecs' kernels: groups of values, and halves. All work on groups of 16 values, one to four vectors of them, so that
/// sums are taken in the same order by every instruction set; and no product here is added to anything while it is not
/// exact.
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

}  // namespace
}  // namespace pdnn::kernels::impl
