#pragma once
/// Averaging: ranks train models of their own, which now and then become one average.
#include "pdnn/parallel/strategy.hpp"

namespace pdnn::parallel {

/// In a step every rank makes an update of its own from its share of the rows, and nothing travels. An average weighs
/// each rank's parameters and state by the rows that it has trained on since the last one; an optimizer's memory stays
/// its own. With plain SGD and an average after every step this is data parallel; otherwise it is local SGD (Stich,
/// "Local SGD converges fast and communicates little", ICLR 2019), and a single average at the end is one-shot
/// averaging (Zinkevich, Weimer, Li, Smola, "Parallelized stochastic gradient descent", NeurIPS 2010).
template <class T>
class Averaging : public Stepwise<T> {
 public:
  /// How the weighted models are added up: by all ranks at once, or by rank 0, to which they send theirs and which
  /// sends the sum back. The same bits where an all-reduce adds in the order of ranks.
  enum class By { all_reduce, master };

  /// `every`: steps from one average to the next, counted over all of training; 0: only finish() averages.
  Averaging(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
            std::shared_ptr<comm::Communicator> comm, Index every, By by);
  StepSums step(const Source<T>& source, const Turn& turn) override;
  void enter_evaluation() override;
  void leave_evaluation() override;
  void finish() override;
  RowsApart rows_apart() const override { return apart_; }
  void set_rows_apart(const RowsApart& rows) override { apart_ = rows; }

 protected:
  void end_epoch(EpochSums& sums) override;

 private:
  using Stepwise<T>::optimizer_, Stepwise<T>::comm_;

  bool agreed() const { return apart_.all == 0 || comm_->size() == 1; }
  bool make_common(bool stop);
  bool average(bool stop);
  void swap_with_common();
  void add_by_master();

  static constexpr int kMaster = 0;
  nn::Model<T>& model_;
  Replicated<T> own_;  // this rank by itself
  Index every_;
  By by_;
  RowsApart apart_;
  bool evaluating_ = false;
  Buffer<T> common_;    // parameters, state, and whether a rank wants to stop
  Buffer<T> received_;  // one rank's, at the master
};

}  // namespace pdnn::parallel
