#include "pdnn/nn/losses/elementwise.hpp"

#include <cmath>

namespace pdnn::nn {

Point SquaredError::at(double y, double t) { return {(y - t) * (y - t), 2 * (y - t)}; }

Point BinaryCrossEntropy::at(double y, double t) {
  const double loss = -t * std::max(std::log(y), -100.0) - (1 - t) * std::max(std::log1p(-y), -100.0);
  return {loss, (y - t) / std::max(y * (1 - y), 1e-12)};
}

Point BinaryCrossEntropyWithLogits::at(double y, double t) {
  const double decay = std::exp(-std::abs(y));
  const double sigmoid = y >= 0 ? 1 / (1 + decay) : decay / (1 + decay);
  return {std::max(y, 0.0) - y * t + std::log1p(decay), sigmoid - t};
}

template <class T, class Function>
void ElementwiseLoss<T, Function>::check(const Shape& output, Index target_width) const {
  const Index width = output.count();
  if (target_width == 0) {
    require(Function::kBinary, name(), ": targets are classes, expected values of shape (n, ", width, ")");
  } else {
    require(target_width == width, name(), ": targets have ", target_width, " columns, the network has ", width,
            " outputs");
  }
}

template <class T, class Function>
void ElementwiseLoss<T, Function>::compute(const Member& member, const Tensor<const T>& y, const Target<T>& target,
                                           double scale, const Tensor<T>& dy, double* rows) const {
  const Index width = y.width();
  const double each = this->reduction() == Reduction::mean ? 1.0 / static_cast<double>(width) : 1.0;
  const Range mine = member.range(y.batch);
  for (Index r = mine.begin; r < mine.end; ++r) {
    const T* const row = y.row(r);
    const Index label = target.classes ? target.classes[r] : -1;
    double loss = 0;
    for (Index j = 0; j < width; ++j) {
      const double t = !target.classes ? target.values.row(r)[j] : width == 1 ? static_cast<double>(label) : j == label;
      const Point point = Function::at(row[j], t);
      loss += point.loss;
      if (dy.wanted()) dy.row(r)[j] = static_cast<T>(scale * each * point.derivative);
    }
    rows[2 * r] = each * loss;
    rows[2 * r + 1] = 0;
    if (target.classes) {  // the boundary of a single output is where both classes cost the same
      const bool one = width == 1 && Function::at(row[0], 1).loss < Function::at(row[0], 0).loss;
      rows[2 * r + 1] = (width == 1 ? Index{one} : largest(row, width)) == label ? 1 : 0;
    }
  }
}

template class ElementwiseLoss<float, SquaredError>;
template class ElementwiseLoss<double, SquaredError>;
template class ElementwiseLoss<float, BinaryCrossEntropy>;
template class ElementwiseLoss<double, BinaryCrossEntropy>;
template class ElementwiseLoss<float, BinaryCrossEntropyWithLogits>;
template class ElementwiseLoss<double, BinaryCrossEntropyWithLogits>;

}  // namespace pdnn::nn
