#include "pdnn/strategy/hogwild.hpp"

#include <cmath>

#include "pdnn/kernels/table.hpp"

namespace pdnn::strategy {

namespace {

constexpr Index kTile = 4096;  // elements that are loaded, updated and stored while they are in the nearest cache

}  // namespace

/// One of those who share the parameters: a model and an optimizer of its own, and what it did in this epoch.
template <class T>
class Hogwild<T>::Worker {
 public:
  /// The caller's own.
  Worker(const Job<T>& job, optim::Optimizer<T>& optimizer, Index capacity)
      : job_(job), optimizer_(optimizer), engine_(job_, 1, capacity) {}
  /// Like another, with memory of its own.
  Worker(const Worker& first, Index capacity)
      : own_model_(first.job_.model.clone()),
        own_optimizer_(first.optimizer_.clone()),
        job_{*own_model_, first.job_.network, first.job_.loss, first.job_.sample},
        optimizer_(*own_optimizer_),
        engine_(job_, 1, capacity) {}

  /// Takes over what the caller's worker holds, its optimizer's state only if that was `changed`, and forgets the last
  /// epoch.
  void begin_epoch(const Worker& first, bool changed) {
    sums = {};
    without_weight = 0;
    copied_at_ = 0;
    buffers_.resize(job_.model.buffers->span().size());
    if (this == &first) return;
    std::ranges::copy(first.job_.model.params->span(), job_.model.params->data());
    std::ranges::copy(first.job_.model.buffers->span(), job_.model.buffers->data());
    changed ? optimizer_.follow(first.optimizer_) : optimizer_.set_segments(first.optimizer_.segments());
  }

  /// A gradient and an update from these rows. Before the update it is known whether they are finite.
  void step(const Source<T>& source, std::span<const Index> rows, Rng keys, std::span<const double> rates,
            OnNonfinite on_nonfinite, std::int64_t number, SharedVector<T>& shared) {
    if (!rates.empty()) optimizer_.set_rates(rates);
    const Index count = static_cast<Index>(rows.size());
    const double weight = source.weight(job_.loss, rows);
    ++sums.steps;
    if (weight == 0) {
      std::ranges::fill(job_.model.grads->span(), T{});
      ++without_weight;
      sums.rows += count;
      return;
    }
    std::ranges::copy(job_.model.buffers->span(), buffers_.begin());
    nn::LossValue loss;
    {
      const auto timed = timer_.time(&Phases::gradient);
      const Step step{
          .rows = rows, .keys = keys, .global_rows = count, .scale = job_.loss.scale(weight), .number = number};
      loss = engine_.gradient(source, step, {});
    }
    const auto timed = timer_.time(&Phases::update);
    const std::span<T> grads = slice(job_.model.grads->span(), 0, job_.model.count());
    Index bad = std::ssize(grads);
    if (on_nonfinite != OnNonfinite::ignore)
      bad = std::isfinite(loss.value) ? optimizer_.first_nonfinite(grads) : Nonfinite::kLoss;
    if (bad < std::ssize(grads)) {
      std::ranges::copy(buffers_, job_.model.buffers->data());
      if (on_nonfinite == OnNonfinite::stop) {
        sums.nonfinite = {number, bad};
      } else {
        ++sums.skipped;
        sums.skipped_rows += count;
      }
      return;
    }
    update(grads, shared);
    sums.loss += loss.value;
    sums.correct += loss.correct;
    sums.weight += weight;
    sums.rows += count;
  }

  nn::Model<T>& model() { return job_.model; }
  const nn::Model<T>& model() const { return job_.model; }

  Phases take_phases() { return timer_.take(); }

  EpochSums sums;
  Index without_weight = 0;  // steps whose rows do not count, so that they made no update

 private:
  void update(std::span<T> grads, SharedVector<T>& shared) {
    optimizer_.begin_step();
    if (optimizer_.clip()) (*optimizer_.clip())(threads::Member(), grads);
    const Index ticket = shared.counters().updates.fetch_add(1, std::memory_order_relaxed);
    sums.staleness.add(ticket - copied_at_);
    copied_at_ = ticket + 1;
    T* const params = job_.model.params->data();
    for (Index at = 0; at < job_.model.count(); at += kTile) {
      const Range tile{at, std::min(at + kTile, job_.model.count())};
      shared.load(tile, params + at);
      optimizer_.apply(at, params + at, grads.data() + at, tile.size());
      shared.store(tile, params + at);
    }
  }

  std::unique_ptr<nn::Model<T>> own_model_;
  std::unique_ptr<optim::Optimizer<T>> own_optimizer_;
  Job<T> job_;
  optim::Optimizer<T>& optimizer_;
  engine::TeamEngine<T> engine_;
  data::PhaseTimer timer_;
  std::vector<T> buffers_;  // before a step
  Index copied_at_ = 0;     // updates that had begun, this worker's last one included, when it made its copy
};

template <class T>
Hogwild<T>::Hogwild(const Job<T>& job, optim::Optimizer<T>& optimizer, std::shared_ptr<comm::Communicator> comm,
                    int threads, Index capacity)
    : job_(job),
      optimizer_(optimizer),
      comm_(std::move(comm)),
      capacity_(capacity),
      shared_(*comm_, job.model.count()),
      team_(threads) {
  require(comm_->size() * threads == 1 || !job.network.traits().synchronized,
          "Hogwild: a layer with sync=True sums over a batch that all share, but here every worker has its own; ",
          "use data parallel, or sync=False");
  require(!job.network.traits().communicates,
          "Hogwild: a layer that is dealt out to ranks needs them at the same passes, but here every worker goes ",
          "ahead by itself; use a team");
}

template <class T>
Hogwild<T>::~Hogwild() = default;

template <class T>
EpochSums Hogwild<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  begin_epoch(epoch.before);
  const Index batches = epoch.steps();
  auto& [taken, updates, stop] = shared_.counters();
  EpochClock clock;
  const Rng keys = data::step_keys(epoch.seed);
  const auto work = [&](Worker& worker, bool caller) {
    while (!stop.load(std::memory_order_relaxed)) {
      const Index batch = taken.fetch_add(1, std::memory_order_relaxed);
      if (batch >= batches) return;
      const std::int64_t number = epoch.first_step + batch;
      const Index at = epoch.first_row + batch * epoch.batch_size;
      std::span<const double> rates;
      if (epoch.rates.rows > 0) rates = {epoch.rates.row(batch), static_cast<std::size_t>(epoch.rates.cols)};
      if (caller) comm_->at_step(number);
      worker.step(source, slice(epoch.order, at, std::min(epoch.batch_size, epoch.rows() - at)), keys, rates,
                  epoch.on_nonfinite, number, shared_);
      if (worker.sums.nonfinite.step == number) stop.store(true, std::memory_order_relaxed);
      if (!caller || !clock.time_to_poll()) continue;
      comm_->check_others();
      EpochSums so_far = worker.sums;
      so_far.rows += epoch.before.rows;
      so_far.steps = epoch.before.steps + updates.load(std::memory_order_relaxed);
      so_far.seconds = epoch.before.seconds + clock.seconds();
      if (poll(so_far) || clock.seconds() >= epoch.pause_after) stop.store(true, std::memory_order_relaxed);
    }
  };
  try {
    team_.run([&](const threads::Member& member) {
      try {
        work(*workers_[static_cast<std::size_t>(member.index)], member.first());
      } catch (...) {
        stop.store(true, std::memory_order_relaxed);
        throw;
      }
    });
  } catch (...) {  // what the others have done is not lost
    shared_.load({0, job_.model.count()}, job_.model.params->data());
    throw;
  }
  data::Stopwatch watch;
  comm_->barrier();
  EpochSums sums = epoch.before;
  end_epoch(sums);
  watch.lap(sums.phases.agreement);
  sums.seconds += clock.seconds();
  return sums;
}

/// The vector becomes rank 0's parameters, and all workers begin with them; its first worker goes on with the sums.
template <class T>
void Hogwild<T>::begin_epoch(const EpochSums& before) {
  if (workers_.empty()) {  // now, because an optimizer's state lies as parameters do while an epoch lasts
    workers_.push_back(std::make_unique<Worker>(job_, optimizer_, capacity_));
    for (int i = 1; i < team_.size(); ++i) workers_.push_back(std::make_unique<Worker>(*workers_[0], capacity_));
  }
  const Range all{0, job_.model.count()};
  if (comm_->rank() == 0) {
    auto& [taken, updates, stop] = shared_.counters();
    taken.store(0, std::memory_order_relaxed);
    updates.store(0, std::memory_order_relaxed);
    stop.store(false, std::memory_order_relaxed);
    shared_.store(all, job_.model.params->data());
  }
  comm_->barrier();
  if (comm_->rank() != 0) shared_.load(all, job_.model.params->data());
  const bool changed = optimizer_.state_hash() != left_;
  for (const auto& worker : workers_) worker->begin_epoch(*workers_[0], changed);
  if (comm_->rank() != 0) return;
  workers_[0]->sums.loss = before.loss;
  workers_[0]->sums.correct = before.correct;
  workers_[0]->sums.weight = before.weight;
}

/// All workers of all ranks are done. No rank begins another epoch before all have read the vector: the sums wait for
/// everybody.
template <class T>
void Hogwild<T>::end_epoch(EpochSums& sums) {
  shared_.load({0, job_.model.count()}, job_.model.params->data());
  const Index updates = shared_.counters().updates.load(std::memory_order_relaxed);
  sums.stopped = shared_.counters().stop.load(std::memory_order_relaxed);
  sums.updates += updates;
  sums.phases += workers_[0]->take_phases();
  left_ = optimizer_.state_hash();
  EpochSums own;
  Index without_weight = 0;
  for (const auto& worker : workers_) {
    own.steps += worker->sums.steps;
    own.loss += worker->sums.loss;
    own.correct += worker->sums.correct;
    own.weight += worker->sums.weight;
    without_weight += worker->without_weight;
    own.rows += worker->sums.rows;
    own.skipped += worker->sums.skipped;
    own.skipped_rows += worker->sums.skipped_rows;
    if (worker->sums.nonfinite.step < own.nonfinite.step) own.nonfinite = worker->sums.nonfinite;
    own.staleness.add(worker->sums.staleness);
  }
  if (comm_->size() > 1) comm_->has_read((own.steps - without_weight) * job_.model.count() * Index{sizeof(T)});
  std::array<double, 8> totals{own.loss,
                               own.correct,
                               static_cast<double>(own.rows),
                               own.staleness.sum,
                               static_cast<double>(own.skipped),
                               static_cast<double>(own.skipped_rows),
                               own.weight,
                               static_cast<double>(without_weight)};
  comm_->all_reduce(comm::View(std::span(totals)));
  comm_->all_reduce(comm::View(std::span(&own.staleness.most, 1)), comm::Op::max);
  sums.loss = totals[0];
  sums.correct = totals[1];
  sums.weight = totals[6];
  sums.rows += static_cast<Index>(totals[2]);
  sums.staleness.add({totals[3], own.staleness.most});
  sums.skipped += static_cast<Index>(totals[4]);
  sums.skipped_rows += static_cast<Index>(totals[5]);
  sums.steps += updates + static_cast<Index>(totals[4] + totals[7]);
  if (sums.stopped) sums.nonfinite = first_of(*comm_, own.nonfinite);
  if (totals[2] > 0) average_state(totals[2]);
}

template <class T>
void Hogwild<T>::average_state(double rows) {
  const std::span<T> mean = job_.model.buffers->span();
  if (mean.empty()) return;
  const Index count = static_cast<Index>(mean.size());
  for (const auto& worker : workers_) {
    T* const buffers = worker->model().buffers->data();
    kernels::table<T>().scale(Part{}, count, static_cast<T>(static_cast<double>(worker->sums.rows) / rows), buffers);
    if (worker != workers_[0]) kernels::table<T>().add(Part{}, count, mean.data(), buffers, mean.data());
  }
  comm_->all_reduce(comm::View(mean));
}

template class Hogwild<float>;
template class Hogwild<double>;

}  // namespace pdnn::strategy
