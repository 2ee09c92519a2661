#pragma once
/// CompressedSum: one slice of a flat gradient added up over ranks, with a codec on the way, and statistics about it.
#include <utility>

#include "pdnn/codec/error_feedback.hpp"
#include "pdnn/codec/make_codec.hpp"
#include "pdnn/comm/communicator.hpp"
#include "pdnn/reduce/gradient_reducer.hpp"

namespace pdnn::reduce {

/// The sum over the ranks of one slice of their flat gradients; all ranks get the same bits. Remembers what its codec
/// lost, if errors are fed back. In a group of one nothing travels and nothing changes. Allocates nothing after
/// construction. Several may be under way at once, started in the same order on every rank and finished in the same
/// order.
template <class T>
class CompressedSum {
 public:
  virtual ~CompressedSum() = default;

  /// Encodes this rank's slice of the gradient and sends it; never waits. The slice is this object's until finish().
  void start(std::span<T> gradient);
  /// Moves it along; true when finish() need not wait for what was sent first.
  bool test() { return comm_->size() == 1 || arrived(); }
  /// Waits, and leaves the sum in the slice.
  void finish() {
    if (comm_->size() > 1) receive(values_);
  }
  /// start() and finish().
  void operator()(std::span<T> gradient) {
    start(gradient);
    finish();
  }

  Range slice() const { return slice_; }
  const CompressionStats& stats() const { return stats_; }
  /// Those since the last call.
  CompressionStats take_stats() { return std::exchange(stats_, {}); }
  /// Bytes that leave this rank in a sum.
  virtual Index bytes_sent() const = 0;
  /// What is remembered from sum to sum, as long on every rank.
  virtual std::vector<std::span<T>> memory() = 0;
  /// The next sum's errors are counted, if any are.
  virtual void measure() {}

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
