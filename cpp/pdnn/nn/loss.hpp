#pragma once
/// Loss: the contract of what compares outputs with targets, and how its values are reduced over rows.
#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "pdnn/core/errors.hpp"
#include "pdnn/core/types.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::nn {

using threads::Member;

/// What the rows should be: a class each, or values of some width (probabilities, one-hot rows, regression targets).
template <class T>
struct Target {
  const std::int32_t* classes = nullptr;
  Matrix<const T> values;
  const double* weights = nullptr;  ///< of the rows, not negative; null: each is 1

  Target rows(Range range) const {
    const double* const w = weights ? weights + range.begin : nullptr;
    if (classes) return {classes + range.begin, {}, w};
    return {nullptr, {values.row(range.begin), range.size(), values.cols, values.stride}, w};
  }
};

/// Sums over the rows of a call, each times its weight: of the rows' losses, and of rows whose prediction was right.
struct LossValue {
  double value = 0, correct = 0;

  LossValue& operator+=(const LossValue& other) {
    value += other.value;
    correct += other.correct;
    return *this;
  }
};

/// torch's, and batchmean: summed over a row's outputs, averaged over rows.
enum class Reduction { mean, sum, batchmean };

template <class T>
class Loss {
 public:
  explicit Loss(Reduction reduction) : reduction_(reduction) {}
  virtual ~Loss() = default;
  virtual std::string_view name() const = 0;
  Reduction reduction() const { return reduction_; }

  /// Throws ValueError if outputs of this shape, or targets of this kind (width 0: classes), do not fit.
  virtual void check(const Shape& output, Index target_width) const = 0;
  /// Whether a prediction can be right or wrong with such targets.
  virtual bool classifies(Index target_width) const { return target_width == 0; }

  /// What a row of this class counts beside its own weight; only asked if it is not 1 for all. A batch in which all
  /// rows count 0 makes no update.
  virtual bool weighs_classes() const { return false; }
  virtual double class_weight(std::int32_t /*label*/) const { return 1; }
  /// What the loss of a row of this class is multiplied by beside the row's own weight.
  virtual double class_factor(std::int32_t label) const { return class_weight(label); }
  /// Whether rows of such targets may count differently, and what one of them counts in a mean.
  bool weighs(const Target<T>& target) const { return target.weights || by_class(target); }
  double weight(const Target<T>& target, Index row) const {
    return own_weight(target, row) * (by_class(target) ? class_weight(target.classes[row]) : 1);
  }
  /// What the loss of a row is multiplied by.
  double factor(const Target<T>& target, Index row) const {
    return own_weight(target, row) * (by_class(target) ? class_factor(target.classes[row]) : 1);
  }
  /// What the first so many rows count together: their number, unless they are weighed.
  double weight_of_rows(const Target<T>& target, Index rows) const;

  /// What one row's dy is multiplied by so that shards of a batch of this weight add up to the whole batch's gradient;
  /// 0 in a mean of nothing.
  double scale(double weight) const {
    if (reduction_ == Reduction::sum) return 1;
    return weight == 0 ? 0 : 1 / weight;
  }
  /// The loss of a whole batch under the reduction, from the sum of its rows' losses.
  double reduce(double value, double weight) const { return value * scale(weight); }

  /// Every member calls it, and gets the same sums. dy = scale × gradient of the rows' sum, unless it is not wanted.
  /// `rows`: two numbers a row (loss, correct), so that the sums do not depend on the team; contains the barrier it
  /// needs. Of a row of weight 0 all are 0, whatever its outputs are.
  LossValue operator()(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                       const Tensor<T>& dy, double* rows) const;

 protected:
  /// Throws ValueError if targets are classes and there is one output: of a loss that has an output for each class.
  void check_classes(const Shape& output, Index target_width) const {
    require(target_width > 0 || output.count() > 1, name(), ": the network has 1 output, and targets are classes, ",
            "each of which needs one; use a network of 2 outputs, or BCEWithLogitsLoss for classes 0 and 1");
  }
  /// This member's rows of `rows` and dy, member.range(y.batch), without the rows' own weights.
  virtual void compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                       const Tensor<T>& dy, double* rows) const = 0;
  /// 1, but for a scale so large or small that a dy which waits for its weight would overflow or vanish: then a power
  /// of two that brings it near 1.
  static double unit_of(double scale) {
    if (scale == 0 || (0x1p-64 < scale && scale < 0x1p64)) return 1;
    return std::ldexp(1.0, std::min(1000, -std::ilogb(scale)));
  }
  /// That of a dy which waits for one of these weights; they alone tell it, as an evaluation's scale says nothing.
  static double unit_of_largest(std::span<const double> weights) {
    const double most = *std::max_element(weights.begin(), weights.end());
    return most > 0 ? unit_of(1 / most) : 1;
  }
  /// Multiplies both by weight(row) afterwards, and dy by 1 / unit.
  template <class Weight>
  static void weigh(const Member& member, const Tensor<T>& dy, double* rows, double unit, Weight weight) {
    const Range mine = member.range(dy.batch);
    for (Index r = mine.begin; r < mine.end; ++r) {
      const double w = weight(r);
      rows[2 * r] = w > 0 ? w * rows[2 * r] : 0;  // also of an infinite loss
      rows[2 * r + 1] *= w;
      if (!dy.wanted()) continue;
      T* const row = dy.row(r);
      for (Index j = 0; j < dy.width(); ++j) row[j] = w > 0 ? static_cast<T>(w / unit) * row[j] : T{};
    }
  }

 private:
  bool by_class(const Target<T>& target) const { return target.classes && weighs_classes(); }
  static double own_weight(const Target<T>& target, Index row) { return target.weights ? target.weights[row] : 1; }

  Reduction reduction_;
};

/// The sums over these rows, from the two numbers that a loss has left of each.
LossValue sum_of_rows(const double* rows, Range range);

/// Which output of a row is the largest (the first of equals).
template <class T>
Index largest(const T* row, Index width) {
  return std::max_element(row, row + width) - row;
}

}  // namespace pdnn::nn
