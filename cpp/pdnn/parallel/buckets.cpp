#include "pdnn/parallel/buckets.hpp"

#include <array>

namespace pdnn::parallel {

namespace {

constexpr double kSlow = 0.02;                     // seconds of an agreement from which on it is measured only once
constexpr std::chrono::microseconds kKernel{100};  // between two of which requests are moved along

}  // namespace

template <class T>
Buckets<T>::Buckets(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm, Index bucket_bytes)
    : Agreement<T>(replica), comm_(std::move(comm)), size_(std::max<Index>(1, bucket_bytes / Index{sizeof(T)})) {
  const std::span<T> grads = model().grads->span();
  std::fill(grads.begin(), grads.end(), T{});
  std::array<std::int32_t, 1> announce{replica_.engine.announces()};
  comm_->all_reduce(std::span(announce), comm::Op::min);
  all_announce_ = announce[0] != 0;
  if (bucket_bytes == 0) choose_size();
  requests_.reserve(static_cast<std::size_t>(count()) + 1);
  alone_ = measure_rounds(*comm_, 2, [&] { travel(0); });
}

/// More buckets let more travel beside the backward pass and cost more latencies; and where a rank's own core moves the
/// bytes, nothing is gained beside its arithmetic. So it is tried: a pass that lasts as long as the gradient takes to
/// travel, with 1, 2, 4, … buckets started as it goes on.
template <class T>
void Buckets<T>::choose_size() {
  constexpr Index kLeast = 4096, kMostBuckets = 32;  // elements of a bucket; buckets
  const auto sized = [&](Index buckets) { return std::max<Index>(1, (model().count() + buckets - 1) / buckets); };
  size_ = sized(1);
  if (sized(2) < kLeast) return;
  const double alone = measure_rounds(*comm_, 2, [&] { travel(0); });
  const int rounds = alone > kSlow ? 1 : 5;
  double best = 0;
  Index chosen = 1;
  for (Index buckets = 1; buckets <= kMostBuckets && sized(buckets) >= kLeast; buckets *= 2) {
    size_ = sized(buckets);
    const double beside = measure_rounds(*comm_, rounds, [&] { travel(alone); });
    constexpr double kWorthwhile = 0.95;
    if (buckets > 1 && beside > kWorthwhile * best) continue;
    best = beside;
    chosen = buckets;
  }
  size_ = sized(chosen);
}

/// All buckets, started one after another while something else is done for so many seconds.
template <class T>
void Buckets<T>::travel(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (started_ = 0; started_ < count(); ++started_) {
    const std::chrono::duration<double> until(seconds * static_cast<double>(started_ + 1) /
                                              static_cast<double>(count()));
    while (Clock::now() - begin < until) {
      const auto looked = Clock::now();
      while (Clock::now() - looked < kKernel) {
      }
      test_all();
    }
    start(bucket(started_));
  }
  for (comm::Request& request : requests_) request.wait();
  requests_.clear();
}

template <class T>
Range Buckets<T>::bucket(Index number) const {
  const Index end = model().count() - number * size_;
  return {std::max<Index>(0, end - size_), end};
}

template <class T>
void Buckets<T>::start(Range elements) {
  requests_.push_back(
      comm_->start_all_reduce(comm::View(slice(model().grads->span(), elements.begin, elements.size()))));
}

/// Starts the buckets that lie behind `from` and have not been started.
template <class T>
void Buckets<T>::start_final(Index from) {
  for (; started_ < count() && bucket(started_).begin >= from; ++started_) start(bucket(started_));
}

template <class T>
void Buckets<T>::begin_step(Step<T>& step, bool) {
  started_ = 0;
  spent_ = 0;
  if (all_announce_) step.final = this;
}

template <class T>
void Buckets<T>::operator()(const Member& member, Range slice) {
  if (!member.first()) return;
  Stopwatch watch;
  test_all();
  start_final(slice.begin);
  watch.lap(spent_);
}

template <class T>
void Buckets<T>::poll() {
  if (requests_.empty()) return;
  Stopwatch watch;
  test_all();
  watch.lap(spent_);
}

template <class T>
void Buckets<T>::test_all() {
  for (comm::Request& request : requests_) request.test();
}

template <class T>
StepSums Buckets<T>::finish_step(const StepSums& own, Phases& phases) {
  phases.gradient -= spent_;  // inside the backward pass
  Stopwatch watch;
  const Index params = model().count(), all = params + nn::Model<T>::kTail;
  write_tail(model(), own);
  const bool tail_apart = started_ > 0 || params == 0;  // the last bucket left before the sums were known
  if (!tail_apart) {
    start({bucket(0).begin, all});
    started_ = 1;
  }
  start_final(0);
  if (tail_apart) start({params, all});
  for (Index i = 0; i < std::ssize(requests_); ++i) {
    requests_[static_cast<std::size_t>(i)].wait();
    if (i >= count() || replica_.optimizer.clip()) continue;
    test_all();
    watch.lap(spent_);
    replica_.engine.update(replica_.optimizer, bucket(i));
    watch.lap(phases.update);
  }
  requests_.clear();
  watch.lap(spent_);
  phases.agreement += spent_;
  phases.hidden += std::max(0.0, alone_ - spent_);
  if (replica_.optimizer.clip()) replica_.engine.update(replica_.optimizer, {0, params});
  watch.lap(phases.update);
  return read_tail(model(), own.rows);
}

template class Buckets<float>;
template class Buckets<double>;

}  // namespace pdnn::parallel
