#pragma once
/// Averaging: ranks train models of their own, which at intervals become one average.
#include "pdnn/reduce/compressed_sum.hpp"
#include "pdnn/reduce/local_update.hpp"
#include "pdnn/strategy/config.hpp"
#include "pdnn/strategy/strategy.hpp"

namespace pdnn::strategy {

/// In a step every rank makes an update of its own from its share of the rows, and nothing travels. An average weighs
/// each rank's parameters and buffers by what the rows count that it has trained on since the last one; an optimizer's
/// state stays its own. With plain SGD and an average after every step this is data parallel; otherwise it is local SGD
/// (Stich, "Local SGD converges fast and communicates little", ICLR 2019), and a single average at the end is one-shot
/// averaging (Zinkevich, Weimer, Li, Smola, "Parallelized stochastic gradient descent", NeurIPS 2010).
///
/// With a codec a rank sends what its model has moved since the last average, times its weight; the new average is the
/// last one and the sum of that (Basu, Data, Karakus, Diggavi, "Qsparse-local-SGD: distributed SGD with quantization,
/// sparsification, and local computations", NeurIPS 2019). State travels as it is, and so do averages that are only
/// looked at: what they lost would be fed back into training.
template <class T>
class ModelAveraging : public SynchronousStrategy<T> {
 public:
  /// The models are added up by all ranks at once, or by rank 0, to which they send theirs and which sends the sum
  /// back: the same bits where an all-reduce adds in the order of ranks.
  ModelAveraging(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                 std::shared_ptr<comm::Communicator> comm, const ModelAveragingConfig& config);
  EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) override;
  StepSums step(const Source<T>& source, const Step& step) override;
  bool enter_evaluation() override;
  void leave_evaluation() override { swap_with_common(); }
  void finish() override;
  CompressionStats take_stats() override { return sum_ ? sum_->take_stats() : CompressionStats{}; }
  std::vector<std::span<T>> memory() override;
  RowsApart rows_apart() const override { return apart_; }
  void set_rows_apart(const RowsApart& rows) override { apart_ = rows; }

 protected:
  using SynchronousStrategy<T>::model_, SynchronousStrategy<T>::optimizer_, SynchronousStrategy<T>::comm_,
      SynchronousStrategy<T>::timer_;

  bool wants_to_end(bool stop, bool pause) override;
  void after_update(const Step& step, StepSums& sums) override;
  bool meets_after(const Step& step) const override;
  Index agree_on_first(Index element) override { return element; }  // each has updates of its own
  void end_epoch(const Epoch& epoch, EpochSums& sums) override;
  /// The wishes of this rank as a number that ranks add up; and from the sum, whether a rank wants to stop.
  T wishes(bool stop) const { return stop ? kStop : pause_asked_ ? T{1} : T{0}; }
  bool hear(T sum) {
    paused_ = sum > 0 && sum < kStop;
    return sum >= kStop;
  }
  /// Before steps that begin with the same model on all ranks.
  virtual void begin_together();
  /// What several ranks do every so many steps; returns whether a rank wants to stop.
  virtual bool meet(bool stop) { return average(stop); }
  /// What all ranks would agree on now, the average of their models, in common_; returns whether a rank wants to stop.
  virtual bool make_common(bool stop);

  AlignedArray<T> common_;  // parameters, buffers, and the ranks' wishes

 private:
  bool paused(const EpochSums& sums);
  bool agreed() const { return apart_.all == 0 || comm_->size() == 1; }
  /// True if a rank wants to stop: then each keeps its own model, as ranks may have made different numbers of steps.
  bool average(bool stop);
  bool average_by_codec(bool stop);
  /// If there was nothing to train on, all models are alike.
  double weight() const { return apart_.all > 0 ? apart_.own / apart_.all : comm_->rank() == 0 ? 1.0 : 0.0; }
  void swap_with_common();
  void add_by_master();

  static constexpr int kMaster = 0;
  static constexpr T kStop = 4096;  // more than the wishes for a pause, of which there is one
  Job<T> job_;
  std::unique_ptr<Engine<T>> engine_;
  reduce::LocalUpdate<T> local_;  // this rank by itself
  ModelAveragingConfig config_;
  RowsApart apart_;
  double step_weight_ = 0;                         // of the rows of all ranks in this step
  std::int64_t epochs_ = 0, last_average_ = -1;    // calls for epochs so far; the last step of this one with an average
  bool pause_asked_ = false, paused_ = false;      // by this rank; all ranks, in the last average
  bool left_over_ = false;                         // rows of this epoch, because ranks stopped, each after its own step
  AlignedArray<T> received_;                       // one rank's, at the master
  std::unique_ptr<reduce::CompressedSum<T>> sum_;  // of what the parameters have moved, by a codec
  AlignedArray<T> last_;                           // the parameters of the last average, or those begun with
};

}  // namespace pdnn::strategy
