#include "pdnn/reduce/bucketed_all_reduce.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn::reduce {

template <class T>
BucketedAllReduce<T>::BucketedAllReduce(std::shared_ptr<comm::Communicator> comm, std::vector<Range> buckets,
                                        const std::optional<Compression>& compression,
                                        const std::vector<codec::MatrixAt>& matrices)
    : BucketedAllReduce(std::move(comm), std::move(buckets), std::vector<std::unique_ptr<BucketSum<T>>>()) {
  if (!compression) return;
  for (const Range& elements : buckets_)
    sums_.push_back(make_compressed_sum<T>(comm_, *compression, elements, matrices));
}

template <class T>
BucketedAllReduce<T>::BucketedAllReduce(std::shared_ptr<comm::Communicator> comm, std::vector<Range> buckets,
                                        std::vector<std::unique_ptr<BucketSum<T>>> sums)
    : comm_(std::move(comm)), buckets_(std::move(buckets)), sums_(std::move(sums)) {
  Index last = std::numeric_limits<Index>::max();
  for (const Range& elements : buckets_) {
    require(0 <= elements.begin && elements.begin <= elements.end && elements.end <= last, "BucketedAllReduce: [",
            elements.begin, ", ", elements.end, ") is no bucket before the last one; let them fall");
    last = elements.begin;
  }
  waiting_.resize(buckets_.size());
  requests_.reserve(buckets_.size());
}

template <class T>
void BucketedAllReduce<T>::start(std::span<T> values, std::span<const double> counts, bool mean) {
  require(count() == 0 || bucket(0).end <= std::ssize(values), "BucketedAllReduce: an array of ", values.size(),
          " elements ends before its buckets do");
  require(!mean || !counts.empty(), "BucketedAllReduce: a mean is over a count; pass one");
  values_ = values;
  mean_ = mean;
  started_ = 0;
  requests_.clear();
  std::transform(buckets_.begin(), buckets_.end(), waiting_.begin(), [](const Range& all) { return all.size(); });
  counting_ = {};
  if (counts.empty()) return;
  if (counts_.size() != std::ssize(counts)) counts_ = AlignedArray<double>(std::ssize(counts));
  std::copy(counts.begin(), counts.end(), counts_.data());
  const comm::Labeled labeled({.what = "counts"});
  counting_ = comm_->start_all_reduce(comm::View(counts_.span()));
}

template <class T>
void BucketedAllReduce<T>::ready(Range elements) {
  poll();
  for (Index number = started_; number < count() && bucket(number).end > elements.begin; ++number) {
    const Range own = bucket(number);
    const Index in_both = std::min(own.end, elements.end) - std::max(own.begin, elements.begin);
    waiting_[static_cast<std::size_t>(number)] -= std::max<Index>(0, in_both);
  }
  while (started_ < count() && waiting_[static_cast<std::size_t>(started_)] == 0) start_next();
}

template <class T>
bool BucketedAllReduce<T>::poll() {
  bool there = counting_.test();
  for (comm::Request& request : requests_) there = request.test() && there;
  for (Index number = 0; number < started_ && number < std::ssize(sums_); ++number)
    there = sums_[static_cast<std::size_t>(number)]->test() && there;
  return there;
}

template <class T>
void BucketedAllReduce<T>::start_next() {
  const Range elements = bucket(started_);
  const comm::Labeled labeled({.what = "bucket", .number = started_});
  if (sums_.empty()) {
    requests_.push_back(comm_->start_all_reduce(comm::View(slice(values_, elements.begin, elements.size()))));
  } else {
    divide(elements);
    sums_[static_cast<std::size_t>(started_)]->start(values_);
  }
  ++started_;
}

template <class T>
void BucketedAllReduce<T>::finish(Index number) {
  const auto at = static_cast<std::size_t>(number);
  if (!sums_.empty()) return sums_[at]->finish();
  requests_[at].wait();
  divide(bucket(number));
}

template <class T>
std::span<const double> BucketedAllReduce<T>::finish() {
  start_rest();
  counting_.wait();
  for (Index number = 0; number < count(); ++number) finish(number);
  return counts_.span();
}

/// By the sum of the first count, once that is there.
template <class T>
void BucketedAllReduce<T>::divide(Range elements) {
  if (!mean_) return;
  counting_.wait();
  if (counts_[0] > 0)
    for (T& value : slice(values_, elements.begin, elements.size())) value /= static_cast<T>(counts_[0]);
}

template <class T>
CompressionStats BucketedAllReduce<T>::stats() const {
  CompressionStats all;
  for (const auto& sum : sums_) all += sum->stats();
  all.sums = sums_.empty() ? 0 : sums_.front()->stats().sums;
  return all;
}

template class BucketedAllReduce<float>;
template class BucketedAllReduce<double>;

}  // namespace pdnn::reduce
