#pragma once
/// ScatterGather: the root holds the data and drives every step; the others compute what it sends them.
#include "pdnn/strategy/strategy.hpp"

namespace pdnn::strategy {

/// A step: the root scatters the rows of the batch, every rank makes the gradient of its rows, the root gathers the
/// gradients, adds them in the order of ranks, updates, and broadcasts the parameters. With `once` the rows travel in
/// the first step only, in the order of the source, for when every step takes the same batch. Only the root reads the
/// source.
template <class T>
class ScatterGather : public SynchronousStrategy<T> {
 public:
  /// `target_width`: values a row, 0 for classes. `capacity`: the largest batch.
  ScatterGather(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                std::shared_ptr<comm::Communicator> comm, Index target_width, Index capacity, bool once);
  StepSums step(const Source<T>& source, const Step& step) override;

 protected:
  void end_epoch(const Epoch& epoch, EpochSums& sums) override {
    if (sums.over(epoch.rows())) reduce::average_state(job_.model, *comm_);
  }

 private:
  using SynchronousStrategy<T>::model_, SynchronousStrategy<T>::optimizer_, SynchronousStrategy<T>::comm_,
      SynchronousStrategy<T>::timer_;

  bool root() const { return comm_->rank() == kRoot; }
  void scatter(const Source<T>& source, std::span<const Index> batch);
  void scatter_weights(const Source<T>& source, std::span<const Index> batch, const double* weights);
  void gather_and_add();
  StepSums step_without_weight(StepSums sums);
  StepSums tell(const StepSums& sums);

  static constexpr int kRoot = 0;
  Job<T> job_;
  std::unique_ptr<Engine<T>> engine_;
  reduce::RankSum batch_sum_;
  Index target_width_;
  bool once_, scattered_ = false;
  nn::Workspace<T> whole_;                      // the batch, at the root
  nn::Workspace<T> mine_;                       // this rank's rows of it
  AlignedArray<Index> order_;                   // 0, 1, 2, …: all of mine_
  AlignedArray<T> gathered_;                    // every rank's gradient and tail, at the root
  std::vector<Index> counts_;                   // of elements, a rank
  double weight_ = 0;                           // of the batch
  AlignedArray<double> weights_, all_weights_;  // of this rank's rows, behind them that of the batch; everyone's
};

}  // namespace pdnn::strategy
