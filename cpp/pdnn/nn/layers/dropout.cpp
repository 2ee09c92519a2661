#include "pdnn/nn/layers/dropout.hpp"

#include "pdnn/kernels/kernels.hpp"

namespace pdnn::nn {

template <class T>
Dropout<T>::Dropout(double p) : p_(p) {
  require(p >= 0 && p < 1, "Dropout: p = ", p, "; the probability of dropping must be in [0, 1)");
}

template <class T>
void Dropout<T>::apply(const Pass& pass, Tensor<const T> from, Tensor<T> to) const {
  const double p = pass.training ? p_ : 0;  // p = 0 copies
  kernels::dropout<T>(*pass.team, pass.rng(), pass.first_row, p, from, to);
}

template class Dropout<float>;
template class Dropout<double>;

}  // namespace pdnn::nn
