#include "pdnn/strategy/data_parallel.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace pdnn::strategy {

template <class T>
DataParallel<T>::DataParallel(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                              std::shared_ptr<comm::Communicator> comm, const Options& options)
    : SynchronousStrategy<T>(job.model, optimizer, std::move(comm)),
      job_(job),
      engine_(std::move(engine)),
      batch_sum_(*comm_),
      options_(options),
      reducer_(reduce::make_gradient_reducer<T>({job_, optimizer_, *engine_, timer_, options.leaves}, comm_,
                                                options.reducer)) {
  require(options.leaves == 0 || options.sum == Sum::of_rows,
          "ddp: a sum of the ranks' means depends on the ranks, reproducible sums do not; use the mean over all rows");
}

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
  sums.compression += engine_->take_stats();
  sums.compression += reducer_->take_stats();
  return sums;
}

template <class T>
StepSums DataParallel<T>::step(const Source<T>& source, const Step& step) {
  const bool alone = comm_->size() == 1;
  Step own = step;
  if (options_.leaves > 0) own.leaves = {options_.leaves, step.global_rows, {0, options_.leaves}};
  if (!alone) own = own.shard({comm_->rank(), comm_->size()});
  const double weight = source.weight(job_.loss, step.rows);
  own.scale = job_.loss.scale(options_.sum == Sum::of_rows ? weight : source.weight(job_.loss, own.rows));
  const bool keep = step.next.empty() || (alone && step.stop);  // a wish to stop is not known to all yet
  StepSums sums{{}, step.global_rows};  // of rows that do not count, which no rank makes a gradient of
  if (weight > 0)
    sums = reducer_->step(source, own, alone ? nullptr : &batch_sum_, keep);
  else
    reducer_->step_without_weight();
  sums.weight = weight;
  this->look(sums);
  return options_.replica ? agree_in_replica(sums) : sums;
}

template <class T>
bool DataParallel<T>::several(const Source<T>& source, const Steps& steps, nn::LossValue& sums) {
  const bool plain = comm_->size() == 1 && options_.leaves == 0 && !options_.replica && !source.weighs(job_.loss);
  return plain && engine_->steps(source, steps, optimizer_, sums);
}

/// The sums of the whole replica, on each of its ranks.
template <class T>
StepSums DataParallel<T>::agree_in_replica(const StepSums& sums) {
  const auto timed = timer_.time(&Phases::messages);
  const double counts = options_.counts ? 1 : 0;
  std::array<double, 3> all{counts * sums.loss.value, counts * sums.loss.correct, sums.stop ? 1.0 : 0.0};
  if (sums.bad) all[2] = std::numeric_limits<double>::quiet_NaN();
  options_.replica->all_reduce(std::span(all));
  return {{all[0], all[1]}, sums.rows, all[2] > 0, std::isnan(all[2]), sums.weight};
}

template <class T>
Index DataParallel<T>::agree_on_first(Index element) {
  if (options_.place && element != Nonfinite::kLoss && element != Nonfinite::kUnknown)
    element = options_.place(element);
  if (options_.replica) options_.replica->all_reduce(std::span(&element, 1), comm::Op::min);
  return SynchronousStrategy<T>::agree_on_first(element);
}

template class DataParallel<float>;
template class DataParallel<double>;

}  // namespace pdnn::strategy
