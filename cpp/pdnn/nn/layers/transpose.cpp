#include "pdnn/nn/layers/transpose.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
Shape Transpose<T>::output_shape(const Shape& in) const {
  require(in.rank() == 2, "Transpose: input samples are ", in.text(),
          ", this layer takes two axes, (places, features) or (channels, length)");
  return {in[1], in[0]};
}

template <class T>
std::vector<LayerPtr<T>> Transpose<T>::fused(const LayerPtr<T>& next, const Shape&) const {
  const auto* const turn = dynamic_cast<const ChannelOrder<T>*>(next.get());
  if (view_ || !turn || turn->to() != ChannelOrder<T>::To::first) return {};
  return {std::make_shared<Transpose>(true)};
}

/// Samples lie with their first axis last.
template <class T>
void Transpose<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  if (view_) return Identity<T>::forward(pass, vars, x, y);
  kernels::table<T>().transpose_samples(*pass.team, x.batch, x.sample[1], x.sample[0], x.data, y.data);
}

template <class T>
void Transpose<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                            Tensor<T> dx, std::span<T> grads) const {
  if (view_) return Identity<T>::backward(pass, vars, x, y, dy, dx, grads);
  if (dx.wanted())
    kernels::table<T>().transpose_samples(*pass.team, x.batch, x.sample[0], x.sample[1], dy.data, dx.data);
}

template class Transpose<float>;
template class Transpose<double>;

}  // namespace pdnn::nn
