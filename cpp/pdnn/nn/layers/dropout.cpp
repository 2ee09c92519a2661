#include "pdnn/nn/layers/dropout.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
Dropout<T>::Dropout(double p, Index first_column, Index columns)
    : p_(p), first_column_(first_column), columns_(columns) {
  require(p >= 0 && p < 1, "Dropout: p = ", p, "; the probability of dropping must be in [0, 1)");
}

template <class T>
void Dropout<T>::apply(const Pass& pass, Tensor<const T> from, Tensor<T> to) const {
  const double p = pass.training ? p_ : 0;  // p = 0 copies
  const Index columns = columns_ > 0 ? columns_ : from.width();
  kernels::table<T>().dropout(*pass.team, pass.rng().key(), pass.first_row * columns + first_column_, columns, p, from,
                              to);
}

template class Dropout<float>;
template class Dropout<double>;

}  // namespace pdnn::nn
