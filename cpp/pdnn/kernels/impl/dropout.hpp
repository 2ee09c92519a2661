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

/// numbers[i] = Rng(key).bits32(4 block + i) for 0 ≤ i < kNumbers. See core/random.hpp for the algorithm.
PDNN_INLINE void draw(std::uint64_t key, std::uint64_t block, std::uint32_t (&numbers)[kNumbers]) {
  constexpr std::uint64_t low = 0xFFFFFFFF;
  constexpr std::uint64_t mask_purpose = 2;
  const Words counter = count_from(block, std::make_integer_sequence<std::uint64_t, kBlocks>{});
  Words c0 = counter & low, c1 = counter >> 32, c2 = Words{} + mask_purpose, c3{};
  std::uint64_t k0 = key & low, k1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const Words p0 = c0 * std::uint64_t{0xD2511F53}, p1 = c2 * std::uint64_t{0xCD9E8D57};
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c1 = p1 & low;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c3 = p0 & low;
    k0 = (k0 + 0x9E3779B9) & low;
    k1 = (k1 + 0xBB67AE85) & low;
  }
  for (Index b = 0; b < kBlocks; ++b) {
    numbers[4 * b] = static_cast<std::uint32_t>(c0[b]);
    numbers[4 * b + 1] = static_cast<std::uint32_t>(c1[b]);
    numbers[4 * b + 2] = static_cast<std::uint32_t>(c2[b]);
    numbers[4 * b + 3] = static_cast<std::uint32_t>(c3[b]);
  }
}

template <class T>
void dropout(Part part, std::uint64_t key, Index first_row, std::uint64_t threshold, T scale, Matrix<const T> x,
             Matrix<T> y) {
  const Range mine = deal(part, x.rows);
  std::uint32_t numbers[kNumbers];
  for (Index r = mine.begin; r < mine.end; ++r) {
    const T* from = x.data + r * x.stride;
    T* to = y.data + r * y.stride;
    const Index element = (first_row + r) * x.cols;
    for (Index j = -(element % 4); j < x.cols; j += kNumbers) {  // blocks need not begin with a row
      draw(key, static_cast<std::uint64_t>((element + j) / 4), numbers);
      const Index begin = j < 0 ? -j : 0, end = min(kNumbers, x.cols - j);
      for (Index i = begin; i < end; ++i) to[j + i] = numbers[i] >= threshold ? from[j + i] * scale : T(0);
    }
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
