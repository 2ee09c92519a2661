#pragma once
/// Losses that compare each output with a target of its own: MSELoss, BCELoss, BCEWithLogitsLoss.
#include "pdnn/nn/loss.hpp"

namespace pdnn::nn {

/// One output's loss and its derivative.
struct Point {
  double loss, derivative;
};

/// (y − t)²
struct SquaredError {
  static constexpr std::string_view kName = "MSELoss";
  static constexpr bool kBinary = false;
  static Point at(double y, double t);
};
/// −t log y − (1 − t) log(1 − y), the logarithms at least −100, as torch has it
struct BinaryCrossEntropy {
  static constexpr std::string_view kName = "BCELoss";
  static constexpr bool kBinary = true;
  static Point at(double y, double t);
};
/// The same of sigmoid(y), computed without it: max(y, 0) − y t + log(1 + exp(−|y|))
struct BinaryCrossEntropyWithLogits {
  static constexpr std::string_view kName = "BCEWithLogitsLoss";
  static constexpr bool kBinary = true;
  static Point at(double y, double t);
};

/// A row's loss is the sum over its outputs, or with the mean reduction their mean. Binary losses also take classes:
/// one-hot rows for several outputs, 0 and 1 for a single one.
template <class T, class Function>
class ElementwiseLoss : public Loss<T> {
 public:
  using Loss<T>::Loss;
  std::string_view name() const override { return Function::kName; }
  void check(const Shape& output, Index target_width) const override;

 protected:
  void compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
               const Tensor<T>& dy, double* rows) const override;
};

template <class T>
using MSELoss = ElementwiseLoss<T, SquaredError>;
template <class T>
using BCELoss = ElementwiseLoss<T, BinaryCrossEntropy>;
template <class T>
using BCEWithLogitsLoss = ElementwiseLoss<T, BinaryCrossEntropyWithLogits>;

}  // namespace pdnn::nn
