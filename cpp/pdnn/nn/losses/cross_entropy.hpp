#pragma once
/// CrossEntropyLoss: softmax and negative log-likelihood in one, on logits.
#include <vector>

#include "pdnn/nn/loss.hpp"

namespace pdnn::nn {

/// A row's loss is −Σ_j w_j ((1 − s) t_j + s / classes) log softmax(y)_j; a class is a one-hot t. The weights w of
/// classes are 1 and the smoothing s is 0 unless they are given. A row of class c counts w_c in a mean, and in a sum
/// what multiplies its logarithms, its factor (1 − s) w_c + s times the mean of w; one of probabilities 1.
template <class T>
class CrossEntropyLoss : public Loss<T> {
 public:
  explicit CrossEntropyLoss(Reduction reduction, std::vector<double> class_weights = {}, double smoothing = 0);
  std::string_view name() const override { return "CrossEntropyLoss"; }
  bool weighs_classes() const override { return !class_weights_.empty(); }
  double class_weight(std::int32_t label) const override {
    return this->reduction() == Reduction::sum ? class_factor(label) : class_weights_[static_cast<std::size_t>(label)];
  }
  double class_factor(std::int32_t label) const override { return class_factors_[static_cast<std::size_t>(label)]; }
  void check(const Shape& output, Index target_width) const override;
  bool classifies(Index) const override { return true; }

 protected:
  void compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
               const Tensor<T>& dy, double* rows) const override;

 private:
  void smooth_classes(Range mine, const Tensor<const T>& y, const std::int32_t* classes, double scale,
                      const Tensor<T>& dy, double* rows) const;
  void compute_smooth(Range mine, const Tensor<const T>& y, const Target<T>& target, double scale, const Tensor<T>& dy,
                      double* rows) const;

  std::vector<double> class_weights_, class_factors_;  // empty: all are 1
  double smoothing_;
};

}  // namespace pdnn::nn
