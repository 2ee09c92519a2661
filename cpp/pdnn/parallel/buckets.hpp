#pragma once
/// Buckets: gradients travel a bucket at a time, the last layer's first, while the backward pass goes on.
#include "pdnn/parallel/agreement.hpp"

namespace pdnn::parallel {

/// Cuts the flat gradient into buckets of equal size. As soon as a bucket is final its all-reduce starts; it is moved
/// along whenever a kernel has ended, for MPI makes no progress by itself. Where the whole gradient is there only at
/// the end, as a pool's is, all start then.
template <class T>
class Buckets : public Agreement<T>, public nn::Final {
 public:
  /// Collective. `bucket_bytes` 0: the size that is measured to leave least to wait for.
  Buckets(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm, Index bucket_bytes);

  void begin_step(Step<T>& step, bool keep) override;
  StepSums finish_step(const StepSums& own, Phases& phases) override;

  void operator()(const Member& member, Range slice) override;
  Index piece() const override { return size_; }
  void poll() override;

  /// Elements of a bucket.
  Index size() const { return size_; }
  /// Seconds of an agreement beside which nothing is done: the slowest rank's.
  double alone() const { return alone_; }

 private:
  using Agreement<T>::replica_, Agreement<T>::model;

  Index count() const { return (model().count() + size_ - 1) / size_; }
  /// The elements of a bucket; 0 is the last layer's, which the tail follows.
  Range bucket(Index number) const;
  void start_final(Index from);
  void start(Range elements);
  void test_all();
  void choose_size();
  void travel(double seconds);

  std::shared_ptr<comm::Communicator> comm_;
  Index size_;
  bool all_announce_ = false;  // every rank's engine: all start the same calls at the same places
  double alone_ = 0;
  Index started_ = 0;  // buckets of this step
  double spent_ = 0;   // seconds of this step in calls of the communicator
  std::vector<comm::Request> requests_;
};

}  // namespace pdnn::parallel
