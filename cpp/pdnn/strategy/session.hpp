#pragma once
/// Session: a strategy with all that it works on, from the first epoch of a training to the last.
#include "pdnn/engine/in_panels.hpp"
#include "pdnn/strategy/make_strategy.hpp"

namespace pdnn::strategy {

template <class T>
class Session {
 public:
  /// Collective. The training has a communicator to itself.
  Session(const StrategyConfig& config, Training<T> training)
      : training_(std::move(training)), strategy_(make_strategy(config, training_)) {}

  /// Strategy::run_epoch, with what it sent.
  EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
    const Index steps = (std::ssize(epoch.order) + epoch.batch_size - 1) / epoch.batch_size;
    require(epoch.rates.rows == 0 || epoch.rates.rows == steps, "rates: got ", epoch.rates.rows, " rows, expected ",
            steps, ", one a step");
    std::optional<engine::InPanels<T>> panels;
    if (strategy_->trains_whole_model()) panels.emplace(*training_.network, *training_.model, *training_.optimizer);
    const comm::Traffic before = comm::traffic_of_this_thread();
    EpochSums sums = strategy_->run_epoch(source, epoch, poll);
    sums.traffic = comm::traffic_of_this_thread() - before;
    return sums;
  }

  Strategy<T>& strategy() { return *strategy_; }
  /// A group of its own, so that an epoch that one rank has left does not disturb what the ranks do later.
  const std::shared_ptr<comm::Communicator>& comm() const { return training_.comm; }

 private:
  Training<T> training_;
  std::unique_ptr<Strategy<T>> strategy_;
};

}  // namespace pdnn::strategy
