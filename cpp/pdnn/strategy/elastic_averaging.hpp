#pragma once
/// ElasticAveraging: ranks train models of their own, which now and then move towards a common center, and it to them.
#include "pdnn/strategy/model_averaging.hpp"

namespace pdnn::strategy {

/// Synchronous EASGD: Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", NeurIPS 2015, section 3.
/// Every so many steps, for the models x_i of p ranks, their center c and a moving rate β, at once:
///
///     x_i ← x_i − β/p (x_i − c)      c ← c + β/p Σ (x_i − c) = (1 − β) c + β mean(x_i)
///
/// for parameters and buffers alike. The paper takes the gradient and this move at the same x_i; here the move follows
/// the update, so that any optimizer makes it. Every rank keeps the center, with the same bits; it is what is evaluated
/// and what finish() leaves, and nothing is sent for that. An optimizer's state stays a rank's own. One rank alone is
/// serial.
template <class T>
class ElasticAveraging : public ModelAveraging<T> {
 public:
  ElasticAveraging(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                   std::shared_ptr<comm::Communicator> comm, const ElasticAveragingConfig& config);
  std::vector<std::span<T>> memory() override { return {center_.span()}; }

 protected:
  void begin_together() override;
  bool meet(bool stop) override;
  bool make_common(bool stop) override;

 private:
  using ModelAveraging<T>::comm_, ModelAveraging<T>::model_, ModelAveraging<T>::common_, ModelAveraging<T>::wishes,
      ModelAveraging<T>::hear;

  T rate_;                  // β/p
  AlignedArray<T> center_;  // parameters and buffers; empty for one rank
};

}  // namespace pdnn::strategy
