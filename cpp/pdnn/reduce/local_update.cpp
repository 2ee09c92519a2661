#include "pdnn/reduce/local_update.hpp"

namespace pdnn::reduce {

template <class T>
void LocalUpdate<T>::begin_step(Step<T>& step, bool keep) {
  if (!this->slice_by_slice()) return;
  step.final = &update_;
  if (!keep) step.updates = &update_;
}

template <class T>
StepSums LocalUpdate<T>::finish_step(const StepSums& own, Phases& phases) {
  if (this->slice_by_slice()) return own;
  Stopwatch watch;
  this->replica_.engine.update(this->replica_.optimizer, {0, this->model().count()});
  watch.lap(phases.update);
  return own;
}

template class LocalUpdate<float>;
template class LocalUpdate<double>;

}  // namespace pdnn::reduce
