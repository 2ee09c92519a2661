#pragma once
/// ConvPool2d: a convolution and its pooling, done for a few samples at a time.
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// What binding makes of a Conv2d and the MaxPool2d after it. What lies between them is several times as large as what
/// goes in and out; a block of samples of it stays in cache, and nobody has to keep it: the backward pass of the one
/// needs no y, that of the other no x. A member of the team does whole blocks by itself. The gradients of a fixed
/// number of blocks are added in their order, so the size of the team changes no bit. A leaf has blocks of its own: as
/// many as K leaves leave it, so a pass over one leaf must know K.
template <class T>
class ConvPool2d : public Layer<T> {
 public:
  ConvPool2d(LayerPtr<T> convolution, LayerPtr<T> pooling, const Shape& in);

  std::string_view name() const override { return "ConvPool2d"; }
  std::vector<Parameter> parameters() const override { return convolution_->parameters(); }
  Traits traits() const override { return {.own_order = true}; }
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  static constexpr Index kBlocks = 16;

  /// One block's rows, and where a member who works on it keeps things.
  struct Block {
    Range rows;
    Tensor<T> between;  // the convolution's y, or dy
    std::span<T> scratch, saved, grads;
  };
  /// How a pass cuts its rows: leaves, of `each` blocks.
  struct Blocks {
    Index leaves = 1, each = kBlocks, longest;  // rows of the longest block
    Index count() const { return leaves * each; }
  };
  Blocks blocks(const Pass& pass, Index batch) const;
  Block block(Index number, const Pass& pass, Index batch, const Vars<T>& vars) const;
  std::span<T> block_grads(Index number, const Vars<T>& vars) const;
  template <class Action>
  void each_own(const Pass& pass, Index batch, const Vars<T>& vars, Action action) const;
  Index room(Index rows) const;

  LayerPtr<T> convolution_, pooling_;
  Shape in_, between_;
  Sizes convolution_sizes_, pooling_sizes_;
  Index params_;
};

}  // namespace pdnn::nn
