#include "pdnn/nn/layer_call.hpp"

#include "pdnn/nn/network.hpp"

namespace pdnn::nn {

namespace {

/// The layer as it runs by itself, with images as users have them: channels first on both sides. Null: ready as it is.
template <class T>
LayerPtr<T> bound_alone(const LayerPtr<T>& layer, const Shape& in) {
  if (const auto network = std::dynamic_pointer_cast<const Network<T>>(layer)) return network->bound(in);
  if (layer->view()) return nullptr;
  const bool turned = ChannelOrder<T>::matters(in) || ChannelOrder<T>::matters(layer->output_shape(in));
  return turned ? Network<T>({layer}).bound(in) : layer->bind(in);
}

}  // namespace

template <class T>
LayerCall<T>::LayerCall(LayerPtr<T> layer, const Shape& in)
    : layer_(std::move(layer)),
      in_(in),
      out_(layer_->output_shape(in)),
      params_(total(layer_->parameters())),
      state_(total(layer_->state())) {
  if (LayerPtr<T> bound = bound_alone(layer_, in)) {
    layer_ = std::move(bound);
    composite_ = true;
  }
  sizes_ = layer_->sizes(in);
}

template <class T>
void LayerCall<T>::forward(bool training, Rng key, std::span<const T> params, std::span<T> state, std::span<T> saved,
                           Tensor<const T> x, Tensor<T> y) const {
  const Member alone;
  const Pass pass{.team = &alone, .training = training, .key = key};
  Buffer<T> room = scratch(x.batch);
  layer_->forward(pass, {params, state, saved, room.span()}, x, y);
  if (training && state_ > 0) layer_->commit(pass, saved, x.batch, state);
}

template <class T>
void LayerCall<T>::backward(bool training, Rng key, std::span<const T> params, std::span<const T> state,
                            std::span<T> saved, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                            std::span<T> grads, Final* final) const {
  const Member alone;
  const Pass pass{.team = &alone, .training = training, .key = key, .add = true, .final = final};
  Buffer<T> room = scratch(x.batch);
  layer_->backward(pass, {params, state, saved, room.span()}, x, y, dy, dx, grads);
  if (final && params_ > 0 && !composite_) (*final)(alone, {0, params_});
}

template class LayerCall<float>;
template class LayerCall<double>;

}  // namespace pdnn::nn
