#pragma once
/// Hogwild: workers update one shared vector of parameters whenever they have a gradient, without waiting.
#include "pdnn/strategy/shared_vector.hpp"
#include "pdnn/strategy/strategy.hpp"

namespace pdnn::strategy {

/// Recht, Ré, Wright, Niu, "Hogwild!: a lock-free approach to parallelizing stochastic gradient descent", NeurIPS 2011.
/// A worker takes the next batch of the epoch, makes its gradient on a copy of the parameters of its own, and updates
/// the shared vector tile by tile: load, apply its own optimizer, store. The tiles as it stored them are its next copy.
/// Where two store the same tile at once, the later one's stays. Workers are threads of this process, and so many of
/// every rank: all ranks of a machine update the same vector. One worker alone is serial, bit for bit.
///
/// A worker's buffers (running statistics) are its own; when an epoch ends, all get the mean, weighed by the rows that
/// each trained on. The caller's thread is a worker too, with the caller's own model and optimizer.
template <class T>
class Hogwild : public Strategy<T> {
 public:
  /// `threads`: workers of this process; `capacity`: the rows of a batch. Collective.
  Hogwild(const Job<T>& job, optim::Optimizer<T>& optimizer, std::shared_ptr<comm::Communicator> comm, int threads,
          Index capacity);
  ~Hogwild() override;
  EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) override;

 private:
  class Worker;

  void begin_epoch(const EpochSums& before);
  void end_epoch(EpochSums& sums);
  void average_state(double rows);

  Job<T> job_;
  optim::Optimizer<T>& optimizer_;
  std::shared_ptr<comm::Communicator> comm_;
  Index capacity_;
  SharedVector<T> shared_;
  threads::Team team_;
  std::vector<std::unique_ptr<Worker>> workers_;  // the first is the caller's thread
  std::size_t left_ = 0;                          // the hash of the caller's optimizer state after an epoch
};

}  // namespace pdnn::strategy
