#include "pdnn/optim/sgd.hpp"

#include "pdnn/kernels/kernels.hpp"

namespace pdnn::optim {

template <class T>
void SGD<T>::rule(const Segment& segment, Index offset, T* w, const T* g, Index n) {
  T* const velocity = momentum_ != 0 ? this->memory()[0].data() + offset : nullptr;
  kernels::sgd<T>(Part{}, {segment.lr, momentum_, segment.l2, nesterov_}, n, g, velocity, w);
}

template class SGD<float>;
template class SGD<double>;

}  // namespace pdnn::optim
