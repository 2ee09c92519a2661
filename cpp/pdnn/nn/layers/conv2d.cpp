#include "pdnn/nn/layers/conv2d.hpp"

#include <utility>

#include "pdnn/nn/layers/conv_pool2d.hpp"
#include "pdnn/nn/layers/pool2d.hpp"

namespace pdnn::nn {

template <class T>
Conv2d<T>::Conv2d(Index inputs, Index outputs, const WindowOptions& options, bool bias, Init weight_init,
                  Init bias_init, kernels::Precision precision, Index groups)
    : inputs_(inputs),
      outputs_(outputs),
      groups_(groups),
      options_(options),
      bias_(bias),
      weight_init_(weight_init),
      bias_init_(bias_init),
      precision_(precision) {
  require(inputs >= 1 && outputs >= 1, Conv2d::name(), ": ", inputs, " input and ", outputs,
          " output channels; both must be at least 1");
  require(groups >= 1 && inputs % groups == 0 && outputs % groups == 0, Conv2d::name(), ": ", groups,
          " groups do not divide ", inputs, " input and ", outputs, " output channels");
  check_windows(Conv2d::name(), options);
  require(precision == kernels::Precision::full || std::is_same_v<T, float>, Conv2d::name(),
          ": bfloat16 goes with float32");
  if (groups > 1 && inputs == groups && outputs == groups) precision_ = kernels::Precision::full;
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
  std::vector<Index> shape{options_.kernel.y, options_.kernel.x, inputs_ / groups_, outputs_};
  if (options_.line) shape.erase(shape.begin());
  std::vector<Parameter> parameters{{"weight", std::move(shape)}};
  if (bias_) parameters.push_back({"bias", {outputs_}});
  return parameters;
}

template <class T>
kernels::Convolution Conv2d<T>::shape_on(const Shape& in) const {
  return {windows_on(name(), in, options_), inputs_, outputs_, groups_};
}

template <class T>
Shape Conv2d<T>::output_shape(const Shape& in) const {
  const kernels::Windows windows = shape_on(in).windows;
  require(in[0] == inputs_, name(), ": input ", in.text(), " has ", in[0], " channels, this layer takes ", inputs_);
  return places_of(options_, outputs_, windows);
}

/// Scratch: flipped weights; dz if there is a ReLU; rounded x, rounded dy. With two orders dy is there in both, and
/// rounded weights are beside flipped ones.
template <class T>
Sizes Conv2d<T>::sizes(const Shape& in) const {
  const Index out = output_shape(in).count();
  const kernels::RoundingKernels<T>* const rounding = kernels::rounded<T>(precision_);
  const Index orders = rounding && !rounding->as_floats ? 2 : 1;
  return {.scratch = orders * weights(),
          .scratch_row = (relu_ ? out : 0) + (rounding ? in.count() + orders * out : 0),
          .level = weights() + (bias_ ? outputs_ : 0)};
}

template <class T>
void Conv2d<T>::initialize(Rng rng, std::span<T> params, std::span<T>) const {
  weight_init_.fill(rng.child(0), slice(params, 0, weights()));
  if (bias_) bias_init_.fill(rng.child(1), slice(params, weights(), outputs_));
}

template <class T>
void Conv2d<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  const kernels::Convolution shape = shape_on(x.sample);
  const T *w = vars.params.data(), *const b = bias_ ? w + weights() : nullptr;
  if (const kernels::RoundingKernels<T>* const rounding = kernels::rounded<T>(precision_)) {
    T *const rounded_w = vars.scratch.data(), *const rounded_x = rounded_w + weights();
    const Index each = inputs_ / groups_;
    rounding->round_taps(*pass.team, taps(), each, outputs_, w, rounded_w);
    rounding->round_channels(*pass.team, x.count() / each, each, x.data, rounded_x);
    pass.team->barrier();
    w = rounded_w, x.data = rounded_x;
  }
  kernels::convolutions<T>(precision_).convolution(*pass.team, shape, x.batch, x.data, w, b, relu_, y.data);
}

template <class T>
void Conv2d<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                         Tensor<T> dx, std::span<T> grads) const {
  const kernels::Convolution shape = shape_on(x.sample);
  const kernels::ConvolutionKernels<T>& products = kernels::convolutions<T>(precision_);
  const kernels::RoundingKernels<T>* const rounding = kernels::rounded<T>(precision_);
  T* room = vars.scratch.data();
  const auto take = [&](Index count) { return std::exchange(room, room + count); };
  T* const flipped = take(weights());
  if (relu_) {
    T* const dz = take(y.count());
    kernels::table<T>().activate_backward(*pass.team, kernels::Activation::relu, y.count(), y.data, dy.data, dz);
    dy.data = dz;
  }
  const bool once = rounding && rounding->as_floats;  // dy is rounded for both products, w on its way
  if (dx.wanted()) {
    const auto flip = once ? rounding->flip_rounded_taps : kernels::table<T>().flip_taps;
    flip(*pass.team, shape, vars.params.data(), flipped);
  }
  if (relu_ || dx.wanted()) pass.team->barrier();
  const Index each = outputs_ / groups_;
  T* const rounded_dy = rounding ? take(y.count()) : nullptr;
  if (once || (rounding && dx.wanted()))
    rounding->round_channels(*pass.team, y.count() / each, each, dy.data, rounded_dy);
  if (dx.wanted()) {
    const T* w = flipped;
    if (rounding && !once) {
      T* const rounded_w = take(weights());
      rounding->round_taps(*pass.team, taps(), each, inputs_, flipped, rounded_w);
      w = rounded_w;
    }
    if (rounding) pass.team->barrier();
    products.convolution_dx(*pass.team, shape, x.batch, rounding ? rounded_dy : dy.data, w, dx.data);
  }
  pass.poll();
  T* const rounded_x = rounding ? take(x.count()) : nullptr;
  T* const samples_dy = once ? rounded_dy : rounding ? take(y.count()) : nullptr;
  each_node(pass, vars, x.batch, grads, [&](Range rows, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
    const Tensor<const T> own_x = x.rows(rows), own_dy = dy.rows(rows);
    const T *x_factor = own_x.data, *dy_factor = own_dy.data;
    if (rounding) {
      T *const x_room = rounded_x + rows.begin * x.width(), *const dy_room = samples_dy + rows.begin * y.width();
      rounding->round_samples(*pass.team, rows.size(), x.width(), leaves, own_x.data, x_room);
      if (!once) rounding->round_samples(*pass.team, rows.size(), y.width(), leaves, own_dy.data, dy_room);
      pass.team->barrier();
      x_factor = x_room, dy_factor = dy_room;
    }
    products.convolution_dw(*pass.team, shape, rows.size(), x_factor, dy_factor, own_dy.data, leaves, pass.add,
                            sums.data(), bias_ ? sums.data() + weights() : nullptr);
  });
}

template class Conv2d<float>;
template class Conv2d<double>;

}  // namespace pdnn::nn
