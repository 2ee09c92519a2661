#include "pdnn/nn/layers/channel_order.hpp"

#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/layers/transpose.hpp"

namespace pdnn::nn {

namespace {

template <class T>
void turn(Part part, const Shape& image, bool to_last, Index batch, const T* x, T* y) {
  const Index channels = image[0], places = image.count() / channels;
  kernels::table<T>().transpose_samples(part, batch, to_last ? channels : places, to_last ? places : channels, x, y);
}

}  // namespace

template <class T>
std::vector<LayerPtr<T>> ChannelOrder<T>::fused(const LayerPtr<T>& next, const Shape&) const {
  const auto* const back = dynamic_cast<const Transpose<T>*>(next.get());
  if (to_ != To::last || !back || back->traits().view) return {};
  return {std::make_shared<Transpose<T>>(true)};
}

template <class T>
void ChannelOrder<T>::forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const {
  turn(*pass.team, x.sample, to_ == To::last, x.batch, x.data, y.data);
}

template <class T>
void ChannelOrder<T>::backward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy,
                               Tensor<T> dx, std::span<T>) const {
  if (dx.wanted()) turn(*pass.team, x.sample, to_ == To::first, x.batch, dy.data, dx.data);
}

template class ChannelOrder<float>;
template class ChannelOrder<double>;

}  // namespace pdnn::nn
