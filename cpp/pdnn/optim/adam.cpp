#include "pdnn/optim/adam.hpp"

#include <cmath>

namespace pdnn::optim {

template <class T>
kernels::Update<T> Adam<T>::rule(const Segment& segment, Index offset, T* w) {
  const auto& [beta1, beta2, eps, decoupled] = numbers_;
  const double t = static_cast<double>(this->steps()), decay = segment.weight_decay;
  const kernels::Adam numbers{.rate = segment.lr / (1 - std::pow(beta1, t)),
                              .root = std::sqrt(1 - std::pow(beta2, t)),
                              .beta1 = beta1,
                              .beta2 = beta2,
                              .eps = eps,
                              .l2 = decoupled ? 0 : decay,
                              .shrink = decoupled ? 1 - segment.lr * decay : 1};
  return {numbers, w, {this->memory(0, offset), this->memory(1, offset)}};
}

template class Adam<float>;
template class Adam<double>;

}  // namespace pdnn::optim
