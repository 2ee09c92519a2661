#include "pdnn/nn/losses/elementwise.hpp"

#include <cmath>
#include <numbers>

namespace pdnn::nn {

namespace {

constexpr Index kMostFactors = 512;  // each at most 2, so that their product is finite

double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }  // NaN stays

}  // namespace

Point SquaredError::at(double y, double t, Index) { return {(y - t) * (y - t), 2 * (y - t)}; }

Point AbsoluteError::at(double y, double t, Index) { return {std::abs(y - t), sign_of(y - t)}; }

Point SmoothAbsoluteError::at(double y, double t, Index) const {
  const double error = y - t, size = std::abs(error);
  if (size < beta) return {size * size / (2 * beta), error / beta};
  return {size - beta / 2, sign_of(error)};
}

Point HuberError::at(double y, double t, Index) const {
  const double error = y - t, size = std::abs(error);
  if (size <= delta) return {size * size / 2, error};
  return {delta * (size - delta / 2), delta * sign_of(error)};
}

Point PoissonLikelihood::at(double y, double t, Index) const {
  const double rest = full && t > 1 ? t * std::log(t) - t + std::log(2 * std::numbers::pi * t) / 2 : 0;
  if (!log_input) return {y - t * std::log(y + eps) + rest, 1 - t / (y + eps)};
  const double rate = std::exp(y);
  return {rate - t * y + rest, rate - t};
}

Point QuantileError::at(double y, double t, Index column) const {
  const double q = quantiles.size() == 1 ? quantiles[0] : quantiles[static_cast<std::size_t>(column)];
  if (y > t) return {(1 - q) * (y - t), 1 - q};
  return {q * (t - y), y < t ? -q : y - t};
}

Point BinaryCrossEntropy::at(double y, double t, Index) {
  const double loss = -t * std::max(std::log(y), -100.0) - (1 - t) * std::max(std::log1p(-y), -100.0);
  return {loss, (y - t) / std::max(y * (1 - y), 1e-12)};
}

Point BinaryCrossEntropyWithLogits::at(double y, double t, Index) {
  const double decay = std::exp(-std::abs(y));
  const double sigmoid = y >= 0 ? 1 / (1 + decay) : decay / (1 + decay);
  return {std::max(y, 0.0) - y * t, sigmoid - t, decay};
}

template <class T, class Function>
void ElementwiseLoss<T, Function>::check(const Shape& output, Index target_width) const {
  const Index width = output.count();
  if constexpr (std::is_same_v<Function, QuantileError>) {
    const Index quantiles = std::ssize(function_.quantiles);
    require(quantiles == 1 || quantiles == width, name(), ": ", quantiles, " quantiles for ", width,
            " outputs; expected one output each");
  }
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
    double loss = 0, excess = 0;
    for (Index j = 0; j < width; ++j) {
      const double t = !target.classes ? target.values.row(r)[j] : width == 1 ? static_cast<double>(label) : j == label;
      const Point point = function_.at(row[j], t, j);
      if constexpr (!std::is_same_v<Function, BinaryCrossEntropyWithLogits>) {
        loss += point.loss;
      } else if constexpr (std::is_same_v<T, double>) {
        loss += point.loss + std::log1p(point.excess);
      } else {  // one logarithm, of the product 1 + excess of many
        loss += point.loss;
        excess += point.excess + excess * point.excess;
        if (j + 1 == width || j % kMostFactors == kMostFactors - 1) loss += std::log1p(std::exchange(excess, 0.0));
      }
      if (dy.wanted()) dy.row(r)[j] = static_cast<T>(scale * each * point.derivative);
    }
    rows[2 * r] = each * loss;
    rows[2 * r + 1] = 0;
    if constexpr (Function::kBinary) {
      if (!target.classes) continue;
      const Index predicted = width == 1 ? Index{row[0] > Function::kBoundary} : largest(row, width);
      rows[2 * r + 1] = predicted == label ? 1 : 0;
    }
  }
}

template class ElementwiseLoss<float, SquaredError>;
template class ElementwiseLoss<double, SquaredError>;
template class ElementwiseLoss<float, AbsoluteError>;
template class ElementwiseLoss<double, AbsoluteError>;
template class ElementwiseLoss<float, SmoothAbsoluteError>;
template class ElementwiseLoss<double, SmoothAbsoluteError>;
template class ElementwiseLoss<float, HuberError>;
template class ElementwiseLoss<double, HuberError>;
template class ElementwiseLoss<float, PoissonLikelihood>;
template class ElementwiseLoss<double, PoissonLikelihood>;
template class ElementwiseLoss<float, QuantileError>;
template class ElementwiseLoss<double, QuantileError>;
template class ElementwiseLoss<float, BinaryCrossEntropy>;
template class ElementwiseLoss<double, BinaryCrossEntropy>;
template class ElementwiseLoss<float, BinaryCrossEntropyWithLogits>;
template class ElementwiseLoss<double, BinaryCrossEntropyWithLogits>;

}  // namespace pdnn::nn
