#include "pdnn/strategy/data_parallel.hpp"

#include <array>

namespace pdnn::strategy {

template <class T>
DataParallel<T>::DataParallel(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                              std::shared_ptr<comm::Communicator> comm, const Options& options)
    : SynchronousStrategy<T>(optimizer, std::move(comm)),
      job_(job),
      engine_(std::move(engine)),
      batch_sum_(*comm_),
      options_(options),
      reducer_(reduce::make_gradient_reducer<T>({job_, optimizer_, *engine_}, comm_, options.reducer)) {}

template <class T>
EpochSums DataParallel<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  struct Within {
    explicit Within(reduce::GradientReducer<T>& reducer) : reducer_(reducer) { reducer_.begin_epoch(); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    ~Within() { reducer_.end_epoch(); }

   private:
    reduce::GradientReducer<T>& reducer_;
  };
  const Within within(*reducer_);
  EpochSums sums = SynchronousStrategy<T>::run_epoch(source, epoch, poll);
  sums.books += engine_->take_stats();
  sums.books += reducer_->take_stats();
  return sums;
}

template <class T>
StepSums DataParallel<T>::step(const Source<T>& source, const Turn& turn) {
  const bool alone = comm_->size() == 1;
  const Rows<T> all{source, turn.batch, turn.first_row};
  const Rows<T> mine = all.part(share(all.count(), comm_->rank(), comm_->size()));
  const Rows<T> next{source, turn.next, 0};
  const Index rows = options_.sum == Sum::of_rows ? all.count() : std::max<Index>(1, mine.count());
  GradientWatch watch;
  optimizer_.begin_step();
  Step<T> own{turn.key, job_.loss.scale(rows), alone ? nullptr : &batch_sum_};
  own.next = next.part(share(next.count(), comm_->rank(), comm_->size())).indices;
  reducer_->begin_step(own, turn.next.empty() || (alone && turn.stop));  // a wish to stop is not known to all yet
  const StepSums sums{engine_->gradient(mine, own), all.count(), turn.stop};
  watch.lap(this->phases);
  const auto waited_in_replica = [&] { return options_.replica ? options_.replica->traffic().seconds : 0; };
  const double before = waited_in_replica();
  const StepSums agreed = reducer_->finish_step(sums, this->phases);
  const double waited = waited_in_replica() - before;  // in the update, for the norm of the whole gradient
  this->phases.update -= waited;
  this->phases.messages += waited;
  return agree_in_replica(agreed);
}

/// The sums of the whole replica, on each of its ranks.
template <class T>
StepSums DataParallel<T>::agree_in_replica(const StepSums& sums) {
  if (!options_.replica) return sums;
  Stopwatch watch;
  const double counts = options_.counts ? 1 : 0;
  std::array<double, 3> all{counts * sums.loss.value, counts * sums.loss.correct, sums.stop ? 1.0 : 0.0};
  options_.replica->all_reduce(std::span(all));
  watch.lap(this->phases.messages);
  return {{all[0], all[1]}, sums.rows, all[2] > 0};
}

template class DataParallel<float>;
template class DataParallel<double>;

}  // namespace pdnn::strategy
