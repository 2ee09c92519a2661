#pragma once
/// BucketedReducer: gradients travel a bucket at a time, the last layer's first, while the backward pass goes on.
#include "pdnn/reduce/compressed_sum.hpp"

namespace pdnn::reduce {

/// Cuts the flat gradient into buckets of equal size. As soon as a bucket is final its all-reduce starts; it is moved
/// along whenever a kernel has ended, for MPI makes no progress by itself. Where the whole gradient is there only at
/// the end, as a pool's is, all start then.
///
/// With a codec a bucket is encoded when it is final, and sums of codes travel instead (CompressedSum), after which all
/// ranks hold the same bits. The tail travels by itself then, as it is. A codec that treats matrices as such must see
/// whole ones: its buckets end where parameters do, and are at least as large as was asked for.
template <class T>
class BucketedReducer : public GradientReducer<T>, public nn::GradReady {
 public:
  /// Collective. `bucket_bytes` 0: the size that is measured to leave least to wait for; with a codec
  /// kCodedBucketBytes.
  BucketedReducer(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm, Index bucket_bytes,
                  std::optional<Compression> compression = {});

  void begin_epoch() override;
  nn::Hooks<T> begin_step(bool keep) override;
  StepSums finish_step(const StepSums& own) override;
  CompressionStats take_stats() override;
  std::vector<std::span<T>> memory() override;

  void operator()(const Member& member, Range slice) override;
  Index piece() const override { return size_; }
  void poll() override;

  /// Elements of a bucket; of one with whole parameters, at least.
  Index size() const { return size_; }
  /// Seconds of an agreement beside which nothing is done: the slowest rank's.
  double alone() const { return alone_; }

 private:
  using GradientReducer<T>::replica_, GradientReducer<T>::model;

  Index count() const { return std::ssize(buckets_); }
  /// The elements of a bucket; 0 is the last layer's, which the tail follows.
  Range bucket(Index number) const { return buckets_[static_cast<std::size_t>(number)]; }
  void cut(Index size);
  void cut_at_parameters();
  void make_sums();
  void start_final(Index from);
  void start(Index number);
  void finish(Index number);
  comm::Request start_all_reduce(Range elements);
  void test_all();
  void update(Range elements);
  void choose_size();
  void travel(double seconds);

  std::shared_ptr<comm::Communicator> comm_;
  std::optional<Compression> compression_;
  Index size_;
  std::vector<Range> buckets_;
  bool all_announce_ = false;  // every rank's engine: all start the same calls at the same places
  double alone_ = 0;
  Index started_ = 0;                                    // buckets of this step
  double spent_before_ = 0;                              // seconds of agreement when this step began
  std::vector<comm::Request> requests_;                  // of buckets, as they are
  std::vector<std::unique_ptr<CompressedSum<T>>> sums_;  // of buckets, by a codec
};

}  // namespace pdnn::reduce
