#pragma once
/// Dropout: zeroes elements at random while training. Srivastava et al., JMLR 15, 2014 (in its inverted form).
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y = x / (1 − p) where the mask keeps an element, else 0; y = x when evaluating. The mask is a function of
/// (key, row in the global batch, column), so it is redrawn in backward instead of being kept. Where the columns are
/// cut among ranks, x is the columns from `first_column` on, of `columns` in all; 0: x has all of them.
template <class T>
class Dropout : public Layer<T> {
 public:
  explicit Dropout(double p, Index first_column = 0, Index columns = 0);

  double p() const { return p_; }

  std::string_view name() const override { return "Dropout"; }
  Traits traits() const override { return {.elementwise = true}; }
  void forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const override { apply(pass, x, y); }
  void backward(const Pass& pass, Vars<T>, Tensor<const T>, Tensor<const T>, Tensor<const T> dy, Tensor<T> dx,
                std::span<T>) const override {
    if (dx.wanted()) apply(pass, dy, dx);
  }

 private:
  void apply(const Pass& pass, Tensor<const T> from, Tensor<T> to) const;
  double p_;
  Index first_column_, columns_;
};

}  // namespace pdnn::nn
