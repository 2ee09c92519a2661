#pragma once
/// RMSprop, plain, with momentum or centered, as torch writes it.
#include "pdnn/optim/optimizer.hpp"

namespace pdnn::optim {

/// Numbers of RMSprop beside a group's.
struct RMSpropNumbers {
  double alpha, eps, momentum;
  bool centered;
};

template <class T>
class RMSprop : public Optimizer<T> {
 public:
  RMSprop(Index count, const RMSpropNumbers& numbers)
      : Optimizer<T>(count, 1 + (numbers.momentum != 0 ? 1 : 0) + (numbers.centered ? 1 : 0)), numbers_(numbers) {}
  std::string_view name() const override { return "RMSprop"; }
  std::unique_ptr<Optimizer<T>> like(Index count) const override { return std::make_unique<RMSprop>(count, numbers_); }

 protected:
  kernels::Update<T> rule(const Segment& segment, Index offset, T* w) override;

 private:
  RMSpropNumbers numbers_;
};

}  // namespace pdnn::optim
