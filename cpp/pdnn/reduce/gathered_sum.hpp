#pragma once
/// GatheredSum: every rank gets every rank's code, and adds up what they hold in the order of ranks.
#include "pdnn/reduce/encoder.hpp"

namespace pdnn::reduce {

template <class T>
class GatheredSum : public CompressedSum<T> {
 public:
  GatheredSum(std::shared_ptr<comm::Communicator> comm, const Compression& how, Range slice);
  Index bytes_sent() const override { return mine_.size() * (this->comm().size() - 1); }
  std::vector<std::span<T>> memory() override { return {encoder_.memory()}; }
  void measure() override { encoder_.measure(); }

 private:
  void send(std::span<T> values) override;
  bool arrived() override { return request_.test(); }
  void receive(std::span<T> values) override;

  Encoder<T> encoder_;
  AlignedArray<std::uint8_t> mine_, all_;  // this rank's code; all ranks'
  comm::Request request_;
};

}  // namespace pdnn::reduce
