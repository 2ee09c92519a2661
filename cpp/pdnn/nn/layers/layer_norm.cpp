#include "pdnn/nn/layers/layer_norm.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
LayerNorm<T>::LayerNorm(Index features, double eps) : features_(features), eps_(eps) {
  require(features >= 1, "LayerNorm: ", features, " features; expected at least 1");
  require(eps > 0, "LayerNorm: eps = ", eps, "; expected a number above 0");
}

template <class T>
Shape LayerNorm<T>::output_shape(const Shape& in) const {
  require(in.rank() == 1, "LayerNorm: input samples are ", in.text(),
          ", expected features; put nn.Flatten() before it");
  require(in[0] == features_, "LayerNorm: input has ", in[0], " features, this layer takes ", features_);
  return in;
}

template <class T>
void LayerNorm<T>::initialize(Rng, std::span<T> params, std::span<T>) const {
  std::fill_n(params.data(), features_, T{1});
  std::fill_n(params.data() + features_, features_, T{0});
}

template <class T>
void LayerNorm<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  const T* const weight = vars.params.data();
  kernels::table<T>().layer_norm(*pass.team, x, weight, weight + features_, eps_, y, vars.saved.data());
}

/// With z = (x − mean) / √(var + eps), dz = dy ∘ weight and means over the features of a row:
///
///     dweight = Σ_r dy z      dbias = Σ_r dy      dx = (dz − mean(dz) − z mean(dz z)) / √(var + eps)
template <class T>
void LayerNorm<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy,
                            Tensor<T> dx, std::span<T> grads) const {
  if (dx.wanted())
    kernels::table<T>().layer_norm_backward(*pass.team, x, dy, vars.params.data(), vars.saved.data(), dx);
  each_node(pass, vars, x.batch, grads, [&](Range rows, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
    kernels::table<T>().layer_norm_sums(*pass.team, x.rows(rows), dy.rows(rows), vars.saved.data() + 2 * rows.begin,
                                        leaves, pass.add, sums.data(), sums.data() + features_);
  });
}

template class LayerNorm<float>;
template class LayerNorm<double>;

}  // namespace pdnn::nn
