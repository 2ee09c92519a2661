#include "pdnn/parallel/strategy.hpp"

#include <array>

namespace pdnn::parallel {

template <class T>
EpochSums Stepwise<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  EpochClock clock;
  const Index count = static_cast<Index>(epoch.order.size());
  EpochSums sums;
  phases = {};
  bool stop = false;
  for (Index at = 0; at < count && !sums.stopped; at += epoch.batch_size) {
    const Index rows = std::min(epoch.batch_size, count - at);
    const std::int64_t number = epoch.first_step + sums.steps;
    comm_->at_step(number);
    if (epoch.rates.rows > 0)
      optimizer_.set_rates({epoch.rates.row(sums.steps), static_cast<std::size_t>(epoch.rates.cols)});
    const StepSums own =
        step(source, {.batch = slice(epoch.order, at, rows),
                      .next = slice(epoch.order, at + rows, std::min(epoch.batch_size, count - at - rows)),
                      .key = step_key(epoch.seed, number),
                      .stop = stop,
                      .number = number});
    sums.loss += own.loss.value;
    sums.correct += own.loss.correct;
    sums.rows += own.rows;
    if (own.rows > 0) ++sums.updates;
    ++sums.steps;
    sums.stopped = own.stop;
    if (!clock.time_to_poll()) continue;
    sums.seconds = clock.seconds();
    stop = poll(sums);
  }
  Stopwatch watch;
  end_epoch(sums);
  watch.lap(phases.agreement);
  sums.seconds = clock.seconds();
  sums.phases = phases;
  return sums;
}

template <class T>
Replicated<T>::Replicated(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                          std::shared_ptr<comm::Communicator> comm, const Options& options)
    : Stepwise<T>(optimizer, std::move(comm)),
      job_(job),
      engine_(std::move(engine)),
      batch_sum_(*comm_),
      options_(options),
      agreement_(make_agreement<T>({job_, optimizer_, *engine_}, comm_, options.agreement)) {}

template <class T>
EpochSums Replicated<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  struct Within {
    explicit Within(Agreement<T>& agreement) : agreement_(agreement) { agreement_.begin_epoch(); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    ~Within() { agreement_.end_epoch(); }

   private:
    Agreement<T>& agreement_;
  };
  const Within within(*agreement_);
  EpochSums sums = Stepwise<T>::run_epoch(source, epoch, poll);
  sums.books += engine_->take_books();
  sums.books += agreement_->take_books();
  return sums;
}

template <class T>
StepSums Replicated<T>::step(const Source<T>& source, const Turn& turn) {
  const bool alone = comm_->size() == 1;
  const Rows<T> all{source, turn.batch, turn.first_row};
  const Rows<T> mine = all.part(share(all.count(), comm_->rank(), comm_->size()));
  const Rows<T> next{source, turn.next, 0};
  const Index rows = options_.sum == Sum::of_rows ? all.count() : std::max<Index>(1, mine.count());
  GradientWatch watch;
  optimizer_.begin_step();
  Step<T> own{turn.key, job_.loss.scale(rows), alone ? nullptr : &batch_sum_};
  own.next = next.part(share(next.count(), comm_->rank(), comm_->size())).indices;
  agreement_->begin_step(own, turn.next.empty() || (alone && turn.stop));  // a wish to stop is not known to all yet
  const StepSums sums{engine_->gradient(mine, own), all.count(), turn.stop};
  watch.lap(this->phases);
  const auto waited_in_replica = [&] { return options_.replica ? options_.replica->traffic().seconds : 0; };
  const double before = waited_in_replica();
  const StepSums agreed = agreement_->finish_step(sums, this->phases);
  const double waited = waited_in_replica() - before;  // in the update, for the norm of the whole gradient
  this->phases.update -= waited;
  this->phases.messages += waited;
  return agree_in_replica(agreed);
}

/// The sums of the whole replica, on each of its ranks.
template <class T>
StepSums Replicated<T>::agree_in_replica(const StepSums& sums) {
  if (!options_.replica) return sums;
  Stopwatch watch;
  const double counts = options_.counts ? 1 : 0;
  std::array<double, 3> all{counts * sums.loss.value, counts * sums.loss.correct, sums.stop ? 1.0 : 0.0};
  options_.replica->all_reduce(std::span(all));
  watch.lap(this->phases.messages);
  return {{all[0], all[1]}, sums.rows, all[2] > 0};
}

template class Stepwise<float>;
template class Stepwise<double>;
template class Replicated<float>;
template class Replicated<double>;

}  // namespace pdnn::parallel
