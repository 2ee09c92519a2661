#include "pdnn/nn/layers/softmax.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
Shape Softmax<T>::output_shape(const Shape& in) const {
  require(in.rank() == 1, name(), ": input samples are ", in.text(), ", expected features; put nn.Flatten() before it");
  return in;
}

template <class T>
void Softmax<T>::forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const {
  if (log_) {
    kernels::table<T>().log_softmax(*pass.team, x, y);
  } else {
    kernels::table<T>().softmax(*pass.team, x, y);
  }
}

template <class T>
void Softmax<T>::backward(const Pass& pass, Vars<T>, Tensor<const T>, Tensor<const T> y, Tensor<const T> dy,
                          Tensor<T> dx, std::span<T>) const {
  if (!dx.wanted()) return;
  if (log_) {
    kernels::table<T>().log_softmax_backward(*pass.team, y, dy, dx);
  } else {
    kernels::table<T>().softmax_backward(*pass.team, y, dy, dx);
  }
}

template class Softmax<float>;
template class Softmax<double>;

}  // namespace pdnn::nn
