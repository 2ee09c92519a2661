#include "pdnn/strategy/strategy.hpp"

namespace pdnn::strategy {

template <class T>
EpochSums SynchronousStrategy<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
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
                      .key = data::step_key(epoch.seed, number),
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

template class SynchronousStrategy<float>;
template class SynchronousStrategy<double>;

}  // namespace pdnn::strategy
