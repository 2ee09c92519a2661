#pragma once
/// Residual: what a network makes of x is added to x. He, Zhang, Ren, Sun, CVPR 2016.
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y = x + f(x). f(x) is kept apart from y: the last layer of f may need its own output in backward.
template <class T>
class Residual : public Layer<T> {
 public:
  explicit Residual(LayerPtr<T> f) : f_(std::move(f)) {}

  std::string_view name() const override { return "Residual"; }
  /// f's, named "fn.<name>".
  std::vector<Parameter> parameters() const override { return prefixed(f_->parameters()); }
  std::vector<Parameter> buffers() const override { return prefixed(f_->buffers()); }
  Traits traits() const override;
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  LayerPtr<T> bind(const Shape& in) const override;
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;
  void commit(const Pass& pass, std::span<const T> saved, Index rows, std::span<T> buffers) const override;

 private:
  static std::vector<Parameter> prefixed(std::vector<Parameter> arrays);

  LayerPtr<T> f_;
  Index width_ = 0;  // bound: elements of a sample
};

}  // namespace pdnn::nn
