#include "pdnn/core/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace pdnn {

double Rng::normal(std::uint64_t index) const {
  const PhiloxBlock b = block(index, kValue);
  const std::uint64_t first = std::uint64_t{b[1]} << 32 | b[0], second = std::uint64_t{b[3]} << 32 | b[2];
  const double u = (static_cast<double>(first >> 11) + 1) * 0x1p-53;  // in (0, 1]: its logarithm is finite
  const double v = static_cast<double>(second >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

std::uint64_t Rng::below(std::uint64_t bound, std::uint64_t index) const {
  // The high word of bits * bound (Lemire 2019, without rejection: the bias is below bound / 2^64).
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits(index)) * bound) >> 64);
}

/// Some numbers are drawn before they are used: so the processor works on them side by side, and has fetched the
/// elements by the time they are exchanged.
void shuffle(Rng rng, std::span<Index> order) {
  constexpr std::size_t kAhead = 32;
  std::array<std::size_t, kAhead> chosen;
  for (std::size_t left = order.size(); left > 1;) {
    const std::size_t count = std::min(kAhead, left - 1);
    for (std::size_t i = 0; i < count; ++i) {
      chosen[i] = static_cast<std::size_t>(rng.below(left - i, left - i));
      __builtin_prefetch(&order[chosen[i]], 1);
    }
    for (std::size_t i = 0; i < count; ++i) std::swap(order[left - 1 - i], order[chosen[i]]);
    left -= count;
  }
}

}  // namespace pdnn
