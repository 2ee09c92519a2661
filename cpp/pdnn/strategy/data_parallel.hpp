#pragma once
/// DataParallel: every rank has the whole model and a share of the rows of each batch.
#include "pdnn/strategy/strategy.hpp"

namespace pdnn::strategy {

/// Every rank holds the whole network and makes the gradient of its share of the rows; then they agree on an update.
template <class T>
class DataParallel : public SynchronousStrategy<T> {
 public:
  /// What ranks add up: their parts of the batch's loss, or each the mean over its own rows.
  enum class Sum { of_rows, of_means };
  struct Options {
    reduce::ReducerOptions reducer{};
    Sum sum = Sum::of_rows;
    Index leaves = 0;                               ///< of a batch, as DataParallelConfig has them
    std::shared_ptr<comm::Communicator> replica{};  ///< ranks that hold this replica together; null: this one alone
    bool counts = true;                             ///< the loss is this rank's to report, among those
    std::function<Index(Index)> place{};            ///< of a parameter in the replica; null: all are here
  };

  /// `comm` are the ranks with the same part of the network, which share the rows of a batch.
  DataParallel(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
               std::shared_ptr<comm::Communicator> comm, const Options& options = {});
  EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) override;
  StepSums step(const Source<T>& source, const Step& step) override;
  bool several(const Source<T>& source, const Steps& steps, nn::LossValue& sums) override;
  std::vector<std::span<T>> memory() override { return reducer_->memory(); }

 protected:
  /// By leaves all ranks have learned the same.
  void end_epoch(const Epoch& epoch, EpochSums& sums) override {
    if (options_.leaves == 0 && sums.over(epoch.rows())) reduce::average_state(job_.model, *comm_);
  }
  void meet_to_undo() const override { reducer_->meet(); }
  Range own_elements() const override { return reducer_->own_elements(); }
  Index agree_on_first(Index element) override;

 private:
  using SynchronousStrategy<T>::optimizer_, SynchronousStrategy<T>::comm_, SynchronousStrategy<T>::timer_;

  StepSums agree_in_replica(const StepSums& sums);

  Job<T> job_;
  std::unique_ptr<Engine<T>> engine_;
  reduce::RankSum batch_sum_;
  Options options_;
  std::unique_ptr<reduce::GradientReducer<T>> reducer_;
};

}  // namespace pdnn::strategy
