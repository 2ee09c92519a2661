#include "pdnn/nn/layers/pool2d.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
Pool2d<T>::Pool2d(std::string_view name, Index kernel, Index stride) : kernel_(kernel), stride_(stride) {
  check_windows(name, kernel, stride, 0);
}

template <class T>
Shape Pool2d<T>::output_shape(const Shape& in) const {
  const kernels::Windows v = windows(in);
  return {in[0], v.out_height, v.out_width};
}

template <class T>
MaxPool2d<T>::MaxPool2d(Index kernel, Index stride) : Pool2d<T>("MaxPool2d", kernel, stride) {
  require(kernel <= 16, "MaxPool2d: kernel ", kernel, "; at most 16");  // whose taps a byte can tell apart
}

/// A ReLU after this layer is computed here.
template <class T>
std::vector<LayerPtr<T>> MaxPool2d<T>::fused(const LayerPtr<T>& next, const Shape&) const {
  if (relu_ || this->kernel_ > 15 || next->traits().activation != kernels::Activation::relu)
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
  kernels::Windows all = windows_on(name(), in, 1, 1, 0);
  all.kernel_height = all.height;
  all.kernel_width = all.width;
  all.out_height = all.out_width = 1;
  return all;
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
