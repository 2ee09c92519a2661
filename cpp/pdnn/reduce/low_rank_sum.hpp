#pragma once
/// LowRankSum: PowerSGD among ranks, whose factors are added up by an all-reduce each, as they are made.
#include "pdnn/reduce/compressed_sum.hpp"

namespace pdnn::reduce {

/// Vogels et al. 2019, algorithm 1: P = Σ M Q over the ranks, made orthonormal; Q = Σ Mᵀ P; the sum of the ranks'
/// matrices is P Qᵀ. A rank remembers M − P (Mᵀ P)ᵀ, its own part of what is lost. What is no matrix is added up
/// exactly.
template <class T>
class LowRankSum : public CompressedSum<T> {
 public:
  LowRankSum(std::shared_ptr<comm::Communicator> comm, const Compression& how, Range slice,
             std::unique_ptr<codec::PowerSgd<T>> codec);
  /// At least, by the best of all-reduces: 2 (p − 1)/p of the factors and the rest.
  Index bytes_sent() const override;
  /// What is fed back, and Q, from which the next iteration goes on.
  std::vector<std::span<T>> memory() override { return {residual_.span(), codec_->q()}; }

 private:
  void send(std::span<T> values) override;
  bool arrived() override { return request_.test(); }
  void receive(std::span<T> values) override;

  std::unique_ptr<codec::PowerSgd<T>> codec_;
  bool remember_;
  AlignedArray<T> residual_;
  comm::Request request_;
};

}  // namespace pdnn::reduce
