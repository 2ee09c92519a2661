#pragma once
/// Softmax and LogSoftmax over the features of a sample.
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y_j = exp(x_j) / Σ_k exp(x_k), or its logarithm.
template <class T>
class Softmax : public Layer<T> {
 public:
  explicit Softmax(bool log) : log_(log) {}

  std::string_view name() const override { return log_ ? "LogSoftmax" : "Softmax"; }
  Shape output_shape(const Shape& in) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  bool log_;
};

}  // namespace pdnn::nn
