#pragma once
/// Activations whose slope needs x: LeakyReLU and GELU. They stand alone, where those of activation.hpp are fused.
#include "pdnn/kernels/kernels.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y = x where x > 0, else slope · x.
template <class T>
class LeakyReLU : public Layer<T> {
 public:
  explicit LeakyReLU(double slope) : slope_(static_cast<T>(slope)) {}

  std::string_view name() const override { return "LeakyReLU"; }
  void forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const override {
    kernels::leaky_relu<T>(*pass.team, slope_, x.count(), x.data, x.data, y.data);
  }
  void backward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy, Tensor<T> dx,
                std::span<T>) const override {
    if (dx.wanted()) kernels::leaky_relu<T>(*pass.team, slope_, x.count(), x.data, dy.data, dx.data);
  }

 private:
  T slope_;
};

/// y = x Φ(x), Φ the normal distribution function. Hendrycks and Gimpel, arXiv 1606.08415, in its exact form.
template <class T>
class GELU : public Layer<T> {
 public:
  std::string_view name() const override { return "GELU"; }
  void forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const override {
    kernels::gelu<T>(*pass.team, x.count(), x.data, y.data);
  }
  void backward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy, Tensor<T> dx,
                std::span<T>) const override {
    if (dx.wanted()) kernels::gelu_backward<T>(*pass.team, x.count(), x.data, dy.data, dx.data);
  }
};

}  // namespace pdnn::nn
