#include "pdnn/partition/column_row_linear.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::partition {

namespace {

/// values ← their sum over the group, when every member has written its part. A barrier must follow.
template <class T>
void add_up(const threads::Member& member, comm::Communicator& group, Tensor<T> values) {
  member.barrier();
  const comm::Labeled labeled({.what = "split layers"});
  if (member.first()) group.all_reduce(std::span(values.data, static_cast<std::size_t>(values.count())));
}

}  // namespace

template <class T>
ColumnParallelLinear<T>::ColumnParallelLinear(const nn::Linear<T>& whole, std::shared_ptr<comm::Communicator> group)
    : nn::Linear<T>(whole), group_(std::move(group)), whole_outputs_(whole.outputs()) {
  this->outputs_ = part_of(whole_outputs_, *group_).size();
}

template <class T>
void ColumnParallelLinear<T>::initialize(Rng rng, std::span<T> params, std::span<T>) const {
  const Range columns = part_of(whole_outputs_, *group_);
  for (Index row = 0; row < this->inputs_; ++row)
    this->weight_init_.fill(rng.child(0), slice(params, row * columns.size(), columns.size()),
                            row * whole_outputs_ + columns.begin);
  if (this->bias_)
    this->bias_init_.fill(rng.child(1), slice(params, this->inputs_ * columns.size(), columns.size()), columns.begin);
}

template <class T>
void ColumnParallelLinear<T>::backward(const nn::Pass& pass, nn::Vars<T> vars, Tensor<const T> x, Tensor<const T> y,
                                       Tensor<const T> dy, Tensor<T> dx, std::span<T> grads) const {
  nn::Linear<T>::backward(pass, vars, x, y, dy, dx, grads);
  if (dx.wanted()) add_up(*pass.team, *group_, dx);
}

template <class T>
RowParallelLinear<T>::RowParallelLinear(const nn::Linear<T>& whole, std::shared_ptr<comm::Communicator> group)
    : nn::Linear<T>(whole), group_(std::move(group)), whole_inputs_(whole.inputs()) {
  this->inputs_ = part_of(whole_inputs_, *group_).size();
}

template <class T>
void RowParallelLinear<T>::initialize(Rng rng, std::span<T> params, std::span<T>) const {
  const Range rows = part_of(whole_inputs_, *group_);
  const Index outputs = this->outputs_;
  this->weight_init_.fill(rng.child(0), slice(params, 0, rows.size() * outputs), rows.begin * outputs);
  if (this->bias_) this->bias_init_.fill(rng.child(1), slice(params, rows.size() * outputs, outputs));
}

template <class T>
void RowParallelLinear<T>::forward(const nn::Pass& pass, nn::Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  using kernels::Activation;
  const T* const b = group_->rank() == 0 ? this->bias(vars.params) : nullptr;  // once in the sum
  this->products().product_nn(*pass.team, x, this->weight(vars.params), b, Activation::identity, y);
  add_up(*pass.team, *group_, y);
  if (this->fusion_.own == Activation::identity) return;
  pass.team->barrier();
  kernels::table<T>().activate(*pass.team, this->fusion_.own, y.count(), y.data, y.data);
}

template class ColumnParallelLinear<float>;
template class ColumnParallelLinear<double>;
template class RowParallelLinear<float>;
template class RowParallelLinear<double>;

}  // namespace pdnn::partition
