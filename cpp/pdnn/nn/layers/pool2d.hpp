#pragma once
/// Pooling: the largest or the mean of each window of an image or a line, channel by channel.
#include "pdnn/nn/layers/windows.hpp"

namespace pdnn::nn {

/// Where windows do not reach the right or lower edge, what is left over is ignored. Padding, of half a window at most,
/// is never the largest, and 0 in a mean over all taps.
template <class T>
class Pool2d : public Layer<T> {
 public:
  Pool2d(std::string_view name, const WindowOptions& options);

  Shape output_shape(const Shape& in) const override;

 protected:
  virtual kernels::Windows windows(const Shape& in) const { return windows_on(this->name(), in, options_); }
  WindowOptions options_;
};

/// y = the largest x of a window. Who won is kept in a byte, so that backward need not look at x.
template <class T>
class MaxPool2d : public Pool2d<T> {
 public:
  explicit MaxPool2d(const WindowOptions& options);

  std::string_view name() const override { return this->options_.line ? "MaxPool1d" : "MaxPool2d"; }
  Sizes sizes(const Shape& in) const override;
  std::vector<LayerPtr<T>> fused(const LayerPtr<T>& next, const Shape& in) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  bool relu_ = false;
};

/// y = the mean of a window.
template <class T>
class AvgPool2d : public Pool2d<T> {
 public:
  explicit AvgPool2d(const WindowOptions& options) : Pool2d<T>(options.line ? "AvgPool1d" : "AvgPool2d", options) {}

  std::string_view name() const override { return this->options_.line ? "AvgPool1d" : "AvgPool2d"; }
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;
};

/// y = the mean of a whole image, or a whole line: its window is as large.
template <class T>
class GlobalAvgPool2d : public AvgPool2d<T> {
 public:
  explicit GlobalAvgPool2d(bool line = false) : AvgPool2d<T>({.kernel = 1, .line = line}) {}
  std::string_view name() const override { return this->options_.line ? "AdaptiveAvgPool1d" : "AdaptiveAvgPool2d"; }

 protected:
  kernels::Windows windows(const Shape& in) const override;
};

}  // namespace pdnn::nn
