#pragma once
/// SharedSum: each rank adds up the ranks' codes of its share of a slice, and sends the code of the sum to all.
#include "pdnn/reduce/encoder.hpp"

namespace pdnn::reduce {

/// A rank's own share is added as it is, so only what travels loses anything. With error feedback a rank remembers what
/// the codes of the other shares lost, and what the code of its sum did (as in H. Tang et al., "1-bit Adam", ICML
/// 2021).
template <class T>
class SharedSum : public CompressedSum<T> {
 public:
  SharedSum(std::shared_ptr<comm::Communicator> comm, const Compression& how, Range slice);
  Index bytes_sent() const override;
  std::vector<std::span<T>> memory() override;
  void measure() override {
    for (Encoder<T>& encoder : encoders_) encoder.measure();
  }

 private:
  Range share_of(int rank) const { return share(this->slice().size(), rank, this->comm().size()); }
  std::span<std::uint8_t> code_of(int rank, AlignedArray<std::uint8_t>& codes);
  void send(std::span<T> values) override;
  bool arrived() override;
  void receive(std::span<T> values) override;

  std::vector<Encoder<T>> encoders_;     // of the share of each rank; this rank's encodes the sum
  std::vector<Index> counts_, offsets_;  // bytes of each share's code, and where they begin among all
  AlignedArray<std::uint8_t> out_;       // the codes of this rank's gradient, share by share
  AlignedArray<std::uint8_t> in_;        // the ranks' codes of this rank's share
  AlignedArray<std::uint8_t> all_;       // the codes of the sums
  AlignedArray<T> sum_;                  // of this rank's share
  std::vector<comm::Request> requests_;
};

}  // namespace pdnn::reduce
