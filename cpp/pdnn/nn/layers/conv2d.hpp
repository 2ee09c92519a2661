#pragma once
/// Conv2d: a window of weights moved over images, or over lines, with a ReLU that binding may fuse into it.
#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/init.hpp"
#include "pdnn/nn/layers/windows.hpp"

namespace pdnn::nn {

/// y = x ⋆ w + b. x: [batch, height, width, inputs], w: [kernel.y, kernel.x, inputs / groups, outputs], b: [outputs];
/// on lines without the first axis of each. With Precision::bfloat16 the factors of its three products are rounded
/// (kernels::convolutions); a convolution of one channel a group, which waits for memory, has none.
template <class T>
class Conv2d : public Layer<T> {
 public:
  Conv2d(Index inputs, Index outputs, const WindowOptions& options, bool bias, Init weight_init, Init bias_init,
         kernels::Precision precision = kernels::Precision::full, Index groups = 1);

  std::string_view name() const override { return options_.line ? "Conv1d" : "Conv2d"; }
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
  Index taps() const { return options_.kernel.y * options_.kernel.x; }
  Index weights() const { return taps() * inputs_ / groups_ * outputs_; }

  Index inputs_, outputs_, groups_;
  WindowOptions options_;
  bool bias_, relu_ = false;
  Init weight_init_, bias_init_;
  kernels::Precision precision_;
};

}  // namespace pdnn::nn
