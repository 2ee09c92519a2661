#pragma once
/// Loss: the contract of what compares outputs with targets, and how its values are reduced over rows.
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

  Target rows(Range range) const {
    if (classes) return {classes + range.begin, {}};
    return {nullptr, {values.row(range.begin), range.size(), values.cols, values.stride}};
  }
};

/// Sums over the rows of a call: of the rows' losses, and of rows whose prediction was right.
struct LossValue {
  double value = 0, correct = 0;
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

  /// What one row's dy is multiplied by so that shards of a batch of `rows` rows add up to the whole batch's gradient.
  double scale(Index rows) const {
    return reduction_ == Reduction::sum || rows == 0 ? 1.0 : 1.0 / static_cast<double>(rows);
  }
  /// The loss of a whole batch under the reduction, from the sum of its rows' losses.
  double reduce(double value, Index rows) const { return value * scale(rows); }

  /// Every member calls it, and gets the same sums. dy = scale × gradient of the rows' sum, unless it is not wanted.
  /// `rows`: two numbers a row (loss, correct), so that the sums do not depend on the team; contains the barrier it
  /// needs.
  LossValue operator()(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                       const Tensor<T>& dy, double* rows) const;

 protected:
  /// This member's rows of `rows` and dy.
  virtual void compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                       const Tensor<T>& dy, double* rows) const = 0;

 private:
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
