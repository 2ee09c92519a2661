#pragma once
/// One helper that checks any layer or loss against finite differences, in double, and any team against one thread.
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "pdnn/core/memory.hpp"
#include "pdnn/nn/layer.hpp"
#include "pdnn/nn/loss.hpp"

namespace pdnn::tests {

using nn::Layer;
using nn::Member;
using Vector = std::vector<double>;

/// ‖a − b‖ / (‖a‖ + ‖b‖); 0 if both vanish.
inline double relative_difference(const Vector& a, const Vector& b) {
  double difference = 0, norm_a = 0, norm_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm_a += a[i] * a[i];
    norm_b += b[i] * b[i];
  }
  const double norms = std::sqrt(norm_a) + std::sqrt(norm_b);
  return norms == 0 ? 0 : std::sqrt(difference) / norms;
}

/// Numbers with absolute values in [0.1, 1): away from kinks.
inline Vector draw(Rng rng, Index count) {
  Vector values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (0.1 + 0.9 * rng.uniform(2 * i)) * (rng.uniform(2 * i + 1) < 0.5 ? -1 : 1);
  return values;
}

/// d function / d values, by central differences.
inline Vector differences(Vector& values, const std::function<double()>& function) {
  constexpr double h = 1e-5;
  Vector derivatives(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    values[i] = value + h;
    const double above = function();
    values[i] = value - h;
    const double below = function();
    values[i] = value;
    derivatives[i] = (above - below) / (2 * h);
  }
  return derivatives;
}

/// A layer bound to a shape, with random parameters and a random batch, and all that its passes leave behind.
class LayerRun {
 public:
  LayerRun(const std::shared_ptr<const Layer<double>>& layer, const Shape& in, Index rows, bool training = true)
      : layer_(layer->bind(in) ? layer->bind(in) : layer),
        in_(in),
        out_(layer_->output_shape(in)),
        rows_(rows),
        training_(training),
        params(draw(Rng(1), total(layer_->parameters()))),
        buffers(draw(Rng(5), total(layer_->buffers()))),
        x(draw(Rng(2), rows * in.count())),
        y(static_cast<std::size_t>(rows * out_.count())),
        dy(draw(Rng(3), rows * out_.count())),
        dx(x.size()),
        grads(params.size()) {
    const nn::Sizes sizes = layer_->sizes(in);
    saved_ = AlignedArray<double>(sizes.saved + rows * sizes.saved_row);
    scratch_ = AlignedArray<double>(sizes.scratch + rows * sizes.scratch_row);
    for (double& value : buffers) value = std::abs(value);  // variances
  }

  void forward(const Member& member = {}) {
    layer_->forward(pass(member), vars(), {x.data(), rows_, in_}, {y.data(), rows_, out_});
    member.barrier();
  }
  void backward(const Member& member = {}, bool add = false, bool dx_wanted = true, nn::GradReady* final = nullptr) {
    nn::Pass own = pass(member);
    own.add = add;
    own.final = final;
    layer_->backward(own, vars(), {x.data(), rows_, in_}, {y.data(), rows_, out_}, {dy.data(), rows_, out_},
                     {dx_wanted ? dx.data() : nullptr, rows_, in_}, grads);
    member.barrier();
  }

  /// From now on passes see these leaves of a batch, all of whose rows are here.
  void cut(const Leaves& leaves) {
    leaves_.emplace(leaves);
    more_nodes.resize((leaves_->nodes().size() - 1) * params.size());
    leaf_room_ = AlignedArray<double>(layer_->sizes(in_).leaf_room(leaves.count));
  }

  /// The largest relative difference between what backward says and finite differences of Σ y ∘ dy.
  double gradient_error() {
    forward();
    backward();
    const auto weighted_sum = [&] {
      forward();
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const Vector analytic_dx = dx, analytic_grads = grads;
    return std::max(relative_difference(analytic_dx, differences(x, weighted_sum)),
                    relative_difference(analytic_grads, differences(params, weighted_sum)));
  }

  /// What a training pass leaves for the buffers, taken into it.
  void commit() { layer_->commit(pass({}), saved_.span(), rows_, buffers); }

  nn::Vars<double> vars() {
    return {params, buffers, saved_.span(), scratch_.span(), nullptr, leaf_room_.span(), more_nodes};
  }
  nn::Traits traits() const { return layer_->traits(); }

 private:
  nn::Pass pass(const Member& member) const {
    nn::Pass own{.team = &member, .training = training_, .key = Rng(4)};
    if (leaves_) own.first_row = leaves_->leaves().rows().begin, own.leaves = &*leaves_;
    return own;
  }

  std::shared_ptr<const Layer<double>> layer_;
  Shape in_, out_;
  Index rows_;
  bool training_;
  AlignedArray<double> saved_, scratch_, leaf_room_;
  std::optional<LeafNodes> leaves_;

 public:
  Vector params, buffers, x, y, dy, dx, grads, more_nodes;
};

}  // namespace pdnn::tests
