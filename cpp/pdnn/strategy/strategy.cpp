#include "pdnn/strategy/strategy.hpp"

namespace pdnn::strategy {

template <class T>
EpochSums SynchronousStrategy<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  EpochClock clock;
  const Index count = static_cast<Index>(epoch.order.size());
  EpochSums sums;
  timer_.take();
  bool stop = false;
  for (Index at = 0; at < count && !sums.stopped; at += epoch.batch_size) {
    const Index rows = std::min(epoch.batch_size, count - at);
    const std::int64_t number = epoch.first_step + sums.steps;
    comm_->at_step(number);
    if (epoch.rates.rows > 0)
      optimizer_.set_rates({epoch.rates.row(sums.steps), static_cast<std::size_t>(epoch.rates.cols)});
    const StepSums own =
        step(source, {.rows = slice(epoch.order, at, rows),
                      .next = slice(epoch.order, at + rows, std::min(epoch.batch_size, count - at - rows)),
                      .key = data::step_key(epoch.seed, number),
                      .global_rows = rows,
                      .number = number,
                      .stop = stop});
    sums.loss += own.loss.value;
    sums.correct += own.loss.correct;
    sums.rows += own.rows;
    if (own.rows > 0) ++sums.updates;
    ++sums.steps;
    sums.stopped = own.stop;
    if (!clock.time_to_poll()) continue;
    comm_->check_others();
    sums.seconds = clock.seconds();
    stop = wants_to_stop(poll(sums));
  }
  {
    const auto timed = timer_.time(&Phases::agreement);
    end_epoch(sums);
  }
  sums.seconds = clock.seconds();
  sums.phases = timer_.take();
  return sums;
}

template class SynchronousStrategy<float>;
template class SynchronousStrategy<double>;

}  // namespace pdnn::strategy
