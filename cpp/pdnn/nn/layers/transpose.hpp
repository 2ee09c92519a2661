#pragma once
/// Transpose: the two axes of a sample exchanged, as between (places, features) of an Embedding and (channels, length)
/// of lines.
#include "pdnn/nn/layers/channel_order.hpp"
#include "pdnn/nn/layers/identity.hpp"

namespace pdnn::nn {

/// (a, b) becomes (b, a). Beside a turn of the order of channels, which moves the same elements back, it is a view.
template <class T>
class Transpose : public Identity<T> {
 public:
  Transpose() = default;
  explicit Transpose(bool view) : view_(view) {}

  std::string_view name() const override { return "Transpose"; }
  Traits traits() const override { return {.view = view_}; }
  Shape output_shape(const Shape& in) const override;
  std::vector<LayerPtr<T>> fused(const LayerPtr<T>& next, const Shape& in) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  bool view_ = false;
};

}  // namespace pdnn::nn
