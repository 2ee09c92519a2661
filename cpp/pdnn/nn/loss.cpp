#include "pdnn/nn/loss.hpp"

namespace pdnn::nn {

template <class T>
LossValue Loss<T>::operator()(const Member& member, Tensor<const T> y, Target<T> target, double scale, Tensor<T> dy,
                              double* rows) const {
  compute(member, y, target, scale, dy, rows);
  member.barrier();
  LossValue sums;
  for (Index r = 0; r < y.batch; ++r) {
    sums.value += rows[2 * r];
    sums.correct += rows[2 * r + 1];
  }
  return sums;
}

template class Loss<float>;
template class Loss<double>;

}  // namespace pdnn::nn
