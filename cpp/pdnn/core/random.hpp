#pragma once
/// Rng: counter-based random numbers (Philox4x32-10). A value depends on (key, index) alone, never on who draws it or
/// when. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#include <array>
#include <cstdint>

#include "pdnn/core/types.hpp"

namespace pdnn {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Ten rounds of Philox4x32: a bijection of the 128-bit counter chosen by the 64-bit key.
inline PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t low = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t high = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(high >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(high),
               static_cast<std::uint32_t>(low >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(low)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A stream of random numbers addressed by index; `child` derives independent streams (seed, step, path of a layer).
class Rng {
 public:
  explicit Rng(std::uint64_t seed = 0) : key_(seed) {}

  /// Stream `number` below this one.
  Rng child(std::uint64_t number) const { return Rng(word(number, kChild)); }
  /// 64 random bits.
  std::uint64_t bits(std::uint64_t index) const { return word(index, kValue); }
  /// 32 random bits, four indices to a block: the cheapest, for masks.
  std::uint32_t bits32(std::uint64_t index) const { return block(index / 4, kMask)[index % 4]; }
  /// Uniform in [0, 1), 53 bits.
  double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }
  /// Standard normal, by Box and Muller from one block.
  double normal(std::uint64_t index) const;
  /// Uniform in {0, …, bound − 1}.
  std::uint64_t below(std::uint64_t bound, std::uint64_t index) const;
  std::uint64_t key() const { return key_; }

 private:
  static constexpr std::uint32_t kValue = 0, kChild = 1, kMask = 2;

  PhiloxBlock block(std::uint64_t index, std::uint32_t purpose) const {
    return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), purpose, 0},
                      {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)});
  }
  std::uint64_t word(std::uint64_t index, std::uint32_t purpose) const {
    const PhiloxBlock b = block(index, purpose);
    return std::uint64_t{b[1]} << 32 | b[0];
  }

  std::uint64_t key_;
};

/// A random order of 0 … count − 1 (Fisher and Yates), a function of rng alone.
void shuffle(Rng rng, std::span<Index> order);

}  // namespace pdnn
