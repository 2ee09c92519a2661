#pragma once
/// CompressedSum: one slice of a flat gradient added up over ranks, with a codec on the way, and statistics about it.
#include <utility>

#include "pdnn/codec/error_feedback.hpp"
#include "pdnn/codec/make_codec.hpp"
#include "pdnn/comm/communicator.hpp"
#include "pdnn/reduce/bucket_sum.hpp"
#include "pdnn/reduce/gradient_reducer.hpp"

namespace pdnn::reduce {

/// The sum over the ranks of one slice of their flat gradients; all ranks get the same bits. Remembers what its codec
/// lost, if errors are fed back. In a group of one nothing travels and nothing changes.
template <class T>
class CompressedSum : public BucketSum<T> {
 public:
  /// Encodes and sends.
  void start(std::span<T> gradient) override;
  bool test() override { return comm_->size() == 1 || arrived(); }
  void finish() override {
    if (comm_->size() > 1) receive(values_);
  }
  /// start() and finish().
  void operator()(std::span<T> gradient) {
    start(gradient);
    finish();
  }

  Range slice() const { return slice_; }
  CompressionStats stats() const override { return stats_; }
  CompressionStats take_stats() override { return std::exchange(stats_, {}); }

 protected:
  CompressedSum(std::shared_ptr<comm::Communicator> comm, Range slice) : comm_(std::move(comm)), slice_(slice) {}
  comm::Communicator& comm() { return *comm_; }
  const comm::Communicator& comm() const { return *comm_; }
  /// Counts bytes that are handed over to `receivers` other ranks.
  void sent(Index bytes, Index receivers) { stats_.bytes += bytes * receivers; }

  CompressionStats stats_;

 private:
  virtual void send(std::span<T> values) = 0;
  virtual bool arrived() = 0;
  virtual void receive(std::span<T> values) = 0;

  std::shared_ptr<comm::Communicator> comm_;
  Range slice_;
  std::span<T> values_;
};

/// For a slice of a gradient in which `matrices` lie (by places in the whole gradient; those that the slice holds
/// entirely are of use to "powersgd"). ValueError if the codec's spec is none.
template <class T>
std::unique_ptr<CompressedSum<T>> make_compressed_sum(std::shared_ptr<comm::Communicator> comm,
                                                      const Compression& compression, Range slice,
                                                      const std::vector<codec::MatrixAt>& matrices = {});

/// Where matrices lie in a model's flat gradient while an epoch lasts.
template <class T>
std::vector<codec::MatrixAt> matrices_of(const Job<T>& job);

}  // namespace pdnn::reduce
