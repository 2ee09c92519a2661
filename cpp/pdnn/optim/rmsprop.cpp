#include "pdnn/optim/rmsprop.hpp"

namespace pdnn::optim {

template <class T>
kernels::Update<T> RMSprop<T>::rule(const Segment& segment, Index offset, T* w) {
  const auto& [alpha, eps, momentum, centered] = numbers_;
  const std::size_t mean = momentum != 0 ? 2 : 1;
  return {kernels::RmsProp{segment.lr, alpha, eps, momentum, segment.weight_decay, centered},
          w,
          {this->memory(0, offset), momentum != 0 ? this->memory(1, offset) : nullptr,
           centered ? this->memory(mean, offset) : nullptr}};
}

template class RMSprop<float>;
template class RMSprop<double>;

}  // namespace pdnn::optim
