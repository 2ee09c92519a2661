#include "pdnn/strategy/strategy.hpp"

#include <array>
#include <cmath>

namespace pdnn::strategy {

template <class T>
EpochSums SynchronousStrategy<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  EpochClock clock;
  const Rng keys = data::step_keys(epoch.seed);
  const Index end = std::min(epoch.rows(), epoch.first_row + epoch.steps() * epoch.batch_size);
  const Index share = (epoch.batch_size + comm_->size() - 1) / comm_->size();
  guard_.restart(epoch.on_nonfinite == OnNonfinite::ignore ? 0 : window_length(optimizer_.state().size(), share));
  EpochSums sums = epoch.before, begun;
  sums.stopped = false;
  std::int64_t updates = 0;  // of the optimizer, when the window began
  RowsApart apart;           // then
  timer_.take();
  bool stop = false;
  // What a step does is its gradient, but for what is timed as another phase: reading a clock takes as long as a small
  // network's layer.
  const auto gradient = timer_.time(&Phases::gradient);
  while (!sums.stopped) {
    const Index made = sums.steps - epoch.before.steps, at = epoch.first_row + made * epoch.batch_size;
    if (at >= end) break;
    const Index rows = std::min(epoch.batch_size, epoch.rows() - at);
    const std::int64_t number = epoch.first_step + made;
    comm_->at_step(number);
    if (epoch.rates.rows > 0) optimizer_.set_rates({epoch.rates.row(made), static_cast<std::size_t>(epoch.rates.cols)});
    if (guard_.begins(sums.steps)) {
      const auto timed = timer_.time(&Phases::update);
      guard_.begin(sums.steps, changed());
      begun = sums;
      apart = this->rows_apart();
      updates = optimizer_.steps();
    }
    const Step step{.rows = slice(epoch.order, at, rows),
                    .next = slice(epoch.order, at + rows, std::min(epoch.batch_size, epoch.rows() - at - rows)),
                    .keys = keys,
                    .global_rows = rows,
                    .number = number,
                    .stop = stop};
    // As many steps as nobody looks at one by one may be one call.
    const Index most = std::min({Index{clock.left()}, guard_.left(sums.steps), (end - at) / epoch.batch_size});
    nn::LossValue loss{sums.loss, sums.correct};
    StepSums own;
    int count = 1;
    const auto looks = [&] { return guard_ && (guard_.ends(sums.steps + count - 1) || at + count * rows >= end); };
    const auto& rates = epoch.rates;
    const Steps steps{.rows = slice(epoch.order, at, most * rows),
                      .batch = rows,
                      .rates = {rates.row(made), rates.rows > 0 ? most : 0, rates.cols, rates.stride}};
    if (most > 1 && !stop && several(source, steps, loss)) {
      count = static_cast<int>(most);
      own = {{}, most * rows, false, false, static_cast<double>(most * rows)};
      looks_ = looks();
      look(own);
    } else {
      looks_ = looks() || (guard_ && meets_after(step));
      own = this->step(source, step);
      loss += own.loss;
    }
    if (guard_ && own.stop && !looks_) own.bad = agree_on_first(first_bad()) != Nonfinite::kUnknown;

    const bool bad = guard_ && (own.bad || !std::isfinite(loss.value)), alone = count == 1 && guard_.alone(sums.steps);
    if (bad) {
      const bool stops = epoch.on_nonfinite == OnNonfinite::stop;
      Index element = Nonfinite::kLoss;
      if (alone && std::isfinite(own.loss.value)) element = agree_on_first(first_bad());
      meet_to_undo();
      guard_.undo(sums.steps + count - 1, changed());
      meet_to_undo();
      optimizer_.set_steps(updates);
      this->set_rows_apart(apart);
      if (!alone) {
        sums = begun;
        continue;
      }
      if (stops) sums.nonfinite = {number, element};
      own = {{}, stops ? 0 : own.rows, stops && wants_to_end(true, false), false, stops ? 0 : own.weight};
      loss = {sums.loss, sums.correct};
    }
    after_update(step, own);
    if (meets_after(step)) guard_.end(sums.steps + 1);
    sums.loss = loss.value;
    sums.correct = loss.correct;
    if (!bad) sums.weight += own.weight;
    (bad ? sums.skipped_rows : sums.rows) += own.rows;
    if (own.weight > 0) (bad ? sums.skipped : sums.updates) += count;
    sums.steps += count;
    sums.stopped = own.stop;
    if (!clock.time_to_poll(count)) continue;
    const auto not_timed = timer_.time(nullptr);
    comm_->check_others();
    sums.seconds = epoch.before.seconds + clock.seconds();
    const bool asked = poll(sums);
    stop = wants_to_end(asked, comm_->rank() == 0 && clock.seconds() >= epoch.pause_after);
  }
  {
    const auto timed = timer_.time(&Phases::agreement);
    end_epoch(epoch, sums);
  }
  sums.seconds = epoch.before.seconds + clock.seconds();
  sums.phases += timer_.take();
  if (sums.nonfinite.found()) --sums.steps;  // it was undone
  return sums;
}

template <class T>
void SynchronousStrategy<T>::look(StepSums& sums) {
  if (!looks_) return;
  const auto timed = timer_.time(&Phases::update);
  if (first_bad() != Nonfinite::kUnknown) sums.bad = true;
}

template <class T>
Index SynchronousStrategy<T>::agree_on_first(Index element) {
  comm_->all_reduce(std::span(&element, 1), comm::Op::min);
  return element;
}

template <class T>
Index SynchronousStrategy<T>::first_bad() const {
  Index first = Nonfinite::kUnknown;
  const auto look_through = [&](std::span<const T> array) {
    const Index at = first_nonfinite(array);
    if (at < std::ssize(array)) first = std::min(first, at);
  };
  look_through(model_.params->span());
  for (const AlignedArray<T>& array : optimizer_.state()) look_through(array.span());
  return first;
}

template <class T>
typename Guard<T>::Arrays SynchronousStrategy<T>::changed() {
  const Range own = own_elements();
  typename Guard<T>::Arrays arrays{slice(model_.params->span(), own.begin, own.size()), model_.buffers->span()};
  for (AlignedArray<T>& array : optimizer_.state()) arrays.push_back(slice(array.span(), own.begin, own.size()));
  for (const std::span<T> array : this->memory()) arrays.push_back(array);
  return arrays;
}

Nonfinite first_of(comm::Communicator& comm, Nonfinite own) {
  AlignedArray<std::int64_t> steps(comm.size()), elements(comm.size());
  comm.all_gather(std::span<const std::int64_t>(&own.step, 1), steps.span());
  comm.all_gather(std::span<const std::int64_t>(&own.element, 1), elements.span());
  const Index rank = std::ranges::min_element(steps.span()) - steps.span().begin();
  return {steps[rank], elements[rank], static_cast<int>(rank)};
}

template class SynchronousStrategy<float>;
template class SynchronousStrategy<double>;

}  // namespace pdnn::strategy
