#include "pdnn/reduce/local_update.hpp"

namespace pdnn::reduce {

template <class T>
nn::Hooks<T> LocalUpdate<T>::begin_step(bool keep) {
  if (!this->slice_by_slice()) return {.leaf_sums = this->leaf_sums_};
  return {.grad_ready = &update_, .fused_update = keep ? nullptr : &update_, .leaf_sums = this->leaf_sums_};
}

template <class T>
StepSums LocalUpdate<T>::finish_step(const StepSums& own) {
  StepSums sums = own;
  if (!this->leaf_sums_.empty()) sums.loss = engine::sum_of_leaves(this->leaf_sums_);
  if (this->slice_by_slice()) return sums;
  const auto timed = this->replica_.timer.time(&Phases::update);
  this->replica_.engine.update(this->replica_.optimizer, {0, this->model().count()});
  return sums;
}

template class LocalUpdate<float>;
template class LocalUpdate<double>;

}  // namespace pdnn::reduce
