#include "pdnn/nn/model.hpp"

#include <algorithm>

#include "pdnn/core/subnormals.hpp"

namespace pdnn::nn {

template <class T>
Model<T>::Model(std::shared_ptr<const Network<T>> network) : network_(std::move(network)) {
  const Index count = total(network_->parameters());
  params = std::make_shared<AlignedArray<T>>(count);
  grads = std::make_shared<AlignedArray<T>>(count + kTail);
  buffers = std::make_shared<AlignedArray<T>>(total(network_->buffers()));
}

template <class T>
Model<T>::Model(std::shared_ptr<const Network<T>> network, std::uint64_t seed) : Model(std::move(network)) {
  network_->initialize(Rng(seed), params->span(), buffers->span());
}

template <class T>
std::unique_ptr<Model<T>> Model<T>::clone() const {
  std::unique_ptr<Model> other(new Model(network_));
  other->params = std::make_shared<AlignedArray<T>>(params->copy());
  other->grads = std::make_shared<AlignedArray<T>>(grads->copy());
  other->buffers = std::make_shared<AlignedArray<T>>(buffers->copy());
  return other;
}

template <class T>
std::shared_ptr<const Network<T>> Model<T>::bound(const Shape& in) const {
  const auto lock = threads::lock_list(mutex_, bound_);
  for (const auto& [shape, network] : bound_)
    if (shape == in) return network;
  auto network = network_->bound(in);
  constexpr std::size_t kMostShapes = 16;
  if (bound_.size() == kMostShapes) bound_.erase(bound_.begin());
  bound_.emplace_back(in, network);
  return network;
}

template <class T>
LossValue run_pass(const Network<T>& network, const Model<T>& model, Workspace<T>& workspace, const Loss<T>& loss,
                   const Pass& pass, Tensor<const T> x, const Target<T>& target, double scale, std::span<T> grads,
                   const FusedUpdate<T>* updates, std::span<T> more_nodes) {
  const Tensor<T> y = workspace.y(x.batch), dy = workspace.dy(x.batch);
  const Vars<T> vars = model.vars(workspace, updates, more_nodes);
  const bool stack = network.in_stack(pass, x.batch) && !pass.add;
  if (stack) {
    network.stack_forward(vars, x, y);
  } else {
    network.forward(pass, vars, x, y);
  }
  const LossValue sums = loss(*pass.team, y, target, scale, dy, workspace.rows());
  if (stack) {
    network.stack_backward(pass, vars, x, y, dy, grads);
  } else {
    network.backward(pass, vars, x, y, dy, {nullptr, x.batch, x.sample}, grads);
  }
  return sums;
}

template <class T>
LossValue Model<T>::gradient(Tensor<const T> x, const Target<T>& target, const Loss<T>& loss, bool training, Rng key,
                             std::span<T> grads_out) const {
  const auto network = bound(x.sample);
  auto workspace = workspaces_.take(*network, x.sample, x.batch);
  const SubnormalsAsZero zero;
  const Member alone;
  const Pass pass{.team = &alone, .training = training, .key = key};
  const LossValue sums = run_pass<T>(*network, *this, *workspace, loss, pass, x, target,
                                     loss.scale(loss.weight_of_rows(target, x.batch)), grads_out);
  workspaces_.give_back(std::move(workspace));
  return sums;
}

template <class T>
void Model<T>::forward(Tensor<const T> x, bool training, Rng key, Tensor<T> y, Index first_row) const {
  const auto network = bound(x.sample);
  auto workspace = workspaces_.take(*network, x.sample, x.batch, Use::forward);
  const SubnormalsAsZero zero;
  const Member alone;
  const Pass pass{.team = &alone, .training = training, .key = key, .first_row = first_row, .forward_only = true};
  network->forward(pass, vars(*workspace), x, y);
  workspaces_.give_back(std::move(workspace));
}

template class Model<float>;
template class Model<double>;
template LossValue run_pass(const Network<float>&, const Model<float>&, Workspace<float>&, const Loss<float>&,
                            const Pass&, Tensor<const float>, const Target<float>&, double, std::span<float>,
                            const FusedUpdate<float>*, std::span<float>);
template LossValue run_pass(const Network<double>&, const Model<double>&, Workspace<double>&, const Loss<double>&,
                            const Pass&, Tensor<const double>, const Target<double>&, double, std::span<double>,
                            const FusedUpdate<double>*, std::span<double>);

}  // namespace pdnn::nn
