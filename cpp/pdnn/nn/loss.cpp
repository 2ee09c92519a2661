#include "pdnn/nn/loss.hpp"

#include <cmath>

namespace pdnn::nn {

LossValue sum_of_rows(const double* rows, Range range) {
  LossValue sums;
  for (Index r = range.begin; r < range.end; ++r) {
    sums.value += rows[2 * r];
    if (!std::isnan(rows[2 * r])) sums.correct += rows[2 * r + 1];  // of outputs that are NaN none is the largest
  }
  return sums;
}

template <class T>
double Loss<T>::weight_of_rows(const Target<T>& target, Index rows) const {
  if (!weighs(target)) return static_cast<double>(rows);
  double sum = 0;
  for (Index row = 0; row < rows; ++row) sum += weight(target, row);
  return sum;
}

template <class T>
LossValue Loss<T>::operator()(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                              const Tensor<T>& dy, double* rows) const {
  if (!target.weights || y.batch == 0) {
    compute(member, y, target, scale, dy, rows);
  } else {
    const double unit = unit_of_largest({target.weights, static_cast<std::size_t>(y.batch)});
    compute(member, y, target, scale * unit, dy, rows);
    weigh(member, dy, rows, unit, [&](Index r) { return target.weights[r]; });
  }
  member.barrier();
  return sum_of_rows(rows, {0, y.batch});
}

template class Loss<float>;
template class Loss<double>;

}  // namespace pdnn::nn
