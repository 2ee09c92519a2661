#include "pdnn/reduce/bucketed_all_reduce.hpp"

#include <array>

namespace pdnn::reduce {

namespace {

constexpr double kSlow = 0.02;                     // seconds of an agreement from which on it is measured only once
constexpr std::chrono::microseconds kKernel{100};  // between two of which requests are moved along

}  // namespace

template <class T>
BucketedReducer<T>::BucketedReducer(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm,
                                    Index bucket_bytes, std::optional<Compression> compression)
    : GradientReducer<T>(replica), comm_(std::move(comm)), compression_(std::move(compression)) {
  const std::span<T> grads = model().grads->span();
  std::fill(grads.begin(), grads.end(), T{});
  std::array<std::int32_t, 1> announce{replica_.engine.announces()};
  comm_->all_reduce(std::span(announce), comm::Op::min);
  all_announce_ = announce[0] != 0;
  if (compression_ && bucket_bytes == 0) bucket_bytes = kCodedBucketBytes;
  cut(std::max<Index>(1, bucket_bytes / Index{sizeof(T)}));
  if (bucket_bytes == 0) choose_size();
  make_sums();
  requests_.reserve(static_cast<std::size_t>(count()));
  alone_ = measure_rounds(*comm_, 2, [&] { travel(0); });
  make_sums();  // that have counted nothing and remember nothing
}

template <class T>
void BucketedReducer<T>::cut(Index size) {
  size_ = size;
  buckets_.clear();
  if (compression_ && codec::wants_matrices(compression_->codec)) return cut_at_parameters();
  for (Index end = model().count(); end > 0; end -= size) buckets_.push_back({std::max<Index>(0, end - size), end});
}

template <class T>
void BucketedReducer<T>::cut_at_parameters() {
  const std::vector<nn::Parameter> parameters = model().parameters();
  Index begin = model().count(), end = begin;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    begin -= parameter->count();
    if (end - begin < size_ && begin > 0) continue;
    if (begin < end) buckets_.push_back({begin, end});
    end = begin;
  }
}

template <class T>
void BucketedReducer<T>::make_sums() {
  sums_.clear();
  if (!compression_) return;
  const std::vector<codec::MatrixAt> matrices = matrices_of(replica_.job);
  for (const Range& elements : buckets_)
    sums_.push_back(make_compressed_sum<T>(comm_, *compression_, elements, matrices));
}

/// More buckets let more travel beside the backward pass and cost more latencies; and where a rank's own core moves the
/// bytes, nothing is gained beside its arithmetic. So it is tried: a pass that lasts as long as the gradient takes to
/// travel, with 1, 2, 4, … buckets started as it goes on.
template <class T>
void BucketedReducer<T>::choose_size() {
  constexpr Index kLeast = 4096, kMostBuckets = 32;  // elements of a bucket; buckets
  const auto sized = [&](Index buckets) { return std::max<Index>(1, (model().count() + buckets - 1) / buckets); };
  cut(sized(1));
  if (sized(2) < kLeast) return;
  const double alone = measure_rounds(*comm_, 2, [&] { travel(0); });
  const int rounds = alone > kSlow ? 1 : 5;
  double best = 0;
  Index chosen = 1;
  for (Index buckets = 1; buckets <= kMostBuckets && sized(buckets) >= kLeast; buckets *= 2) {
    cut(sized(buckets));
    const double beside = measure_rounds(*comm_, rounds, [&] { travel(alone); });
    constexpr double kWorthwhile = 0.95;
    if (buckets > 1 && beside > kWorthwhile * best) continue;
    best = beside;
    chosen = buckets;
  }
  cut(sized(chosen));
}

/// All buckets, started one after another while something else is done for so many seconds.
template <class T>
void BucketedReducer<T>::travel(double seconds) {
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
    start(started_);
  }
  for (Index number = 0; number < count(); ++number) finish(number);
  requests_.clear();
}

template <class T>
comm::Request BucketedReducer<T>::start_all_reduce(Range elements) {
  return comm_->start_all_reduce(comm::View(slice(model().grads->span(), elements.begin, elements.size())));
}

template <class T>
void BucketedReducer<T>::start(Index number) {
  if (compression_)
    sums_[static_cast<std::size_t>(number)]->start(model().grads->span());
  else
    requests_.push_back(start_all_reduce(bucket(number)));
}

/// Waits for a bucket, after all those before it.
template <class T>
void BucketedReducer<T>::finish(Index number) {
  const auto at = static_cast<std::size_t>(number);
  if (compression_)
    sums_[at]->finish();
  else
    requests_[at].wait();
}

/// Starts the buckets that lie behind `from` and have not been started.
template <class T>
void BucketedReducer<T>::start_final(Index from) {
  for (; started_ < count() && bucket(started_).begin >= from; ++started_) start(started_);
}

template <class T>
void BucketedReducer<T>::begin_epoch() {
  for (const auto& sum : sums_) sum->measure();  // an epoch's statistics have an error
}

template <class T>
nn::Hooks<T> BucketedReducer<T>::begin_step(bool) {
  started_ = 0;
  spent_before_ = replica_.timer.seconds(&Phases::agreement);
  if (!all_announce_) return {};
  return {.grad_ready = this};
}

template <class T>
void BucketedReducer<T>::operator()(const Member& member, Range slice) {
  if (!member.first()) return;
  const auto timed = replica_.timer.time(&Phases::agreement);
  test_all();
  start_final(slice.begin);
}

template <class T>
void BucketedReducer<T>::poll() {
  if (started_ == 0) return;
  const auto timed = replica_.timer.time(&Phases::agreement);
  test_all();
}

/// Moves along what is under way.
template <class T>
void BucketedReducer<T>::test_all() {
  for (comm::Request& request : requests_) request.test();
  if (!compression_) return;
  for (Index number = 0; number < started_; ++number) sums_[static_cast<std::size_t>(number)]->test();
}

template <class T>
StepSums BucketedReducer<T>::finish_step(const StepSums& own) {
  const auto timed = replica_.timer.time(&Phases::agreement);
  const Index params = model().count(), all = params + nn::Model<T>::kTail;
  write_tail(model(), own);
  const bool tail_apart = compression_ || started_ > 0 || params == 0;  // or the last bucket left without the sums
  if (!tail_apart) {
    requests_.push_back(start_all_reduce({bucket(0).begin, all}));
    started_ = 1;
  }
  start_final(0);
  comm::Request tail;
  if (tail_apart) tail = start_all_reduce({params, all});
  for (Index number = 0; number < count(); ++number) {
    finish(number);
    if (replica_.optimizer.clip()) continue;
    test_all();
    update(bucket(number));
  }
  if (tail_apart) tail.wait();
  requests_.clear();
  started_ = 0;
  const double spent = replica_.timer.seconds(&Phases::agreement) - spent_before_;
  replica_.timer.add_hidden(std::max(0.0, alone_ - spent));
  if (replica_.optimizer.clip()) update({0, params});
  return read_tail(model(), own.rows);
}

template <class T>
void BucketedReducer<T>::update(Range elements) {
  const auto timed = replica_.timer.time(&Phases::update);
  replica_.engine.update(replica_.optimizer, elements);
}

/// A step is one sum, however many buckets it takes.
template <class T>
CompressionStats BucketedReducer<T>::take_stats() {
  CompressionStats all;
  const Index steps = sums_.empty() ? 0 : sums_.front()->stats().sums;
  for (const auto& sum : sums_) all += sum->take_stats();
  all.sums = steps;
  return all;
}

template <class T>
std::vector<std::span<T>> BucketedReducer<T>::memory() {
  std::vector<std::span<T>> all;
  for (const auto& sum : sums_)
    for (const std::span<T> part : sum->memory()) all.push_back(part);
  return all;
}

template class BucketedReducer<float>;
template class BucketedReducer<double>;

}  // namespace pdnn::reduce
