#pragma once
/// BucketedReducer: gradients travel a bucket at a time, the last layer's first, while the backward pass goes on.
#include "pdnn/reduce/bucketed_all_reduce.hpp"
#include "pdnn/reduce/node_tree.hpp"

namespace pdnn::reduce {

/// Cuts the flat gradient into buckets of equal size, of a BucketedAllReduce which is told of every slice that is final
/// and of every kernel that has ended. Where the whole gradient is there only at the end, as a pool's is, all buckets
/// start then.
///
/// With a codec the tail travels by itself, as it is. A codec that treats matrices as such must see whole ones: its
/// buckets end where parameters do, and are at least as large as was asked for.
///
/// Of a batch in leaves the buckets are added up in the order of the tree (TreeSum), and what the leaves have of the
/// loss travels by itself, so neither the number of ranks nor that of buckets changes a bit.
template <class T>
class BucketedReducer : public GradientReducer<T>, public nn::GradReady {
 public:
  /// Collective. `bucket_bytes` 0: the size that is measured to leave least to wait for; with a codec
  /// kCodedBucketBytes.
  BucketedReducer(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm, Index bucket_bytes,
                  std::optional<Compression> compression = {});

  void begin_epoch() override { sums_->measure(); }  // an epoch's statistics have an error
  nn::Hooks<T> begin_step(bool keep) override;
  StepSums finish_step(const StepSums& own) override;
  CompressionStats take_stats() override { return sums_->take_stats(); }
  std::vector<std::span<T>> memory() override { return sums_->memory(); }

  void operator()(const Member& member, Range slice) override;
  Index piece() const override { return size_; }
  void poll() override;

  /// Seconds of an agreement beside which nothing is done: the slowest rank's.
  double alone() const { return alone_; }

 private:
  using GradientReducer<T>::replica_, GradientReducer<T>::model, GradientReducer<T>::leaf_sums_;

  void cut(Index size);
  std::unique_ptr<BucketedAllReduce<T>> make_sums(const std::vector<Range>& buckets);
  void choose_size();
  void travel(double seconds);
  comm::Request start_tail(const StepSums& own);
  StepSums take_tail(const StepSums& own);

  std::shared_ptr<comm::Communicator> comm_;
  std::optional<Compression> compression_;
  bool all_announce_;               // every rank's engine: all start the same calls at the same places
  bool tail_apart_;                 // or in the first bucket, which starts when the step's sums are there
  std::optional<NodeTree> tree_;    // of a batch in leaves
  AlignedArray<T> more_nodes_;      // the gradients of this rank's second, third, … node
  AlignedArray<double> leaf_tail_;  // a loss and right answers of each leaf; wishes to stop
  Index size_ = 0;                  // elements of a bucket; of one with whole parameters, at least
  std::unique_ptr<BucketedAllReduce<T>> sums_;
  double alone_ = 0;
  double spent_before_ = 0;  // seconds of agreement when this step began
};

}  // namespace pdnn::reduce
