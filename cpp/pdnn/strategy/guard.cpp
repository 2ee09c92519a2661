#include "pdnn/strategy/guard.hpp"

#include <algorithm>
#include <cmath>

namespace pdnn::strategy {

template <class T>
void Guard<T>::begin(Index step, const Arrays& arrays) {
  begin_ = step;
  end_ = step + (step < careful_ ? 1 : length_);
  copies_.resize(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Index size = std::ssize(arrays[i]);
    if (copies_[i].size() != size) copies_[i] = AlignedArray<T>(size, Contents::anything);
    std::ranges::copy(arrays[i], copies_[i].data());
  }
}

template <class T>
void Guard<T>::undo(Index bad, const Arrays& arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i) std::ranges::copy(copies_[i].span(), arrays[i].data());
  end_ = begin_;
  careful_ = bad + 1;
}

Index window_length(std::size_t states, Index rows) {
  constexpr double kCopy = 1, kLook = 0.3, kPass = 0.5, kRow = 0.05;  // nanoseconds a parameter, on a core of 2020
  constexpr Index kMost = 256;
  const double copying = (kCopy + kLook) * (1 + static_cast<double>(states));
  const double step = kPass + kRow * static_cast<double>(rows);
  return std::clamp(static_cast<Index>(std::ceil(100 * copying / step)), Index{1}, kMost);
}

template class Guard<float>;
template class Guard<double>;

}  // namespace pdnn::strategy
