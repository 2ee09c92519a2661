#include "pdnn/nn/layer_call.hpp"

namespace pdnn::nn {

template <class T>
LayerCall<T>::LayerCall(LayerPtr<T> layer, const Shape& in)
    : layer_(std::move(layer)),
      in_(in),
      out_(layer_->output_shape(in)),
      params_(total(layer_->parameters())),
      buffers_(total(layer_->buffers())) {
  if (LayerPtr<T> bound = layer_->bind(in)) {
    layer_ = std::move(bound);
    composite_ = true;
  }
  sizes_ = layer_->sizes(in);
}

template <class T>
void LayerCall<T>::forward(const Pass& pass, std::span<const T> params, std::span<T> buffers, std::span<T> saved,
                           Tensor<const T> x, Tensor<T> y) const {
  AlignedArray<T> room = scratch(x.batch);
  layer_->forward(pass, {params, buffers, saved, room.span()}, x, y);
  if (pass.training && buffers_ > 0) layer_->commit(pass, saved, x.batch, buffers);
}

template <class T>
void LayerCall<T>::backward(Pass pass, std::span<const T> params, std::span<const T> buffers, std::span<T> saved,
                            Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                            std::span<T> grads) const {
  pass.add = true;
  AlignedArray<T> room = scratch(x.batch);
  layer_->backward(pass, {params, buffers, saved, room.span()}, x, y, dy, dx, grads);
  if (pass.final && params_ > 0 && !composite_) (*pass.final)(*pass.team, {0, params_});
}

template class LayerCall<float>;
template class LayerCall<double>;

}  // namespace pdnn::nn
