#pragma once
/// Embedding: a row of weights for each index of a sample.
#include "pdnn/nn/init.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y[r, p, :] = w[x[r, p], :]. x has whole numbers in [0, count); at anything else a pass throws ValueError. As all
/// arrays of two axes, y lies with its first axis last, unless binding has it take over the turn after it. The row of
/// `padding` is 0 at first, and so is its gradient.
template <class T>
class Embedding : public Layer<T> {
 public:
  Embedding(Index count, Index width, Init init, std::optional<Index> padding = {});

  std::string_view name() const override { return "Embedding"; }
  std::vector<Parameter> parameters() const override { return {{"weight", {count_, width_}}}; }
  Traits traits() const override { return {.indices = true}; }
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  std::vector<LayerPtr<T>> fused(const LayerPtr<T>& next, const Shape& in) const override;
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  template <class Action>
  void each_place(const Pass& pass, Tensor<const T> x, Range rows, Action action) const;

  Index count_, width_;
  std::optional<Index> padding_;
  bool turned_ = false;  // y lies as it is written
  Init init_;
};

}  // namespace pdnn::nn
