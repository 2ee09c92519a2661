#pragma once
/// ChannelOrder: images and lines turned from channels first, as users have them, into channels last, as layers want
/// them; or back.
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

template <class T>
class ChannelOrder : public Layer<T> {
 public:
  enum class To { last, first };
  explicit ChannelOrder(To to) : to_(to) {}
  To to() const { return to_; }

  /// Whether the two orders of such samples differ.
  static bool matters(const Shape& sample) { return sample.rank() > 1 && sample[0] > 1 && sample.count() > sample[0]; }

  std::string_view name() const override { return "ChannelOrder"; }
  std::vector<LayerPtr<T>> fused(const LayerPtr<T>& next, const Shape& in) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  To to_;
};

}  // namespace pdnn::nn
