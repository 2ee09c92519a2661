#include "pdnn/optim/clip.hpp"

#include <cmath>
#include <numeric>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::optim {

template <class T>
Clip<T>::Clip(By by, double most, Index count)
    : by_(by), most_(most), share_{{{0, count}}, nullptr}, sums_(by == By::norm ? kernels::square_chunks(count) : 0) {
  require(most > 0 && std::isfinite(most), "Clip: to at most ", most, "; expected a number above 0");
}

template <class T>
Clip<T>::Clip(const Clip& whole, Share share) : by_(whole.by_), most_(whole.most_), share_(std::move(share)) {
  Index chunks = 0;
  for (const Range& range : share_.counted) chunks += kernels::square_chunks(range.size());
  if (by_ == By::norm) sums_ = AlignedArray<double>(chunks);
}

/// Of the whole gradient.
template <class T>
double Clip<T>::squares(const threads::Member& member, std::span<const T> g) {
  Index chunk = 0;
  for (const Range& range : share_.counted) {
    kernels::table<T>().square_sums(member, range.size(), g.data() + range.begin, sums_.data() + chunk);
    chunk += kernels::square_chunks(range.size());
  }
  member.barrier();
  const auto own = [&] { return std::accumulate(sums_.data(), sums_.data() + sums_.size(), 0.0); };
  if (!share_.add_up) return own();
  if (member.first()) total_ = share_.add_up(own());
  member.barrier();
  return total_;
}

template <class T>
void Clip<T>::operator()(const threads::Member& member, std::span<T> g) {
  const Index n = static_cast<Index>(g.size());
  if (by_ == By::value) {
    kernels::table<T>().clamp(member, n, static_cast<T>(most_), g.data());
  } else {
    const double norm = std::sqrt(squares(member, g));
    const double factor = most_ / (norm + 1e-6);
    if (!(factor >= 1))
      kernels::table<T>().scale(member, n, static_cast<T>(factor), g.data());  // NaN goes into every element
  }
  member.barrier();
}

template class Clip<float>;
template class Clip<double>;

}  // namespace pdnn::optim
