#include "pdnn/nn/layers/pool2d.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
Pool2d<T>::Pool2d(std::string_view name, const WindowOptions& options) : options_(options) {
  check_windows(name, options);
  const auto& [kernel, stride, padding, dilation, line] = options;
  require(2 * padding.y <= kernel.y && 2 * padding.x <= kernel.x, name, ": padding ", padding.text(), " of windows of ",
          kernel.text(), "; at most half of the kernel is possible");
}

template <class T>
Shape Pool2d<T>::output_shape(const Shape& in) const {
  const kernels::Windows v = windows(in);
  return places_of(options_, in[0], v);
}

template <class T>
MaxPool2d<T>::MaxPool2d(const WindowOptions& options) : Pool2d<T>(options.line ? "MaxPool1d" : "MaxPool2d", options) {
  const Pair kernel = options.kernel;  // whose taps a byte must tell apart
  require(kernel.y * kernel.x <= 256, MaxPool2d::name(), ": kernel ", kernel.text(),
          "; at most 256 elements, 16 by 16");
}

/// A ReLU after this layer is computed here.
template <class T>
std::vector<LayerPtr<T>> MaxPool2d<T>::fused(const LayerPtr<T>& next, const Shape&) const {
  const Pair kernel = this->options_.kernel;
  if (relu_ || kernel.y * kernel.x > 255 || next->traits().activation != kernels::Activation::relu)
    return {};  // 255 is no tap where windows are wider
  auto fused = std::make_shared<MaxPool2d>(*this);
  fused->relu_ = true;
  return {fused};
}

template <class T>
Sizes MaxPool2d<T>::sizes(const Shape& in) const {
  constexpr Index bytes = sizeof(T);
  return {.saved_row = (this->output_shape(in).count() + bytes - 1) / bytes};
}

template <class T>
void MaxPool2d<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  auto* const winners = reinterpret_cast<std::uint8_t*>(vars.saved.data());
  kernels::table<T>().max_pool(*pass.team, this->windows(x.sample), x.sample[0], x.batch, relu_, x.data, y.data,
                               winners);
}

template <class T>
void MaxPool2d<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy,
                            Tensor<T> dx, std::span<T>) const {
  if (!dx.wanted()) return;
  const auto* const winners = reinterpret_cast<const std::uint8_t*>(vars.saved.data());
  kernels::table<T>().max_pool_backward(*pass.team, this->windows(x.sample), x.sample[0], x.batch, winners, dy.data,
                                        dx.data);
}

template <class T>
void AvgPool2d<T>::forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const {
  kernels::table<T>().mean_pool(*pass.team, this->windows(x.sample), x.sample[0], x.batch, x.data, y.data);
}

template <class T>
void AvgPool2d<T>::backward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy,
                            Tensor<T> dx, std::span<T>) const {
  if (!dx.wanted()) return;
  kernels::table<T>().mean_pool_backward(*pass.team, this->windows(x.sample), x.sample[0], x.batch, dy.data, dx.data);
}

template <class T>
kernels::Windows GlobalAvgPool2d<T>::windows(const Shape& in) const {
  const kernels::Windows each = windows_on(name(), in, this->options_);
  return {kernels::axis_of(each.y.extent, each.y.extent), kernels::axis_of(each.x.extent, each.x.extent)};
}

#define PDNN_INSTANTIATE(T)    \
  template class Pool2d<T>;    \
  template class MaxPool2d<T>; \
  template class AvgPool2d<T>; \
  template class GlobalAvgPool2d<T>;

PDNN_INSTANTIATE(float)
PDNN_INSTANTIATE(double)
#undef PDNN_INSTANTIATE

}  // namespace pdnn::nn
