#pragma once
/// CrossEntropyLoss: softmax and negative log-likelihood in one, on logits.
#include "pdnn/nn/loss.hpp"

namespace pdnn::nn {

/// A row's loss is −Σ_j t_j log softmax(y)_j; a class is a one-hot t.
template <class T>
class CrossEntropyLoss : public Loss<T> {
 public:
  using Loss<T>::Loss;
  std::string_view name() const override { return "CrossEntropyLoss"; }
  void check(const Shape& output, Index target_width) const override;
  bool classifies(Index) const override { return true; }

 protected:
  void compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
               const Tensor<T>& dy, double* rows) const override;
};

}  // namespace pdnn::nn
