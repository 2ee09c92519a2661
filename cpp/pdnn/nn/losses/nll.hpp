#pragma once
/// NLLLoss: negative log-likelihood of log-probabilities, as LogSoftmax makes them.
#include "pdnn/nn/loss.hpp"

namespace pdnn::nn {

/// A row's loss is −y[class].
template <class T>
class NLLLoss : public Loss<T> {
 public:
  using Loss<T>::Loss;
  std::string_view name() const override { return "NLLLoss"; }
  void check(const Shape& output, Index target_width) const override;

 protected:
  void compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
               const Tensor<T>& dy, double* rows) const override;
};

}  // namespace pdnn::nn
