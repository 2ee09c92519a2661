#pragma once
/// Conv2d: a window of weights moved over images, with a ReLU that binding may fuse into it.
#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/init.hpp"
#include "pdnn/nn/layers/windows.hpp"

namespace pdnn::nn {

/// y = x ⋆ w + b. x: [batch, height, width, inputs], w: [kernel, kernel, inputs, outputs], b: [outputs]. With
/// Precision::bfloat16 the factors of its three products are rounded (kernels::convolutions).
template <class T>
class Conv2d : public Layer<T> {
 public:
  Conv2d(Index inputs, Index outputs, Index kernel, Index stride, Index padding, bool bias, Init weight_init,
         Init bias_init, kernels::Precision precision = kernels::Precision::full);

  std::string_view name() const override { return "Conv2d"; }
  std::vector<Parameter> parameters() const override;
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  std::vector<LayerPtr<T>> fused(const LayerPtr<T>& next, const Shape& in) const override;
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  kernels::Convolution shape_on(const Shape& in) const;
  bool rounds() const { return precision_ != kernels::Precision::full; }
  Index weights() const { return kernel_ * kernel_ * inputs_ * outputs_; }

  Index inputs_, outputs_, kernel_, stride_, padding_;
  bool bias_, relu_ = false;
  Init weight_init_, bias_init_;
  kernels::Precision precision_;
};

}  // namespace pdnn::nn
