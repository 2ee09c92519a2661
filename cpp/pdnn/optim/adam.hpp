#pragma once
/// Adam, its weight decay added to the gradient or, as AdamW, decoupled from it; as torch writes both.
#include "pdnn/optim/optimizer.hpp"

namespace pdnn::optim {

/// Numbers of Adam beside a group's.
struct AdamNumbers {
  double beta1, beta2, eps;
  bool decoupled;
};

template <class T>
class Adam : public Optimizer<T> {
 public:
  Adam(Index count, const AdamNumbers& numbers) : Optimizer<T>(count, 2), numbers_(numbers) {}
  std::string_view name() const override { return numbers_.decoupled ? "AdamW" : "Adam"; }
  std::unique_ptr<Optimizer<T>> like(Index count) const override { return std::make_unique<Adam>(count, numbers_); }

 protected:
  kernels::Update<T> rule(const Segment& segment, Index offset, T* w) override;

 private:
  AdamNumbers numbers_;
};

}  // namespace pdnn::optim
