#include "pdnn/codec/top_k.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::codec {

namespace {

/// The k-th largest magnitude, and how many values of just that magnitude are among the k largest.
struct Threshold {
  std::uint64_t magnitude;
  Index ties;
};

/// Digit by digit from the highest: counting tells in which of 2^width intervals the k-th largest lies. 0 < k ≤ n.
template <class T>
Threshold find_threshold(std::span<const T> values, Index k) {
  constexpr int kWidth = 11;
  std::array<Index, (1 << kWidth)> counts;
  Threshold found{0, k};
  for (int shift = kernels::kMagnitudeDigits<T>; shift > 0;) {
    const int width = std::min(kWidth, shift);
    counts.fill(0);
    kernels::table<T>().count_magnitudes(static_cast<Index>(values.size()), values.data(), found.magnitude, shift,
                                         width, counts.data());
    auto digits = static_cast<std::size_t>((1 << width) - 1);
    for (; counts[digits] < found.ties; --digits) found.ties -= counts[digits];
    found.magnitude = found.magnitude << width | digits;
    shift -= width;
  }
  return found;
}

}  // namespace

template <class T>
TopK<T>::TopK(double fraction) : fraction_(fraction) {
  require(fraction > 0 && fraction <= 1, "TopK: fraction = ", fraction, "; expected a number over 0 and at most 1");
}

template <class T>
Index TopK<T>::kept(Index n) const {
  require(n <= Index{1} << 32, "TopK: ", n, " values, at most 2^32 have a place");
  return std::min(n, static_cast<Index>(std::ceil(fraction_ * static_cast<double>(n))));
}

template <class T>
std::string TopK<T>::spec() const {
  std::array<char, 32> text;
  return "topk:" + std::string(text.data(), std::to_chars(text.data(), text.data() + text.size(), fraction_).ptr);
}

template <class T>
void TopK<T>::write(std::span<const T> values, std::uint8_t* out) {
  const Index n = static_cast<Index>(values.size()), k = kept(n);
  if (k == 0) return;
  const Threshold threshold = find_threshold(values, k);
  kernels::table<T>().pick_largest(n, values.data(), threshold.magnitude, threshold.ties, out,
                                   out + k * Index{sizeof(std::uint32_t)});
}

template <class T>
void TopK<T>::read(const std::uint8_t* data, std::span<T> values, Into into) {
  const Index k = kept(static_cast<Index>(values.size()));
  if (into == Into::store) std::fill(values.begin(), values.end(), T{});
  for (Index i = 0; i < k; ++i) {
    std::uint32_t place;
    T value;
    std::memcpy(&place, data + i * Index{sizeof place}, sizeof place);
    std::memcpy(&value, data + k * Index{sizeof place} + i * Index{sizeof value}, sizeof value);
    if (place >= values.size())
      throw ValueError(message("decode: \"", spec(), "\" has a value at place ", place, " of ", values.size()));
    values[place] += into == Into::subtract ? -value : value;
  }
}

template class TopK<float>;
template class TopK<double>;

}  // namespace pdnn::codec
