#pragma once
/// Tensor parallel: a Linear whose weight is cut among the ranks of a group, by columns or by rows. Columns,
/// activation, rows: one all-reduce forward and one backward for two layers. Shoeybi et al., "Megatron-LM",
/// arXiv:1909.08053, 2019.
#include "pdnn/comm/communicator.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/partition/network_part.hpp"

namespace pdnn::partition {

/// The part of a dimension that rank `group.rank()` holds; empty where there are more ranks.
inline Range part_of(Index count, const comm::Communicator& group) { return share(count, group.rank(), group.size()); }

/// Some columns of w and b: y = f(x w + b) is those columns of the whole y, made without communication. dx is a sum
/// over the ranks. x: [batch, inputs], the same on all ranks; w: [inputs, own outputs], b: [own outputs].
template <class T>
class ColumnParallelLinear : public nn::Linear<T> {
 public:
  ColumnParallelLinear(const nn::Linear<T>& whole, std::shared_ptr<comm::Communicator> group);

  std::string_view name() const override { return "ColumnParallelLinear"; }
  nn::Traits traits() const override { return {.communicates = true}; }
  /// The values of these columns in the whole layer.
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void backward(const nn::Pass& pass, nn::Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                Tensor<T> dx, std::span<T> grads) const override;

 protected:
  std::shared_ptr<nn::Linear<T>> clone() const override { return std::make_shared<ColumnParallelLinear>(*this); }

 private:
  std::shared_ptr<comm::Communicator> group_;
  Index whole_outputs_;
};

/// Some rows of w, for as many columns of the whole x: y = f(Σ x w + b) is a sum over the ranks, to which b is added
/// once. Nothing is communicated backward. x: [batch, own inputs]; w: [own inputs, outputs]; b: [outputs] and y:
/// [batch, outputs], the same on all ranks.
template <class T>
class RowParallelLinear : public nn::Linear<T> {
 public:
  RowParallelLinear(const nn::Linear<T>& whole, std::shared_ptr<comm::Communicator> group);

  std::string_view name() const override { return "RowParallelLinear"; }
  nn::Traits traits() const override { return {.communicates = true}; }
  /// The values of these rows in the whole layer.
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const nn::Pass& pass, nn::Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;

 protected:
  std::shared_ptr<nn::Linear<T>> clone() const override { return std::make_shared<RowParallelLinear>(*this); }

 private:
  std::shared_ptr<comm::Communicator> group_;
  Index whole_inputs_;
};

}  // namespace pdnn::partition
