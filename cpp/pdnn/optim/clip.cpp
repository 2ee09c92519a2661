#include "pdnn/optim/clip.hpp"

#include <cmath>
#include <numeric>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/kernels.hpp"

namespace pdnn::optim {

template <class T>
Clip<T>::Clip(By by, double most, Index count)
    : by_(by), most_(most), sums_(by == By::norm ? kernels::square_chunks(count) : 0) {
  require(most > 0 && std::isfinite(most), "Clip: to at most ", most, "; expected a number above 0");
}

template <class T>
void Clip<T>::operator()(const threads::Member& member, std::span<T> g) {
  const Index n = static_cast<Index>(g.size());
  if (by_ == By::value) {
    kernels::clamp<T>(member, n, static_cast<T>(most_), g.data());
  } else {
    kernels::square_sums<T>(member, n, g.data(), sums_.data());
    member.barrier();
    const double norm = std::sqrt(std::accumulate(sums_.data(), sums_.data() + sums_.size(), 0.0));
    const double factor = most_ / (norm + 1e-6);
    if (!(factor >= 1)) kernels::scale<T>(member, n, static_cast<T>(factor), g.data());  // NaN goes into every element
  }
  member.barrier();
}

template class Clip<float>;
template class Clip<double>;

}  // namespace pdnn::optim
