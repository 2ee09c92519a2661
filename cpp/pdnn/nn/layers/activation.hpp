#pragma once
/// Activations, element by element: ReLU, Sigmoid, Tanh.
#include "pdnn/kernels/elementwise.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y = f(x). Its derivative is computed from y, so binding can fuse it into the layer before.
template <class T>
class ActivationLayer : public Layer<T> {
 public:
  explicit ActivationLayer(kernels::Activation function) : function_(function) {}

  std::string_view name() const override;
  Traits traits() const override { return {.elementwise = true, .activation = function_}; }
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  kernels::Activation function_;
};

}  // namespace pdnn::nn
