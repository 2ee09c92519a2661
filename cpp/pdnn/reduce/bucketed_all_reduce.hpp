#pragma once
/// BucketedAllReduce: a flat array becomes its sum over the ranks, a bucket at a time, each as soon as it is final.
#include "pdnn/reduce/compressed_sum.hpp"

namespace pdnn::reduce {

/// Every rank starts the buckets in the order of their list, whatever the order in which elements become final: a
/// bucket as soon as it and all before it are. MPI makes no progress by itself, so ready() and poll() move along what
/// is under way. With a codec a bucket is encoded when it starts, and sums of codes travel instead (CompressedSum),
/// after which all ranks hold the same bits. Allocates nothing after its first sum.
template <class T>
class BucketedAllReduce {
 public:
  /// `buckets`, the same on every rank, fall from the array's end and do not overlap. `matrices` lie in the array;
  /// those that a bucket holds entirely are of use to "powersgd". ValueError if buckets do not fall, or the codec's
  /// spec is none.
  BucketedAllReduce(std::shared_ptr<comm::Communicator> comm, std::vector<Range> buckets,
                    const std::optional<Compression>& compression = {},
                    const std::vector<codec::MatrixAt>& matrices = {});
  /// The sum of each bucket is made by one of `sums`.
  BucketedAllReduce(std::shared_ptr<comm::Communicator> comm, std::vector<Range> buckets,
                    std::vector<std::unique_ptr<BucketSum<T>>> sums);

  /// A new sum. Elements belong to it from when they are final to when their bucket is finished. `counts`, as many on
  /// every rank, leave at once and are added up beside. With `mean` the sums are divided by that of the first count,
  /// unless it is 0: by a codec before they are encoded, so that what is fed back belongs to a mean.
  void start(std::span<T> values, std::span<const double> counts = {}, bool mean = false);
  /// These elements are final, each told of once: starts what can be. Those in no bucket do not matter.
  void ready(Range elements);
  /// Moves along what is under way; true when all that was started is there.
  bool poll();
  /// Starts the buckets that have not been, as they are.
  void start_rest() {
    while (started_ < count()) start_next();
  }
  /// Waits for a bucket that was started, after all those before it: it holds the sums.
  void finish(Index number);
  /// Starts and waits for all; returns the sums of the counts.
  std::span<const double> finish();

  Index count() const { return std::ssize(buckets_); }
  /// Those that were started in this sum.
  Index started() const { return started_; }
  Range bucket(Index number) const { return buckets_[static_cast<std::size_t>(number)]; }

  /// What the codec has sent; a sum is one, however many buckets it takes.
  CompressionStats stats() const;
  /// That since the last call.
  CompressionStats take_stats() {
    const CompressionStats all = stats();
    for (const auto& sum : sums_) sum->take_stats();
    return all;
  }
  /// Bytes that leave this rank in a sum by the codec.
  Index bytes_sent() const {
    Index bytes = 0;
    for (const auto& sum : sums_) bytes += sum->bytes_sent();
    return bytes;
  }
  /// What the codec remembers from sum to sum, as long on every rank.
  std::vector<std::span<T>> memory() {
    std::vector<std::span<T>> all;
    for (const auto& sum : sums_)
      for (const std::span<T> part : sum->memory()) all.push_back(part);
    return all;
  }
  /// The next sum's errors go into the statistics, if any do.
  void measure() {
    for (const auto& sum : sums_) sum->measure();
  }

 private:
  void start_next();
  void divide(Range elements);

  std::shared_ptr<comm::Communicator> comm_;
  std::vector<Range> buckets_;
  std::vector<Index> waiting_;  // elements of each bucket that are not final
  Index started_ = 0;
  std::vector<comm::Request> requests_;              // of buckets, as they are
  std::vector<std::unique_ptr<BucketSum<T>>> sums_;  // of buckets, by a codec or a tree
  std::span<T> values_;
  bool mean_ = false;
  AlignedArray<double> counts_;
  comm::Request counting_;
};

}  // namespace pdnn::reduce
