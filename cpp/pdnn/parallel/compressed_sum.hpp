#pragma once
/// CompressedSum: one slice of a flat gradient added up over ranks, with a codec on the way, and books about it.
#include <optional>

#include "pdnn/codec/error_feedback.hpp"
#include "pdnn/codec/make_codec.hpp"
#include "pdnn/comm/communicator.hpp"
#include "pdnn/parallel/books.hpp"
#include "pdnn/parallel/strategy.hpp"

namespace pdnn::parallel {

/// How codes travel among p ranks. `gather`: every rank gets every rank's code of the slice, and adds them up in the
/// order of ranks. `shares`: rank i gets the ranks' codes of the i-th share of the slice, adds them up in that order
/// (its own share uncoded), and sends the code of the sum to all. Of a code of b bytes a rank sends (p − 1) b by the
/// first and 2 (p − 1)/p b by the second, which encodes twice. `best`: gather for two ranks, shares for more.
enum class Form { best, gather, shares };

struct Compression {
  std::string codec;             ///< its spec
  std::optional<bool> feedback;  ///< whether errors are fed back; none: where the codec wants it
  Form form = Form::best;        ///< "powersgd" has one of its own: its factors are added up by two all-reduces
  bool measure = false;          ///< errors go into the books without feedback too, for a pass more
};

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
  void finish();
  /// start() and finish().
  void operator()(std::span<T> gradient) {
    start(gradient);
    finish();
  }

  Range slice() const { return slice_; }
  const Books& books() const { return books_; }
  /// Bytes that leave this rank in a sum.
  virtual Index bytes_sent() const = 0;

 protected:
  CompressedSum(std::shared_ptr<comm::Communicator> comm, Range slice);
  comm::Communicator& comm() { return *comm_; }
  const comm::Communicator& comm() const { return *comm_; }
  /// Counts bytes that are handed over to `receivers` other ranks.
  void sent(Index bytes, Index receivers) { books_.bytes += bytes * receivers; }

  Books books_;

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

}  // namespace pdnn::parallel
