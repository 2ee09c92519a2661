#include "pdnn/strategy/elastic_averaging.hpp"

#include "pdnn/core/subnormals.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::strategy {

template <class T>
ElasticAveraging<T>::ElasticAveraging(const Job<T>& job, optim::Optimizer<T>& optimizer,
                                      std::unique_ptr<Engine<T>> engine, std::shared_ptr<comm::Communicator> comm,
                                      const ElasticAveragingConfig& config)
    : ModelAveraging<T>(job, optimizer, std::move(engine), std::move(comm), {.every = config.every}),
      rate_(static_cast<T>(config.moving_rate / comm_->size())) {
  require(config.every > 0 && config.moving_rate > 0 && config.moving_rate <= 1,
          "ElasticAveraging: every = ", config.every, ", moving_rate = ", config.moving_rate,
          "; expected at least 1, and more than 0, at most 1");
  if (comm_->size() > 1) center_ = AlignedArray<T>(common_.size() - 1);
}

template <class T>
void ElasticAveraging<T>::begin_together() {
  if (comm_->size() == 1) return;
  std::ranges::copy(model_.params->span(), center_.data());
  std::ranges::copy(model_.buffers->span(), center_.data() + model_.count());
}

template <class T>
bool ElasticAveraging<T>::meet(bool stop) {
  T *center = center_.data(), *move = common_.data();
  {
    const SubnormalsAsZero zero;
    for (const std::span<T> own : {model_.params->span(), model_.buffers->span()})
      for (T& x : own) {
        *move = rate_ * (x - *center++);
        x -= *move++;
      }
  }
  *move = wishes(stop);
  const comm::Labeled labeled({.what = "elastic average"});
  comm_->all_reduce(comm::View(common_.span()));
  const SubnormalsAsZero zero;
  kernels::table<T>().add(Part{}, center_.size(), center_.data(), common_.data(), center_.data());
  return hear(*move);
}

template <class T>
bool ElasticAveraging<T>::make_common(bool /*stop*/) {
  std::ranges::copy(center_.span(), common_.data());
  return false;
}

template class ElasticAveraging<float>;
template class ElasticAveraging<double>;

}  // namespace pdnn::strategy
