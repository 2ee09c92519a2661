#pragma once
/// Dropout: a mask drawn from Philox4x32-10, several blocks at once, the same numbers as Rng::bits32.
#include "pdnn/kernels/impl/elementwise.hpp"

namespace pdnn::kernels::impl {
namespace {

using Words = VectorOf<std::uint64_t>::Type;  // each lane a 32-bit word of its own block
inline constexpr Index kBlocks = kLanes<std::uint64_t>;
inline constexpr Index kNumbers = 4 * kBlocks;  // drawn at once

template <std::uint64_t... lane>
PDNN_INLINE Words count_from(std::uint64_t first, std::integer_sequence<std::uint64_t, lane...>) {
  return Words{lane...} + first;
}

/// The products of 32-bit words, 64 bits long.
PDNN_INLINE Words times(Words a, std::uint64_t b) {
  const Words all = Words{} + b;
#if PDNN_VECTOR_BYTES == 64  // with a mask, as the form without makes GCC 12 warn
  return reinterpret_cast<Words>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(all)));
#elif PDNN_VECTOR_BYTES == 32
  return reinterpret_cast<Words>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(all)));
#else
  return a * all;
#endif
}

/// numbers[i] = Rng(key).bits32(4 block + i) for 0 ≤ i < kNumbers. See core/random.hpp for the algorithm.
PDNN_INLINE void draw(std::uint64_t key, std::uint64_t block, std::uint32_t (&numbers)[kNumbers]) {
  constexpr std::uint64_t low = 0xFFFFFFFF;
  constexpr std::uint64_t mask_purpose = 2;
  const Words counter = count_from(block, std::make_integer_sequence<std::uint64_t, kBlocks>{});
  Words c0 = counter & low, c1 = counter >> 32, c2 = Words{} + mask_purpose, c3{};
  std::uint64_t k0 = key & low, k1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const Words p0 = times(c0, 0xD2511F53), p1 = times(c2, 0xCD9E8D57);
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c1 = p1 & low;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c3 = p0 & low;
    k0 = (k0 + 0x9E3779B9) & low;
    k1 = (k1 + 0xBB67AE85) & low;
  }
  Vector<double> first = reinterpret_cast<Vector<double>>(c0 | c1 << 32);  // two numbers of each block as one
  Vector<double> second = reinterpret_cast<Vector<double>>(c2 | c3 << 32);
  interleave<double>(first, second, std::make_integer_sequence<int, kLanes<double>>{});
  __builtin_memcpy(numbers, &first, sizeof first);
  __builtin_memcpy(numbers + kNumbers / 2, &second, sizeof second);
}

template <class T>
void dropout(Part part, std::uint64_t key, Index first, Index stride, double p, Matrix<const T> x, Matrix<T> y) {
  const auto threshold = static_cast<std::uint64_t>(__builtin_ceil(p * 0x1p32));
  const T scale = static_cast<T>(1 / (1 - p));
  const Range mine = deal(part, x.rows);
  std::uint32_t numbers[kNumbers];
  for (Index r = mine.begin; r < mine.end; ++r) {
    const T* from = x.data + r * x.stride;
    T* to = y.data + r * y.stride;
    const Index element = first + r * stride;
    for (Index j = -(element % 4); j < x.cols; j += kNumbers) {  // blocks need not begin with a row
      draw(key, static_cast<std::uint64_t>((element + j) / 4), numbers);
      const Index begin = j < 0 ? -j : 0, end = min(kNumbers, x.cols - j);
      for (Index i = begin; i < end; ++i)  // a mask: a branch would be mispredicted
        to[j + i] = __builtin_bit_cast(
            T, __builtin_bit_cast(Integer<T>, from[j + i] * scale) & -Integer<T>{numbers[i] >= threshold});
    }
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
