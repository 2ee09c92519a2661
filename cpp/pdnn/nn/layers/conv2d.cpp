#include "pdnn/nn/layers/conv2d.hpp"

#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/layers/conv_pool2d.hpp"
#include "pdnn/nn/layers/pool2d.hpp"

namespace pdnn::nn {

template <class T>
Conv2d<T>::Conv2d(Index inputs, Index outputs, Index kernel, Index stride, Index padding, bool bias, Init weight_init,
                  Init bias_init)
    : inputs_(inputs),
      outputs_(outputs),
      kernel_(kernel),
      stride_(stride),
      padding_(padding),
      bias_(bias),
      weight_init_(weight_init),
      bias_init_(bias_init) {
  require(inputs >= 1 && outputs >= 1, "Conv2d: ", inputs, " input and ", outputs,
          " output channels; both must be at least 1");
  check_windows("Conv2d", kernel, stride, padding);
}

/// A ReLU after this layer is computed here, and pooling while a few samples of it are in cache.
template <class T>
std::vector<LayerPtr<T>> Conv2d<T>::fused(const LayerPtr<T>& next, const Shape& in) const {
  if (!relu_ && dynamic_cast<const MaxPool2d<T>*>(next.get()))
    return {std::make_shared<ConvPool2d<T>>(std::make_shared<Conv2d>(*this), next, in)};
  if (relu_ || next->traits().activation != kernels::Activation::relu) return {};
  auto fused = std::make_shared<Conv2d>(*this);
  fused->relu_ = true;
  return {fused};
}

template <class T>
std::vector<Parameter> Conv2d<T>::parameters() const {
  std::vector<Parameter> parameters{{"weight", {kernel_, kernel_, inputs_, outputs_}}};
  if (bias_) parameters.push_back({"bias", {outputs_}});
  return parameters;
}

template <class T>
kernels::Convolution Conv2d<T>::shape_on(const Shape& in) const {
  return {windows_on(name(), in, kernel_, stride_, padding_), inputs_, outputs_};
}

template <class T>
Shape Conv2d<T>::output_shape(const Shape& in) const {
  const kernels::Windows windows = shape_on(in).windows;
  require(in[0] == inputs_, "Conv2d: input ", in.text(), " has ", in[0], " channels, this layer takes ", inputs_);
  return {outputs_, windows.out_height, windows.out_width};
}

template <class T>
Sizes Conv2d<T>::sizes(const Shape& in) const {
  return {.scratch = weights(),
          .scratch_row = relu_ ? output_shape(in).count() : 0,
          .level = weights() + (bias_ ? outputs_ : 0)};
}

template <class T>
void Conv2d<T>::initialize(Rng rng, std::span<T> params, std::span<T>) const {
  weight_init_.fill(rng.child(0), slice(params, 0, weights()));
  if (bias_) bias_init_.fill(rng.child(1), slice(params, weights(), outputs_));
}

template <class T>
void Conv2d<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  const T* const w = vars.params.data();
  kernels::table<T>().convolution(*pass.team, shape_on(x.sample), x.batch, x.data, w, bias_ ? w + weights() : nullptr,
                                  relu_, y.data);
}

template <class T>
void Conv2d<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                         Tensor<T> dx, std::span<T> grads) const {
  const kernels::Convolution shape = shape_on(x.sample);
  T* const flipped = vars.scratch.data();
  if (relu_) {
    T* const dz = flipped + weights();
    kernels::table<T>().activate_backward(*pass.team, kernels::Activation::relu, y.count(), y.data, dy.data, dz);
    dy.data = dz;
  }
  if (dx.wanted()) kernels::table<T>().flip_taps(*pass.team, shape, vars.params.data(), flipped);
  if (relu_ || dx.wanted()) pass.team->barrier();
  if (dx.wanted()) kernels::table<T>().convolution_dx(*pass.team, shape, x.batch, dy.data, flipped, dx.data);
  pass.poll();
  each_node(pass, vars, x.batch, grads, [&](Range rows, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
    kernels::table<T>().convolution_dw(*pass.team, shape, rows.size(), x.rows(rows).data, dy.rows(rows).data, leaves,
                                       pass.add, sums.data(), bias_ ? sums.data() + weights() : nullptr);
  });
}

template class Conv2d<float>;
template class Conv2d<double>;

}  // namespace pdnn::nn
