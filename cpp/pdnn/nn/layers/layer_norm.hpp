#pragma once
/// LayerNorm: every sample normalized over its features. Ba, Kiros, Hinton, arXiv 1607.06450.
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y[r] = (x[r] − mean) / √(var + eps) ∘ weight + bias, mean and variance of row r; the same in evaluation.
template <class T>
class LayerNorm : public Layer<T> {
 public:
  LayerNorm(Index features, double eps);

  std::string_view name() const override { return "LayerNorm"; }
  std::vector<Parameter> parameters() const override { return {{"weight", {features_}}, {"bias", {features_}}}; }
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape&) const override { return {.saved_row = 2}; }
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  Index features_;
  double eps_;
};

}  // namespace pdnn::nn
