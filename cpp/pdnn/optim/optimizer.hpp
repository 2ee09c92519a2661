#pragma once
/// Optimizer: a rule with its state; params ← f(params, grads), on any slice of the flat buffer, by any thread, each
/// element once a step.
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pdnn/core/errors.hpp"
#include "pdnn/core/memory.hpp"
#include "pdnn/kernels/update.hpp"
#include "pdnn/optim/clip.hpp"
#include "pdnn/threads/mutex.hpp"

namespace pdnn::optim {

/// A parameter group's stretch of the flat buffer, from the end of the one before; it may cut inside a layer.
struct Segment {
  Index end;
  double lr, weight_decay;
  bool frozen;
  std::size_t group = 0;  ///< whose learning rates a schedule changes together

  /// Whether parameters of both are updated by the same numbers.
  bool like(const Segment& other) const {
    return lr == other.lr && weight_decay == other.weight_decay && frozen == other.frozen && group == other.group;
  }
};

template <class T>
class Optimizer {
 public:
  Optimizer(Index count, const kernels::Rule& rule);
  std::string_view name() const;
  /// One with the same rule for so many parameters, which has made no step.
  std::unique_ptr<Optimizer> like(Index count) const { return std::make_unique<Optimizer>(count, rule_); }
  /// Another one of the same groups, clipping, steps and state, which goes its own way from here on.
  std::unique_ptr<Optimizer> clone() const;
  /// Takes over groups, steps and state of one with the same rule and as many parameters.
  void follow(const Optimizer& other);

  /// Throws ValueError unless the segments cover exactly the parameters, in order.
  void set_segments(std::vector<Segment> segments);
  const std::vector<Segment>& segments() const { return segments_; }
  /// The learning rates of a schedule, one a group, from here on. Throws ValueError if a group has none.
  void set_rates(std::span<const double> rates);
  /// Has whole gradients clipped before they are applied; null: has not.
  void set_clip(std::unique_ptr<Clip<T>> clip) { clip_ = std::move(clip); }
  Clip<T>* clip() { return clip_.get(); }
  /// Once a step, before any apply().
  void begin_step();
  /// The same rule for a slice, as a kernel can apply it (w points at its first element); none if groups differ in it.
  std::optional<kernels::Update<T>> update(Range slice, T* w);
  /// Whether that is another one from step to step.
  bool by_step() const { return by_step_; }
  /// Updates parameters [offset, offset + n) from their gradients; w and g point at element `offset`.
  void apply(Index offset, T* w, const T* g, Index n);

  Index count() const { return count_; }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// The rule's state: arrays as long as the parameters (SGD: velocity).
  std::vector<AlignedArray<T>>& state() { return state_; }
  /// Multiplies all of it, as where velocities contain a learning rate that changes.
  void scale_state(double factor);
  /// A hash of steps and state, which tells whether they have changed.
  std::size_t state_hash() const;
  /// The first of all gradients that is not finite and whose parameter is not frozen; their number if there is none.
  Index first_nonfinite(std::span<const T> grads) const;
  /// Σ w² of each group's parameters, w all of them, in an order that depends on the segments alone.
  std::vector<double> squares(std::span<const T> w) const;

  threads::Mutex turn;  ///< held by a step of its own, while other threads may ask for one

 private:
  /// The update of a segment's parameters from `offset` on, the first of them at w.
  kernels::Update<T> update_of(std::size_t segment, Index offset, T* w);
  void take_numbers();

  kernels::Rule rule_;
  kernels::States keeps_;
  Index count_;
  std::vector<Segment> segments_;
  std::vector<kernels::RuleStep> numbers_;  // of this step, a segment
  bool by_step_;                            // whether they change from step to step
  std::vector<AlignedArray<T>> state_;
  std::unique_ptr<Clip<T>> clip_;
  std::int64_t steps_ = 0;
};

}  // namespace pdnn::optim
