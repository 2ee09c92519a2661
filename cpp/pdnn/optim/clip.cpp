#include "pdnn/optim/clip.hpp"

#include <cmath>

#include "pdnn/core/errors.hpp"
#include "pdnn/core/leaves.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::optim {

template <class T>
Clip<T>::Clip(By by, double most, Index count)
    : Clip(by, most, Share{{{{0, count}, 0}}, kernels::square_chunks(count), nullptr}) {
  require(most > 0 && std::isfinite(most), "Clip: to at most ", most, "; expected a number above 0");
}

template <class T>
Clip<T>::Clip(By by, double most, Share share)
    : by_(by),
      most_(most),
      share_(std::move(share)),
      own_(by == By::norm ? share_.blocks : 0),
      all_(share_.add_up ? own_.size() : 0) {}

/// Of the whole gradient.
template <class T>
double Clip<T>::squares(const threads::Member& member, std::span<const T> g) {
  for (const auto& [range, block] : share_.counted)
    kernels::table<T>().square_sums(member, range.size(), g.data() + range.begin, own_.data() + block);
  member.barrier();
  if (share_.add_up) {
    if (member.first()) share_.add_up(own_.span(), all_.span());
    member.barrier();
  }
  const AlignedArray<double>& squares = share_.add_up ? all_ : own_;
  return tree_sum<double>(squares.size(), [&](Index block) { return squares[block]; });
}

template <class T>
void Clip<T>::operator()(const threads::Member& member, std::span<T> g) {
  const Index n = static_cast<Index>(g.size());
  if (by_ == By::value) {
    kernels::table<T>().clamp(member, n, static_cast<T>(most_), g.data());
  } else {
    double norm = std::sqrt(squares(member, g)), unit = 1;
    if (std::isinf(norm)) {  // perhaps only the squares are too large for T
      unit = sizeof(T) == sizeof(float) ? 0x1p-96 : 0x1p-600;
      member.barrier();
      kernels::table<T>().scale(member, n, static_cast<T>(unit), g.data());
      member.barrier();
      norm = std::sqrt(squares(member, g)) / unit;
    }
    const double factor = most_ / (norm + 1e-6);
    if (!(factor >= 1) || unit != 1)  // NaN goes into every element
      kernels::table<T>().scale(member, n, static_cast<T>((factor >= 1 ? 1 : factor) / unit), g.data());
  }
  member.barrier();
}

template class Clip<float>;
template class Clip<double>;

}  // namespace pdnn::optim
