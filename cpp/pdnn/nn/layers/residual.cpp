#include "pdnn/nn/layers/residual.hpp"

#include "pdnn/core/memory.hpp"
#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/network.hpp"

namespace pdnn::nn {

namespace {

/// f(x) of so many elements is the first thing saved; what f itself saves begins on a cache line behind it.
template <class T>
Index room(Index count) {
  constexpr Index line = kCacheLine / sizeof(T);
  return (count + line - 1) / line * line;
}

}  // namespace

template <class T>
std::vector<Parameter> Residual<T>::prefixed(std::vector<Parameter> arrays) {
  for (Parameter& array : arrays) array.name = "fn." + array.name;
  return arrays;
}

template <class T>
Traits Residual<T>::traits() const {
  const Traits inner = f_->traits();
  return {
      .synchronized = inner.synchronized, .own_statistics = inner.own_statistics, .communicates = inner.communicates};
}

template <class T>
Shape Residual<T>::output_shape(const Shape& in) const {
  const Shape out = f_->output_shape(in);
  require(out == in, "Residual: the inner network makes ", out.text(), " of ", in.text(),
          "; to be added to its input it must keep the shape");
  return in;
}

/// A network inside, whatever f is: it meets after each layer and announces its own final slices.
template <class T>
LayerPtr<T> Residual<T>::bind(const Shape& in) const {
  const bool whole = dynamic_cast<const Network<T>*>(f_.get()) != nullptr;
  auto bound = std::make_shared<Residual>(whole ? f_->bind(in) : Network<T>({f_}).bind(in));
  bound->width_ = in.count();
  return bound;
}

template <class T>
Sizes Residual<T>::sizes(const Shape& in) const {
  Sizes sizes = f_->sizes(in);
  sizes.saved += room<T>(1);  // what rounding up may cost
  sizes.saved_row += in.count();
  return sizes;
}

template <class T>
void Residual<T>::initialize(Rng rng, std::span<T> params, std::span<T> buffers) const {
  f_->initialize(rng, params, buffers);
}

template <class T>
void Residual<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  const Tensor<T> fx{vars.saved.data(), x.batch, x.sample};
  vars.saved = vars.saved.subspan(static_cast<std::size_t>(room<T>(x.count())));
  f_->forward(pass, vars, x, fx);
  kernels::table<T>().add(*pass.team, x.count(), x.data, fx.data, y.data);
}

template <class T>
void Residual<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy,
                           Tensor<T> dx, std::span<T> grads) const {
  const Tensor<T> fx{vars.saved.data(), x.batch, x.sample};
  vars.saved = vars.saved.subspan(static_cast<std::size_t>(room<T>(x.count())));
  f_->backward(pass, vars, x, fx, dy, dx, grads);
  if (dx.wanted()) kernels::table<T>().add(*pass.team, x.count(), dx.data, dy.data, dx.data);
}

template <class T>
void Residual<T>::commit(const Pass& pass, std::span<const T> saved, Index rows, std::span<T> buffers) const {
  f_->commit(pass, saved.subspan(static_cast<std::size_t>(room<T>(rows * width_))), rows, buffers);
}

template class Residual<float>;
template class Residual<double>;

}  // namespace pdnn::nn
