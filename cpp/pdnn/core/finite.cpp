#include "pdnn/core/finite.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace pdnn {

template <class T>
Index first_nonfinite(std::span<const T> values) {
  constexpr Index kLanes = 16, kChunk = 256 * kLanes;
  const Index count = std::ssize(values);
  for (Index at = 0; at < count; at += kChunk) {
    const std::span<const T> chunk = slice(values, at, std::min(kChunk, count - at));
    std::array<T, kLanes> zeros{};  // 0 x is 0 or NaN, and sums side by side become vector instructions
    std::size_t i = 0;
    for (; i + kLanes <= chunk.size(); i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane) zeros[lane] += chunk[i + lane] * T{0};
    for (; i < chunk.size(); ++i) zeros[0] += chunk[i] * T{0};
    if (std::ranges::all_of(zeros, [](T zero) { return zero == 0; })) continue;
    return at + (std::ranges::find_if(chunk, [](T x) { return !std::isfinite(x); }) - chunk.begin());
  }
  return count;
}

template Index first_nonfinite(std::span<const float>);
template Index first_nonfinite(std::span<const double>);

}  // namespace pdnn
