#pragma once
/// SGD: stochastic gradient descent with momentum, Nesterov's included, and L2, as torch writes it.
#include "pdnn/optim/optimizer.hpp"

namespace pdnn::optim {

template <class T>
class SGD : public Optimizer<T> {
 public:
  SGD(Index count, double momentum, bool nesterov)
      : Optimizer<T>(count, momentum != 0 ? 1 : 0), momentum_(momentum), nesterov_(nesterov) {}
  std::string_view name() const override { return "SGD"; }
  std::unique_ptr<Optimizer<T>> like(Index count) const override {
    return std::make_unique<SGD>(count, momentum_, nesterov_);
  }

 protected:
  kernels::Update<T> rule(const Segment& segment, Index offset, T* w) override;

 private:
  double momentum_;
  bool nesterov_;
};

}  // namespace pdnn::optim
