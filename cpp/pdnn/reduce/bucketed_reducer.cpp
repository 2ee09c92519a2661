#include "pdnn/reduce/bucketed_reducer.hpp"

#include <array>
#include <ranges>

#include "pdnn/core/finite.hpp"
#include "pdnn/reduce/tree_sum.hpp"

namespace pdnn::reduce {

namespace {

constexpr double kSlow = 0.02;                     // seconds of an agreement from which on it is measured only once
constexpr std::chrono::microseconds kKernel{100};  // between two of which requests are moved along

}  // namespace

template <class T>
BucketedReducer<T>::BucketedReducer(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm,
                                    Index bucket_bytes, std::optional<Compression> compression)
    : GradientReducer<T>(replica),
      comm_(std::move(comm)),
      compression_(std::move(compression)),
      leaf_tail_(2 * replica.leaves + 1) {
  if (replica.leaves > 0) {
    tree_.emplace(replica.leaves, comm_->size());
    more_nodes_ = AlignedArray<T>((tree_->of_rank(comm_->rank()).size() - 1) * model().count());
  }
  const std::span<T> grads = model().grads->span();
  std::fill(grads.begin(), grads.end(), T{});
  std::array<std::int32_t, 1> announce{replica_.engine.announces()};
  comm_->all_reduce(std::span(announce), comm::Op::min);
  all_announce_ = announce[0] != 0;
  tail_apart_ = compression_ || tree_ || all_announce_ || model().count() == 0;
  if (compression_ && bucket_bytes == 0) bucket_bytes = kCodedBucketBytes;
  if (bucket_bytes == 0)
    choose_size();
  else
    cut(std::max<Index>(1, bucket_bytes / Index{sizeof(T)}));
  alone_ = measure_rounds(*comm_, 2, [&] { travel(0); });
  cut(size_);  // which has no statistics and remembers nothing
}

template <class T>
void BucketedReducer<T>::cut(Index size) {
  if (tree_) size = std::max(size, model().count() / TreeSum<T>::kMost + 1);
  size_ = size;
  std::vector<Range> buckets;
  Index begin = model().count(), end = begin;
  if (compression_ && codec::wants_matrices(compression_->codec)) {
    const std::vector<nn::Parameter> parameters = model().parameters();
    for (const nn::Parameter& parameter : std::views::reverse(parameters)) {
      begin -= parameter.count();
      if (end - begin < size && begin > 0) continue;
      if (begin < end) buckets.push_back({begin, end});
      end = begin;
    }
  }
  for (; end > 0; end -= size) buckets.push_back({std::max<Index>(0, end - size), end});
  if (!tail_apart_) buckets.front().end += nn::Model<T>::kTail;
  sums_ = make_sums(buckets);
}

template <class T>
std::unique_ptr<BucketedAllReduce<T>> BucketedReducer<T>::make_sums(const std::vector<Range>& buckets) {
  if (!tree_) return std::make_unique<BucketedAllReduce<T>>(comm_, buckets, compression_, matrices_of(replica_.job));
  std::vector<std::unique_ptr<BucketSum<T>>> sums;
  for (const Range& bucket : buckets)
    sums.push_back(std::make_unique<TreeSum<T>>(comm_, *tree_, replica_.engine.team(), bucket,
                                                static_cast<int>(sums.size()), more_nodes_.span()));
  return std::make_unique<BucketedAllReduce<T>>(comm_, buckets, std::move(sums));
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
  sums_->start(model().grads->span());
  for (Index number = 0; number < sums_->count(); ++number) {
    const std::chrono::duration<double> until(seconds * static_cast<double>(number + 1) /
                                              static_cast<double>(sums_->count()));
    while (Clock::now() - begin < until) {
      const auto looked = Clock::now();
      while (Clock::now() - looked < kKernel) {
      }
      sums_->poll();
    }
    sums_->ready(sums_->bucket(number));
  }
  sums_->finish();
}

template <class T>
nn::Hooks<T> BucketedReducer<T>::begin_step(bool) {
  sums_->start(model().grads->span());
  spent_before_ = replica_.timer.seconds(&Phases::agreement);
  std::ranges::fill(leaf_sums_, nn::LossValue{});
  return {.grad_ready = all_announce_ ? this : nullptr, .more_nodes = more_nodes_.span(), .leaf_sums = leaf_sums_};
}

template <class T>
void BucketedReducer<T>::operator()(const Member& member, Range slice) {
  if (!member.first()) return;
  const auto timed = replica_.timer.time(&Phases::agreement);
  sums_->ready(slice);
}

template <class T>
void BucketedReducer<T>::poll() {
  if (sums_->started() == 0) return;
  const auto timed = replica_.timer.time(&Phases::agreement);
  sums_->poll();
}

template <class T>
StepSums BucketedReducer<T>::finish_step(const StepSums& own) {
  const auto timed = replica_.timer.time(&Phases::agreement);
  const Index params = model().count();
  const auto update = [&](Range elements) {
    const auto updating = replica_.timer.time(&Phases::update);
    replica_.engine.update(replica_.optimizer, elements);
  };
  StepSums told = own;  // codes may have no NaN, so it is looked for before they are added up
  if (compression_) told.bad = first_nonfinite<T>(slice(model().grads->span(), 0, params)) < params;
  write_tail(model(), told);
  sums_->start_rest();
  comm::Request tail;
  if (tail_apart_) tail = start_tail(own);
  for (Index number = 0; number < sums_->count(); ++number) {
    sums_->finish(number);
    if (replica_.optimizer.clip()) continue;
    sums_->poll();
    const Range elements = sums_->bucket(number);
    update({elements.begin, std::min(elements.end, params)});
  }
  tail.wait();
  const double spent = replica_.timer.seconds(&Phases::agreement) - spent_before_;
  replica_.timer.add_hidden(std::max(0.0, alone_ - spent));
  if (replica_.optimizer.clip()) update({0, params});
  return take_tail(own);
}

/// The sums of a step beside the buckets.
template <class T>
comm::Request BucketedReducer<T>::start_tail(const StepSums& own) {
  const comm::Labeled labeled({.what = "tail"});
  if (!tree_)
    return comm_->start_all_reduce(comm::View(slice(model().grads->span(), model().count(), nn::Model<T>::kTail)));
  double* tail = leaf_tail_.data();
  for (const nn::LossValue& leaf : leaf_sums_) *tail++ = leaf.value, *tail++ = leaf.correct;
  *tail = own.stop ? 1 : 0;
  return comm_->start_all_reduce(comm::View(leaf_tail_.span()));  // exact: the others have zeros
}

template <class T>
StepSums BucketedReducer<T>::take_tail(const StepSums& own) {
  if (!tree_) return read_tail(model().grads->data() + model().count(), own.rows);
  const double* tail = leaf_tail_.data();
  for (nn::LossValue& leaf : leaf_sums_) leaf.value = *tail++, leaf.correct = *tail++;
  return {engine::sum_of_leaves(leaf_sums_), own.rows, *tail > 0};
}

template class BucketedReducer<float>;
template class BucketedReducer<double>;

}  // namespace pdnn::reduce
