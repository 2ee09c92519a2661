#pragma once
/// Stepper: training steps one at a time, on rows that the caller has in hand.
#include "pdnn/engine/engine.hpp"

namespace pdnn::engine {

/// Works on the parameters where users see them, by the calling thread; calls from several threads, of any steppers of
/// a model or an optimizer, take turns. What it is made of is shared with whoever else has it.
template <class T>
class Stepper {
 public:
  /// For samples of this shape. Throws ValueError if they do not fit the model.
  Stepper(std::shared_ptr<nn::Model<T>> model, std::shared_ptr<nn::Loss<T>> loss,
          std::shared_ptr<optim::Optimizer<T>> optimizer, const Shape& sample);

  const Shape& sample() const { return sample_; }
  const Shape& output() const { return output_; }
  const nn::Loss<T>& loss() const { return *loss_; }

  /// One update by the gradient of these rows' loss, which is in the model's gradients afterwards. Without `training`
  /// layers compute as in evaluation. Returns the loss under its reduction. If all rows have weight 0, the loss and the
  /// gradient are 0, and there is no update.
  double step(Tensor<const T> x, const nn::Target<T>& target, bool training, Rng key, nn::BatchSum* batch_sum);

 private:
  std::shared_ptr<nn::Model<T>> model_;
  std::shared_ptr<nn::Loss<T>> loss_;
  std::shared_ptr<optim::Optimizer<T>> optimizer_;
  Shape sample_, output_;
  std::shared_ptr<const nn::Network<T>> network_;
  UpdateInBackward<T> update_;
  std::unique_ptr<nn::Workspace<T>> workspace_;  // for the most rows so far
};

}  // namespace pdnn::engine
