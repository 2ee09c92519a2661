#include "pdnn/reduce/local_update.hpp"

namespace pdnn::reduce {

template <class T>
nn::Hooks<T> LocalUpdate<T>::begin_step(bool keep) {
  if (!this->slice_by_slice()) return {};
  return {.grad_ready = &update_, .fused_update = keep ? nullptr : &update_};
}

template <class T>
StepSums LocalUpdate<T>::finish_step(const StepSums& own) {
  if (this->slice_by_slice()) return own;
  const auto timed = this->replica_.timer.time(&Phases::update);
  this->replica_.engine.update(this->replica_.optimizer, {0, this->model().count()});
  return own;
}

template class LocalUpdate<float>;
template class LocalUpdate<double>;

}  // namespace pdnn::reduce
