#pragma once
/// LayerCall: one layer bound to a sample shape and run by one thread, outside of any network: what eager mode records.
/// Images have their channels last on both sides, as between the layers of a network.
#include "pdnn/core/memory.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

template <class T>
class LayerCall {
 public:
  /// Throws ValueError if the samples do not fit.
  LayerCall(LayerPtr<T> layer, const Shape& in);

  const Shape& in() const { return in_; }
  const Shape& out() const { return out_; }
  Index params() const { return params_; }
  Index buffers() const { return buffers_; }
  /// Elements that live from forward to backward.
  Index saved(Index rows) const { return sizes_.saved + rows * sizes_.saved_row; }

  /// The exception: views, like Flatten, take images with their channels first.
  bool channels_first() const { return layer_->traits().view; }
  /// Whether it takes sums over the whole batch through Pass::batch_sum.
  bool synchronized() const { return layer_->traits().synchronized; }

  /// y from x. A training pass also takes its statistics into the buffers, at once.
  void forward(const Pass& pass, std::span<const T> params, std::span<T> buffers, std::span<T> saved, Tensor<const T> x,
               Tensor<T> y) const;
  /// dx from dy, if it is wanted; the gradients are added to `grads`. Each slice of them is announced once,
  /// falling.
  void backward(Pass pass, std::span<const T> params, std::span<const T> buffers, std::span<T> saved, Tensor<const T> x,
                Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx, std::span<T> grads) const;

 private:
  AlignedArray<T> scratch(Index rows) const {
    return AlignedArray<T>(sizes_.scratch + rows * sizes_.scratch_row, Contents::anything);
  }

  LayerPtr<T> layer_;
  bool composite_ = false;  // announces its own final slices
  Shape in_, out_;
  Sizes sizes_;
  Index params_, buffers_;
};

}  // namespace pdnn::nn
