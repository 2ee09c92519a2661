#pragma once
/// Strategy: how the ranks of a job train on the rows of an epoch, of which each does its part.
#include <functional>
#include <limits>

#include "pdnn/data/epoch_order.hpp"
#include "pdnn/engine/schedule.hpp"
#include "pdnn/reduce/gradient_reducer.hpp"
#include "pdnn/strategy/guard.hpp"

namespace pdnn::strategy {

using data::Batch;
using data::CompressionStats;
using data::Phases;
using data::Source;
using data::Step;
using data::Steps;
using engine::Engine;
using engine::Job;
using engine::Lane;
using reduce::StepSums;
using threads::Member;

/// Updates that others made between a worker's copy of the parameters and its own update, where workers do not wait.
struct Staleness {
  double sum = 0;
  std::int64_t most = 0;

  void add(std::int64_t updates) { add({static_cast<double>(updates), updates}); }
  void add(const Staleness& other) {
    sum += other.sum;
    most = std::max(most, other.most);
  }
};

struct EpochSums {
  double loss = 0, correct = 0;         ///< over these rows
  double weight = 0;                    ///< what they count in the means: their number, unless they are weighed
  Index rows = 0, steps = 0;            ///< rows of the updates that were made
  Index skipped = 0, skipped_rows = 0;  ///< updates left out because they were not finite, and their rows
  Index updates = 0;  ///< of the parameters, by all ranks; more than steps where ranks update models of their own
  double seconds = 0;
  Phases phases{};          ///< of this rank
  comm::Traffic traffic{};  ///< of this rank, the beginning and the end of the epoch included
  Staleness staleness{};
  CompressionStats compression{};  ///< of this rank
  bool stopped = false;            ///< before the rows were used up, because a rank asked for it
  Nonfinite nonfinite{};           ///< the step that ended the epoch, if it was not finite; it is undone

  /// Whether an epoch of so many rows is over: its rows are used up, or a step was not finite.
  bool over(Index all) const { return rows + skipped_rows == all || nonfinite.found(); }
};

/// What a call of run_epoch trains on: an epoch, or what is left of one.
struct Epoch {
  std::span<const Index> order;  ///< rows of the source, of the whole epoch
  Index batch_size;              ///< rows of one step, over all ranks; the last batch may be smaller
  std::uint64_t seed;
  std::int64_t first_step;  ///< steps made before
  /// Learning rates: a row a step to come, of one a group; no rows: as the optimizer has them.
  Matrix<const double> rates;
  OnNonfinite on_nonfinite = OnNonfinite::ignore;
  Index first_row = 0;  ///< of the order; those before it were trained on, in steps whose sums are these:
  EpochSums before{};
  Index most_steps = 0;                                          ///< to make before a pause; 0: no pause
  double pause_after = std::numeric_limits<double>::infinity();  ///< seconds; then rank 0 asks all ranks for a pause

  Index rows() const { return static_cast<Index>(order.size()); }
  /// To make, if no rank asks for less.
  Index steps() const {
    const Index all = (rows() - first_row + batch_size - 1) / batch_size;
    return most_steps > 0 ? std::min(all, most_steps) : all;
  }
};

/// Called between steps, every few dozen milliseconds, with this rank's sums so far; true asks all ranks to stop. What
/// it throws ends the epoch between two steps.
using Poll = std::function<bool(const EpochSums&)>;

/// The time of an epoch, and when to poll in it.
class EpochClock {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Once every few dozen milliseconds, if it is called after each step, or after several of at most left(). Reading
  /// the clock takes a tenth of a tiny step: while steps are short, it is read once in up to 64.
  bool time_to_poll(int steps = 1) {
    unread_ -= steps;
    if (unread_ > 0) return false;
    const auto now = Clock::now();
    together_ = now - read_ < kShort ? std::min(2 * together_, 64) : 1;
    unread_ = together_;
    read_ = now;
    if (now - polled_ < kPollEvery) return false;
    polled_ = now;
    return true;
  }
  /// Steps until it is read.
  int left() const { return unread_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPollEvery{40};
  static constexpr std::chrono::microseconds kShort{100};
  Clock::time_point start_ = Clock::now(), polled_ = start_, read_ = start_;
  int together_ = 1, unread_ = 1;  // calls from one reading to the next; those left
};

/// What the rows count that were trained on since all ranks last held the same model: by this rank, and by all
/// together.
struct RowsApart {
  double own = 0, all = 0;
};

template <class T>
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Trains until the order is used up, a rank stops, or all pause. Every rank calls it with the same epoch, and
  /// returns the same sums at the epoch's end. All ranks pause after the same step. A pause changes nothing: who calls
  /// again with the sums so far, which then may be a rank's own, gets the bits of an epoch without one.
  virtual EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) = 0;
  /// For evaluation the model becomes what all ranks would agree on now, where that is another one than the rank's own:
  /// then true, and leave_evaluation() must follow, after which it is the rank's own again.
  virtual bool enter_evaluation() { return false; }
  virtual void leave_evaluation() {}
  /// After the last epoch: all ranks hold the same model.
  virtual void finish() {}

  /// From now on the times of a step an epoch are kept, if ranks pass micro-batches to each other. Collective.
  virtual void record() {}
  /// What each rank of this rank's pipeline did in it; no lanes if there is no pipeline. Collective.
  virtual std::vector<Lane> timeline() const { return {}; }

  /// What was sent by a codec after the last epoch, in finish().
  virtual CompressionStats take_stats() { return {}; }

  /// What a checkpoint must keep beside a rank's model and optimizer: memory, such as what sums by a codec remember, is
  /// as long on every rank.
  virtual std::vector<std::span<T>> memory() { return {}; }
  virtual RowsApart rows_apart() const { return {}; }
  virtual void set_rows_apart(const RowsApart& /*rows*/) {}
};

/// A strategy whose ranks go step by step, all at once.
template <class T>
class SynchronousStrategy : public Strategy<T> {
 public:
  EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) override;
  virtual StepSums step(const Source<T>& source, const Step& step) = 0;
  /// Engine::steps, of a strategy whose step() would do nothing else.
  virtual bool several(const Source<T>& /*source*/, const Steps& /*steps*/, nn::LossValue& /*sums*/) { return false; }

 protected:
  SynchronousStrategy(nn::Model<T>& model, optim::Optimizer<T>& optimizer, std::shared_ptr<comm::Communicator> comm)
      : model_(model), optimizer_(optimizer), comm_(std::move(comm)) {}
  /// What follows an update where ranks train apart; may ask all to stop. Of an update that was left out come only the
  /// rows, of one that ends the training none.
  virtual void after_update(const Step& /*step*/, StepSums& /*sums*/) {}
  /// Whether that changes the model after this step.
  virtual bool meets_after(const Step& /*step*/) const { return false; }

  /// Called by step() after the update: sums.bad if it is time to look, and this rank's parameters are not finite.
  void look(StepSums& sums);
  /// Waits for those that share the parameters, before and after some are put back: by this rank, its own.
  virtual void meet_to_undo() const {}
  virtual Range own_elements() const { return {0, model_.count()}; }
  /// The first element that is not finite on any rank of a step, from what each has found.
  virtual Index agree_on_first(Index element);
  /// Whether this rank asks all ranks to end from the next step on, if a callback of its own asks to stop, or the epoch
  /// to pause.
  virtual bool wants_to_end(bool stop, bool pause) { return stop || pause; }
  /// After the last step: at the end of the epoch makes the sums, and the buffers that each rank may have learned from
  /// its own rows, the same on all ranks.
  virtual void end_epoch(const Epoch& epoch, EpochSums& sums) = 0;

  nn::Model<T>& model_;
  optim::Optimizer<T>& optimizer_;
  std::shared_ptr<comm::Communicator> comm_;
  data::PhaseTimer timer_;

 private:
  /// All that a step changes, as far as this rank copies it.
  typename Guard<T>::Arrays changed();
  /// Of the parameters and what the optimizer remembers of them; Nonfinite::kUnknown if all are finite.
  Index first_bad() const;

  Guard<T> guard_;
  bool looks_ = false;  // after this step
};

/// The first of the ranks' steps that were not finite. Collective.
Nonfinite first_of(comm::Communicator& comm, Nonfinite own);

}  // namespace pdnn::strategy
