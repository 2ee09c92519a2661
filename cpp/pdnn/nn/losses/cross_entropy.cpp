#include "pdnn/nn/losses/cross_entropy.hpp"

#include <array>
#include <cmath>
#include <numeric>

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
CrossEntropyLoss<T>::CrossEntropyLoss(Reduction reduction, std::vector<double> class_weights, double smoothing)
    : Loss<T>(reduction),
      class_weights_(std::move(class_weights)),
      class_factors_(class_weights_),
      smoothing_(smoothing) {
  if (smoothing == 0) return;
  const double all = std::reduce(class_weights_.begin(), class_weights_.end());
  const auto classes = static_cast<double>(class_weights_.size());
  for (double& factor : class_factors_) factor = (1 - smoothing) * factor + smoothing * all / classes;
}

template <class T>
void CrossEntropyLoss<T>::check(const Shape& output, Index target_width) const {
  require(output.rank() == 1, name(), ": outputs are ", output.text(), " a sample, expected one logit a class");
  require(target_width == 0 || target_width == output[0], name(), ": targets have ", target_width,
          " columns, the network has ", output[0], " outputs");
  this->check_classes(output, target_width);
  require(class_weights_.empty() || std::ssize(class_weights_) == output[0], name(), ": weight has ",
          class_weights_.size(), " classes, the network has ", output[0], " outputs");
}

template <class T>
void CrossEntropyLoss<T>::compute(const Member& member, const Tensor<const T>& y, const Target<T>& target, double scale,
                                  const Tensor<T>& dy, double* rows) const {
  if (smoothing_ > 0 && target.classes && class_weights_.empty()) {
    smooth_classes(member.range(y.batch), y, target.classes, scale, dy, rows);
  } else if (smoothing_ > 0 || (weighs_classes() && !target.classes)) {
    compute_smooth(member.range(y.batch), y, target, scale, dy, rows);
  } else if (!target.classes) {
    kernels::table<T>().cross_entropy_of_targets(member, y, target.values, scale, dy, rows);
  } else if (!weighs_classes()) {
    kernels::table_of_width<T>(y.width()).cross_entropy_of_classes(member, y, target.classes, scale, dy, rows);
  } else {
    const double unit = this->unit_of(scale);
    kernels::table_of_width<T>(y.width()).cross_entropy_of_classes(member, y, target.classes, scale * unit, dy, rows);
    this->weigh(member, dy, rows, unit, [&](Index r) { return class_weight(target.classes[r]); });
  }
}

/// Those of classes, moved: the target of a class is smaller by the smoothing, which all classes share.
template <class T>
void CrossEntropyLoss<T>::smooth_classes(Range mine, const Tensor<const T>& y, const std::int32_t* classes,
                                         double scale, const Tensor<T>& dy, double* rows) const {
  const Index width = y.width();
  const Matrix<T> gradients{dy.wanted() ? dy.row(mine.begin) : nullptr, mine.size(), width};
  kernels::table_of_width<T>(width).cross_entropy_of_classes(
      {}, {y.row(mine.begin), mine.size(), width}, classes + mine.begin, scale, gradients, rows + 2 * mine.begin);
  const T whole = static_cast<T>(scale * smoothing_);
  const T each = static_cast<T>(scale * smoothing_ / static_cast<double>(width));
  for (Index r = mine.begin; r < mine.end; ++r) {
    const T* const at = y.row(r);
    std::array<double, 8> sums{};  // side by side, as vectors are added
    for (Index j = 0; j < width; ++j) sums[static_cast<std::size_t>(j % 8)] += at[j];
    const double mean = std::reduce(sums.begin(), sums.end()) / static_cast<double>(width);
    if (std::isfinite(rows[2 * r])) rows[2 * r] += smoothing_ * (at[classes[r]] - mean);
    if (!dy.wanted()) continue;
    T* const to = dy.row(r);
    for (Index j = 0; j < width; ++j) to[j] -= each;
    to[classes[r]] += whole;
  }
}

/// As of targets of probabilities, row by row.
template <class T>
void CrossEntropyLoss<T>::compute_smooth(Range mine, const Tensor<const T>& y, const Target<T>& target, double scale,
                                         const Tensor<T>& dy, double* rows) const {
  const Index width = y.width();
  const double each = smoothing_ / static_cast<double>(width);
  const double unit = class_weights_.empty() ? 1 : this->unit_of_largest(class_weights_);
  std::vector<T> smooth(static_cast<std::size_t>(width));
  for (Index r = mine.begin; r < mine.end; ++r) {
    for (Index j = 0; j < width; ++j) {
      const double t = target.classes ? static_cast<double>(target.classes[r] == j) : target.values.row(r)[j];
      const double weight = class_weights_.empty() ? 1 : class_weights_[static_cast<std::size_t>(j)];
      smooth[static_cast<std::size_t>(j)] = static_cast<T>(weight / unit * ((1 - smoothing_) * t + each));
    }
    const Matrix<T> gradient{dy.wanted() ? dy.row(r) : nullptr, 1, width};
    kernels::table<T>().cross_entropy_of_targets({}, {y.row(r), 1, width}, {smooth.data(), 1, width}, scale * unit,
                                                 gradient, rows + 2 * r);
    rows[2 * r] *= unit;
    const Index wanted = target.classes ? target.classes[r] : largest(target.values.row(r), width);
    rows[2 * r + 1] = largest(y.row(r), width) == wanted ? 1 : 0;
    if (target.classes && weighs_classes()) rows[2 * r + 1] *= class_weight(target.classes[r]);
  }
}

template class CrossEntropyLoss<float>;
template class CrossEntropyLoss<double>;

}  // namespace pdnn::nn
