#pragma once
/// Codecs' kernels for whole numbers of few bits, with a scale for each block of them.
#include "pdnn/kernels/impl/coding.hpp"

namespace pdnn::kernels::impl {
namespace {

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
#ifdef PDNN_NEON
PDNN_INLINE Ints rounded(Floats x) { return reinterpret_cast<Ints>(vcvtnq_s32_f32(x)); }
#elif defined(__SSE2__)
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

/// The largest number of so many bits.
template <int bits>
inline constexpr int kLargest = (1 << (bits - 1)) - 1;

/// The scale of a block whose largest magnitude has these bits.
template <int bits>
PDNN_INLINE float integer_scale(std::int32_t largest) {
  if (largest >= 0x7f800000) return __builtin_nanf("");
  const float exact = __builtin_bit_cast(float, largest) / kLargest<bits>, most = 0x1.fffffep127f / kLargest<bits>;
  const std::int32_t up = (__builtin_bit_cast(std::int32_t, exact) + 0x7f) & ~0x7f;
  const std::int32_t finite = __builtin_bit_cast(std::int32_t, most) & ~0x7f;  // times the largest number
  const float scale = __builtin_bit_cast(float, up < finite ? up : finite);
  return scale < 0x1p-120f ? 0 : scale;
}

/// Eight numbers of 4 bits, a byte each, as four bytes, and back.
PDNN_INLINE std::uint32_t packed(std::uint64_t bytes) {
  bytes &= 0x0f0f0f0f0f0f0f0f;
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
  return static_cast<std::uint32_t>(bytes | bytes >> 16);
}
PDNN_INLINE std::uint64_t unpacked(std::uint64_t bytes) {
  bytes = (bytes | bytes << 16) & 0x0000ffff0000ffff;
  bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes << 4) & 0x0f0f0f0f0f0f0f0f;
  return bytes | (bytes & 0x0808080808080808) * 0x1e;  // with their signs
}

/// Calls write(room for a group's numbers, a byte each), and read(them).
template <int bits, class Write>
PDNN_INLINE void write_numbers(std::uint8_t* to, Index count, Write write) {
  if constexpr (bits == 8) return write_codes<std::int8_t>(to, count, write);
  std::uint64_t bytes[kGroup / 8];
  write(reinterpret_cast<std::uint8_t*>(bytes));
  const std::uint32_t numbers[] = {packed(bytes[0]), packed(bytes[1])};
  copy_codes<std::uint8_t>(to, reinterpret_cast<const std::uint8_t*>(numbers), (min(count, kGroup) + 1) / 2);
}
template <int bits, class Read>
PDNN_INLINE void read_numbers(const std::uint8_t* from, Index count, Read read) {
  if constexpr (bits == 8) return read_codes<std::int8_t>(from, count, read);
  std::uint32_t numbers[2] = {};
  copy_codes<std::uint8_t>(reinterpret_cast<std::uint8_t*>(numbers), from, (min(count, kGroup) + 1) / 2);
  const std::uint64_t bytes[] = {unpacked(numbers[0]), unpacked(numbers[1])};
  read(reinterpret_cast<const std::uint8_t*>(bytes));
}

template <int bits, class T>
PDNN_INLINE void encode_integers_run(Index block, Index n, const T* x, std::uint8_t* scales, std::uint8_t* numbers) {
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
    const float scale = integer_scale<bits>(largest_of_lanes(largest));
    __builtin_memcpy(scales, &scale, sizeof scale);
    if (!(scale > 0)) {
      const Index bytes = ceil_div(end * bits, 8) - begin * bits / 8;
      __builtin_memset(numbers + begin * bits / 8, 0, static_cast<std::size_t>(bytes));
      continue;
    }
    const float inverse = 1 / scale;
    for_groups(begin, end, [=](Index i, Index count) PDNN_INLINE_LAMBDA {
      const Group group = load_group(x + i, count);
      write_numbers<bits>(numbers + i * bits / 8, count, [&](std::uint8_t* to) PDNN_INLINE_LAMBDA {
        PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) {
          const Chars codes = __builtin_convertvector(rounded(group.v[k] * inverse), Chars);
          __builtin_memcpy(to + k * kWide, &codes, sizeof codes);
        }
      });
    });
  }
}

template <int bits, class T>
PDNN_INLINE void decode_integers_run(Index block, Index n, const std::uint8_t* scales, const std::uint8_t* numbers,
                                     Into into, T* x) {
  for (Index begin = 0; begin < n; begin += block, scales += sizeof(float)) {
    float scale;
    __builtin_memcpy(&scale, scales, sizeof scale);
    for_groups(begin, min(begin + block, n), [=](Index i, Index count) PDNN_INLINE_LAMBDA {
      read_numbers<bits>(numbers + i * bits / 8, count, [&](const std::uint8_t* from) PDNN_INLINE_LAMBDA {
        Group group;
        PDNN_UNROLL for (Index k = 0; k < kVectors; ++k) group.v[k] =
            __builtin_convertvector(widened(from + k * kWide), Floats) * scale;
        put_group(into, x + i, group, count);
      });
    });
  }
}

template <class T>
void encode_integers(int bits, Index block, Index n, const T* x, std::uint8_t* scales, std::uint8_t* numbers) {
  if (bits == 4) return encode_integers_run<4>(block, n, x, scales, numbers);
  encode_integers_run<8>(block, n, x, scales, numbers);
}
template <class T>
void decode_integers(int bits, Index block, Index n, const std::uint8_t* scales, const std::uint8_t* numbers, Into into,
                     T* x) {
  if (bits == 4) return decode_integers_run<4>(block, n, scales, numbers, into, x);
  decode_integers_run<8>(block, n, scales, numbers, into, x);
}

}  // namespace
}  // namespace pdnn::kernels::impl
