#include "pdnn/nn/losses/cross_entropy.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
void CrossEntropyLoss<T>::check(const Shape& output, Index target_width) const {
  require(output.rank() == 1, name(), ": outputs are ", output.text(), " a sample, expected one logit a class");
  require(target_width == 0 || target_width == output[0], name(), ": targets have ", target_width,
          " columns, the network has ", output[0], " outputs");
}

template <class T>
void CrossEntropyLoss<T>::compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                                  const Tensor<T>& dy, double* rows) const {
  if (target.classes) {
    kernels::table<T>().cross_entropy_of_classes(member, y, target.classes, scale, dy, rows);
  } else {
    kernels::table<T>().cross_entropy_of_targets(member, y, target.values, scale, dy, rows);
  }
}

template class CrossEntropyLoss<float>;
template class CrossEntropyLoss<double>;

}  // namespace pdnn::nn
