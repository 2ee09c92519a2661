#include "pdnn/nn/losses/nll.hpp"

namespace pdnn::nn {

template <class T>
void NLLLoss<T>::check(const Shape& output, Index target_width) const {
  require(output.rank() == 1, name(), ": outputs are ", output.text(),
          " a sample, expected one log-probability a class");
  require(target_width == 0, name(), ": targets have ", target_width, " columns, expected one class a row, shape (n,)");
  this->check_classes(output, target_width);
}

template <class T>
void NLLLoss<T>::compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                         const Tensor<T>& dy, double* rows) const {
  const Range mine = member.range(y.batch);
  for (Index r = mine.begin; r < mine.end; ++r) {
    const Index label = target.classes[r];
    rows[2 * r] = -static_cast<double>(y.row(r)[label]);
    rows[2 * r + 1] = largest(y.row(r), y.width()) == label ? 1 : 0;
    if (!dy.wanted()) continue;
    std::fill_n(dy.row(r), dy.width(), T{});
    dy.row(r)[label] = static_cast<T>(-scale);
  }
}

template class NLLLoss<float>;
template class NLLLoss<double>;

}  // namespace pdnn::nn
