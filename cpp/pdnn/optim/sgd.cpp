#include "pdnn/optim/sgd.hpp"

namespace pdnn::optim {

template <class T>
kernels::Update<T> SGD<T>::rule(const Segment& segment, Index offset, T* w) {
  T* const velocity = momentum_ != 0 ? this->memory()[0].data() + offset : nullptr;
  return {{segment.lr, momentum_, segment.l2, nesterov_}, velocity, w};
}

template class SGD<float>;
template class SGD<double>;

}  // namespace pdnn::optim
