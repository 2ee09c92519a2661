#include "pdnn/strategy/model_averaging.hpp"

#include "pdnn/core/subnormals.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::strategy {

template <class T>
ModelAveraging<T>::ModelAveraging(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                                  std::shared_ptr<comm::Communicator> comm, const ModelAveragingConfig& config)
    : SynchronousStrategy<T>(job.model, optimizer, std::move(comm)),
      common_(comm_->size() > 1 ? model_.count() + model_.buffers->size() + 1 : 0),
      job_(job),
      engine_(std::move(engine)),
      local_({job_, optimizer_, *engine_, timer_}),
      config_(config),
      received_(config.by_master && comm_->rank() == kMaster ? common_.size() : 0) {
  require(comm_->size() == 1 || !job.network.traits().synchronized,
          "averaging: a layer with sync=True sums over the ranks in every step, but these train apart; ",
          "use data parallel, or sync=False");
  if (comm_->size() == 1 || !config_.compression) return;
  require(!config_.by_master, "ModelAveraging: a codec is of sums that all ranks make; use by=\"all_reduce\"");
  sum_ = reduce::make_compressed_sum<T>(comm_, *config_.compression, {0, model_.count()}, reduce::matrices_of(job));
  last_ = AlignedArray<T>(model_.count());
}

/// Ranks need not stop after the same step: each does so when it hears that one wishes it. If an average is still ahead
/// in the epoch, they meet in it at once: it tells all of them, and is made anew when rows are counted. Otherwise rows
/// are left over, which tells all of them. For a pause they wait until an average, or a step that all of them know.
template <class T>
EpochSums ModelAveraging<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  ++epochs_;
  pause_asked_ = paused_ = false;
  if (agreed()) begin_together();  // also with what a callback has written into the model
  last_average_ = config_.every > 0 ? (epoch.first_step + epoch.steps()) / config_.every * config_.every - 1 : -1;
  EpochSums sums = SynchronousStrategy<T>::run_epoch(source, epoch, poll);
  if (!left_over_) return sums;
  sums.steps = (sums.updates + sums.skipped) / comm_->size();
  if (epoch.on_nonfinite == OnNonfinite::stop) sums.nonfinite = first_of(*comm_, sums.nonfinite);
  apart_.all = apart_.own;
  comm_->all_reduce(comm::View(std::span(&apart_.all, 1)));
  if (config_.every > 0 || sums.nonfinite.found()) finish();  // an error may end the training before its last average
  return sums;
}

template <class T>
bool ModelAveraging<T>::wants_to_end(bool stop, bool pause) {
  if (stop) comm_->notify(comm::Notice::stop, epochs_);
  pause_asked_ = pause_asked_ || pause;
  const bool stopping = comm_->notified(comm::Notice::stop) == epochs_;
  if (comm_->size() == 1) paused_ = pause_asked_ && !stopping;
  return stopping || paused_;
}

template <class T>
StepSums ModelAveraging<T>::step(const Source<T>& source, const Step& step) {
  Step own = step.shard({comm_->rank(), comm_->size()});
  own.global_rows = own.count();
  const double weight = source.weight(job_.loss, own.rows);
  step_weight_ = source.weight(job_.loss, step.rows);
  own.scale = job_.loss.scale(weight);
  StepSums sums{{}, own.global_rows};
  // A rank whose rows do not count makes no update.
  if (weight > 0)
    sums = local_.step(source, own, nullptr, own.next.empty() || step.stop);
  else
    local_.step_without_weight();
  sums.weight = weight;
  sums.stop = step.stop && !step.next.empty();  // after the last step it needs no wish
  this->look(sums);
  return sums;
}

template <class T>
bool ModelAveraging<T>::meets_after(const Step& step) const {
  return comm_->size() > 1 && config_.every > 0 && (step.number + 1) % config_.every == 0;
}

template <class T>
void ModelAveraging<T>::after_update(const Step& step, StepSums& sums) {
  apart_.own += sums.weight;
  apart_.all += step_weight_;
  const auto timed = timer_.time(&Phases::agreement);
  const bool early = comm_->size() > 1 && sums.stop && step.number <= last_average_;
  if (early || meets_after(step)) sums.stop = meet(sums.stop) || paused_;
}

template <class T>
bool ModelAveraging<T>::make_common(bool stop) {
  const Index count = model_.count(), whole = common_.size();
  std::copy_n(model_.params->data(), count, common_.data());
  std::copy_n(model_.buffers->data(), model_.buffers->size(), common_.data() + count);
  {
    const SubnormalsAsZero zero;
    kernels::table<T>().scale(Part{}, whole - 1, static_cast<T>(weight()), common_.data());
  }
  common_[whole - 1] = wishes(stop);
  const comm::Labeled labeled({.what = "average"});
  if (config_.by_master) {
    add_by_master();
  } else {
    comm_->all_reduce(comm::View(common_.span()));
  }
  const SubnormalsAsZero zero;
  kernels::table<T>().scale(Part{}, whole - 1, T{1}, common_.data());  // a sum may be one
  return hear(common_[whole - 1]);
}

template <class T>
void ModelAveraging<T>::add_by_master() {
  if (comm_->rank() != kMaster) {
    comm_->send(comm::ConstView(common_.span()), kMaster);
    comm_->recv(comm::View(common_.span()), kMaster);
    return;
  }
  for (int rank = 1; rank < comm_->size(); ++rank) {
    comm_->recv(comm::View(received_.span()), rank);
    kernels::table<T>().add(Part{}, common_.size(), common_.data(), received_.data(), common_.data());
  }
  for (int rank = 1; rank < comm_->size(); ++rank) comm_->send(comm::ConstView(common_.span()), rank);
}

template <class T>
void ModelAveraging<T>::swap_with_common() {
  const auto params = slice(common_.span(), 0, model_.count());
  const auto buffers = slice(common_.span(), model_.count(), model_.buffers->size());
  std::swap_ranges(params.begin(), params.end(), model_.params->data());
  std::swap_ranges(buffers.begin(), buffers.end(), model_.buffers->data());
}

template <class T>
void ModelAveraging<T>::begin_together() {
  if (sum_) std::ranges::copy(model_.params->span(), last_.data());
}

template <class T>
bool ModelAveraging<T>::average(bool stop) {
  if (sum_ ? average_by_codec(stop) : make_common(stop)) return true;
  swap_with_common();
  apart_ = {};
  return false;
}

/// As make_common(); what all ranks have moved is added to the last average.
template <class T>
bool ModelAveraging<T>::average_by_codec(bool stop) {
  const Index count = model_.count();
  const std::span<T> moved = slice(common_.span(), 0, count);
  const std::span<T> rest = slice(common_.span(), count, common_.size() - count);  // the buffers, and the wishes
  const T w = static_cast<T>(weight());
  {
    const SubnormalsAsZero zero;
    std::transform(model_.params->data(), model_.params->data() + count, last_.data(), moved.data(),
                   [w](T own, T last) { return w * (own - last); });
    std::transform(model_.buffers->data(), model_.buffers->data() + model_.buffers->size(), rest.data(),
                   [w](T own) { return w * own; });
  }
  rest.back() = wishes(stop);
  (*sum_)(common_.span());
  comm_->all_reduce(comm::View(rest));
  const SubnormalsAsZero zero;
  kernels::table<T>().add(Part{}, count, last_.data(), moved.data(), last_.data());
  std::copy_n(last_.data(), count, moved.data());
  return hear(rest.back());
}

template <class T>
std::vector<std::span<T>> ModelAveraging<T>::memory() {
  if (!sum_) return {};
  std::vector<std::span<T>> all = sum_->memory();
  all.push_back(last_.span());
  return all;
}

template <class T>
bool ModelAveraging<T>::enter_evaluation() {
  if (agreed()) return false;
  make_common(false);
  swap_with_common();
  return true;
}

template <class T>
void ModelAveraging<T>::finish() {
  if (!agreed()) average(false);
}

template <class T>
void ModelAveraging<T>::end_epoch(const Epoch& epoch, EpochSums& sums) {
  std::array<double, 7> all{sums.loss,
                            sums.correct,
                            static_cast<double>(sums.rows),
                            static_cast<double>(sums.updates),
                            static_cast<double>(sums.skipped),
                            static_cast<double>(sums.skipped_rows),
                            sums.weight};
  comm_->all_reduce(comm::View(std::span(all)));
  const bool all_rows = static_cast<Index>(all[2] + all[5]) == epoch.rows();
  left_over_ = !all_rows && !paused(sums);
  sums.stopped = left_over_;
  const Index made = (sums.steps - epoch.before.steps) * epoch.batch_size;
  const bool to_the_end = epoch.first_row + made >= epoch.rows();  // also without the rows of a rank that has died
  if (!all_rows && !left_over_ && !to_the_end) return;
  sums.loss = all[0];
  sums.correct = all[1];
  sums.rows = static_cast<Index>(all[2]);
  sums.updates = static_cast<Index>(all[3]);
  sums.skipped = static_cast<Index>(all[4]);
  sums.skipped_rows = static_cast<Index>(all[5]);
  sums.weight = all[6];
  sums.compression += take_stats();
}

/// Whether all ranks end after the same step, and none of them to stop.
template <class T>
bool ModelAveraging<T>::paused(const EpochSums& sums) {
  std::array<Index, 3> most{sums.steps, -sums.steps, Index{sums.stopped && !paused_}};
  comm_->all_reduce(comm::View(std::span(most)), comm::Op::max);
  return most[0] == -most[1] && most[2] == 0;
}

template class ModelAveraging<float>;
template class ModelAveraging<double>;

}  // namespace pdnn::strategy
