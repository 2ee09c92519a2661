#include "pdnn/optim/sgd.hpp"

namespace pdnn::optim {

template <class T>
kernels::Update<T> SGD<T>::rule(const Segment& segment, Index offset, T* w) {
  const kernels::Sgd numbers{segment.lr, momentum_, segment.weight_decay, nesterov_};
  return {numbers, w, {momentum_ != 0 ? this->memory(0, offset) : nullptr}};
}

template class SGD<float>;
template class SGD<double>;

}  // namespace pdnn::optim
