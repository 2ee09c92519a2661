#pragma once
/// Losses that compare each output with a target of its own: squares, absolute values, counts, quantiles, binary
/// cross-entropy.
#include <utility>
#include <vector>

#include "pdnn/nn/loss.hpp"

namespace pdnn::nn {

/// One output's loss and its derivative; log(1 + excess) is also part of the loss.
struct Point {
  double loss, derivative, excess = 0;
};

/// (y − t)²
struct SquaredError {
  static constexpr std::string_view kName = "MSELoss";
  static constexpr bool kBinary = false;
  static Point at(double y, double t, Index column);
};
/// |y − t|
struct AbsoluteError {
  static constexpr std::string_view kName = "L1Loss";
  static constexpr bool kBinary = false;
  static Point at(double y, double t, Index column);
};
/// (y − t)² / (2 beta) where |y − t| < beta, elsewhere |y − t| − beta / 2
struct SmoothAbsoluteError {
  static constexpr std::string_view kName = "SmoothL1Loss";
  static constexpr bool kBinary = false;
  double beta = 1;
  Point at(double y, double t, Index column) const;
};
/// (y − t)² / 2 where |y − t| ≤ delta, elsewhere delta (|y − t| − delta / 2)
struct HuberError {
  static constexpr std::string_view kName = "HuberLoss";
  static constexpr bool kBinary = false;
  double delta = 1;
  Point at(double y, double t, Index column) const;
};
/// e^y − t y, or of a rate y itself y − t log(y + eps); in full with Stirling's log t! ≈ t log t − t + log(2 π t) / 2
/// for t > 1
struct PoissonLikelihood {
  static constexpr std::string_view kName = "PoissonNLLLoss";
  static constexpr bool kBinary = false;
  bool log_input = true, full = false;
  double eps = 1e-8;
  Point at(double y, double t, Index column) const;
};
/// max(q (t − y), (q − 1) (t − y)), q being that of the column, or the only one
struct QuantileError {
  static constexpr std::string_view kName = "QuantileLoss";
  static constexpr bool kBinary = false;
  std::vector<double> quantiles{0.5};
  Point at(double y, double t, Index column) const;
};
/// −t log y − (1 − t) log(1 − y), the logarithms at least −100, as torch has it
struct BinaryCrossEntropy {
  static constexpr std::string_view kName = "BCELoss";
  static constexpr bool kBinary = true;
  static constexpr double kBoundary = 0.5;
  static Point at(double y, double t, Index column);
};
/// The same of sigmoid(y), computed without it: max(y, 0) − y t + log(1 + exp(−|y|))
struct BinaryCrossEntropyWithLogits {
  static constexpr std::string_view kName = "BCEWithLogitsLoss";
  static constexpr bool kBinary = true;
  static constexpr double kBoundary = 0;
  static Point at(double y, double t, Index column);
};

/// A row's loss is the sum over its outputs, or with the mean reduction their mean. Binary losses also take classes:
/// one-hot rows for several outputs, 0 and 1 for a single one, which is of class 1 beyond kBoundary, where both cost
/// the same.
template <class T, class Function>
class ElementwiseLoss : public Loss<T> {
 public:
  explicit ElementwiseLoss(Reduction reduction, Function function = {})
      : Loss<T>(reduction), function_(std::move(function)) {}
  std::string_view name() const override { return Function::kName; }
  void check(const Shape& output, Index target_width) const override;

 protected:
  void compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
               const Tensor<T>& dy, double* rows) const override;

 private:
  Function function_;
};

template <class T>
using MSELoss = ElementwiseLoss<T, SquaredError>;
template <class T>
using L1Loss = ElementwiseLoss<T, AbsoluteError>;
template <class T>
using SmoothL1Loss = ElementwiseLoss<T, SmoothAbsoluteError>;
template <class T>
using HuberLoss = ElementwiseLoss<T, HuberError>;
template <class T>
using PoissonNLLLoss = ElementwiseLoss<T, PoissonLikelihood>;
template <class T>
using QuantileLoss = ElementwiseLoss<T, QuantileError>;
template <class T>
using BCELoss = ElementwiseLoss<T, BinaryCrossEntropy>;
template <class T>
using BCEWithLogitsLoss = ElementwiseLoss<T, BinaryCrossEntropyWithLogits>;

}  // namespace pdnn::nn
