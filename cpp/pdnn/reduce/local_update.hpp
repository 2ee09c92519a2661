#pragma once
/// LocalUpdate: the reducer of a single replica, which has nothing to reduce.
#include "pdnn/reduce/gradient_reducer.hpp"

namespace pdnn::reduce {

/// One replica: updates are made inside the backward pass.
template <class T>
class LocalUpdate : public GradientReducer<T> {
 public:
  explicit LocalUpdate(const Replica<T>& replica)
      : GradientReducer<T>(replica), update_(replica.job.model, replica.optimizer) {}
  nn::Hooks<T> begin_step(bool keep) override;
  StepSums finish_step(const StepSums& own) override;

 private:
  engine::UpdateInBackward<T> update_;
};

}  // namespace pdnn::reduce
