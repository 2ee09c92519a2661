#include "pdnn/nn/layers/activation.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

using kernels::Activation;

template <class T>
std::string_view ActivationLayer<T>::name() const {
  switch (function_) {
    case Activation::relu:
      return "ReLU";
    case Activation::sigmoid:
      return "Sigmoid";
    case Activation::tanh:
      return "Tanh";
    case Activation::identity:
      break;
  }
  return "Identity";
}

template <class T>
void ActivationLayer<T>::forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const {
  kernels::table<T>().activate(*pass.team, function_, x.count(), x.data, y.data);
}

template <class T>
void ActivationLayer<T>::backward(const Pass& pass, Vars<T>, Tensor<const T>, Tensor<const T> y, Tensor<const T> dy,
                                  Tensor<T> dx, std::span<T>) const {
  if (dx.wanted()) kernels::table<T>().activate_backward(*pass.team, function_, y.count(), y.data, dy.data, dx.data);
}

template class ActivationLayer<float>;
template class ActivationLayer<double>;

}  // namespace pdnn::nn
