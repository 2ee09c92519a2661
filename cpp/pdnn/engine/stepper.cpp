#include "pdnn/engine/stepper.hpp"

#include <mutex>

#include "pdnn/core/subnormals.hpp"

namespace pdnn::engine {

template <class T>
Stepper<T>::Stepper(std::shared_ptr<nn::Model<T>> model, std::shared_ptr<nn::Loss<T>> loss,
                    std::shared_ptr<optim::Optimizer<T>> optimizer, const Shape& sample)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      optimizer_(std::move(optimizer)),
      sample_(sample),
      output_(model_->network().output_shape(sample)),
      network_(model_->bound(sample)),
      update_(*model_, *optimizer_) {}

template <class T>
double Stepper<T>::step(Tensor<const T> x, const nn::Target<T>& target, bool training, Rng key,
                        nn::BatchSum* batch_sum) {
  const std::lock_guard of_model(model_->steps);
  const std::lock_guard of_optimizer(optimizer_->turn);
  const double weight = loss_->weight_of_rows(target, x.batch);
  const bool counts = weight != 0 || x.batch == 0;
  if (!counts && !(batch_sum && network_->traits().synchronized)) {  // others may wait for its sums
    std::ranges::fill(model_->grads->span(), T{});
    return 0;
  }
  if (!workspace_ || workspace_->capacity() < x.batch)
    workspace_ = std::make_unique<nn::Workspace<T>>(*network_, sample_, x.batch);
  const SubnormalsAsZero zero;
  const Member alone;
  const nn::Pass pass{
      .team = &alone, .training = training, .key = key, .final = counts ? &update_ : nullptr, .batch_sum = batch_sum};
  const std::int64_t steps = optimizer_->steps();
  if (counts) optimizer_->begin_step();
  nn::LossValue sums;
  try {
    sums = nn::run_pass<T>(*network_, *model_, *workspace_, *loss_, pass, x, target, loss_->scale(weight),
                           model_->grads->span());
  } catch (...) {  // a layer refuses these samples
    optimizer_->set_steps(steps);
    throw;
  }
  if (training) model_->commit(*network_, pass, *workspace_, x.batch);
  return loss_->reduce(sums.value, weight);
}

template class Stepper<float>;
template class Stepper<double>;

}  // namespace pdnn::engine
