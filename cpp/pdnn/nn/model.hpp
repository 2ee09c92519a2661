#pragma once
/// Model: a network with its parameters, gradients and buffers, each one flat array.
#include "pdnn/nn/loss.hpp"
#include "pdnn/nn/workspace.hpp"

namespace pdnn::nn {

template <class T>
class Model {
 public:
  /// Behind the gradients lies room for a step's sums (loss, correct, stop), which ride along when ranks agree on them.
  static constexpr Index kTail = 3;

  /// Parameters and buffers are 0, for those who take them from elsewhere.
  explicit Model(std::shared_ptr<const Network<T>> network);
  /// Draws the initial parameters: a function of (seed, index of the layer, index of the element).
  Model(std::shared_ptr<const Network<T>> network, std::uint64_t seed);

  /// The same network, with buffers of its own that hold the same values.
  std::unique_ptr<Model> clone() const;

  /// The network bound to a sample shape; those of the last few shapes are kept. Throws ValueError if the shape does
  /// not fit.
  std::shared_ptr<const Network<T>> bound(const Shape& in) const;
  std::vector<Parameter> parameters() const { return network_->parameters(); }
  /// As it was described.
  const Network<T>& network() const { return *network_; }

  /// The gradient of the loss of a batch under the loss's reduction, stored in `grads`; the model is read only, so any
  /// number of threads may call at once. Returns the sums over the rows.
  LossValue gradient(Tensor<const T> x, const Target<T>& target, const Loss<T>& loss, bool training, Rng key,
                     std::span<T> grads) const;
  /// The network's outputs for a batch, or a part of it that begins with `first_row`.
  void forward(Tensor<const T> x, bool training, Rng key, Tensor<T> y, Index first_row = 0) const;

  /// What a pass in this workspace reads.
  Vars<T> vars(Workspace<T>& workspace, const FusedUpdate<T>* updates = nullptr, std::span<T> more_nodes = {}) const {
    return workspace.vars(params->span(), buffers->span(), updates, more_nodes);
  }
  /// Takes what a training pass over `rows` rows left in the workspace into the buffers: once a pass, after it, by one
  /// thread; for the pieces of a batch in their order.
  void commit(const Network<T>& network, const Pass& pass, const Workspace<T>& workspace, Index rows) {
    network.commit(pass, workspace.saved(), rows, buffers->span());
  }

  Index count() const { return params->size(); }

  // Shared, so that arrays which look into them may outlive the model.
  std::shared_ptr<AlignedArray<T>> params, grads, buffers;
  threads::Mutex steps;  ///< held by a step that changes them where users see them

 private:
  std::shared_ptr<const Network<T>> network_;
  mutable WorkspaceStore<T> workspaces_;
  mutable threads::Mutex mutex_;
  mutable std::vector<std::pair<Shape, std::shared_ptr<const Network<T>>>> bound_;
};

/// One forward pass, loss and backward pass over a batch, by every member of pass.team. Stores (or adds) the gradient
/// of scale × the sum of the rows' losses; returns the sums over the rows. The model is read only. With `updates`,
/// slices that a layer updates itself have no gradient afterwards. A pass over leaves stores the gradient of its first
/// node in `grads`, those of the others in `more_nodes`.
template <class T>
LossValue run_pass(const Network<T>& network, const Model<T>& model, Workspace<T>& workspace, const Loss<T>& loss,
                   const Pass& pass, Tensor<const T> x, const Target<T>& target, double scale, std::span<T> grads,
                   const FusedUpdate<T>* updates = nullptr, std::span<T> more_nodes = {});

}  // namespace pdnn::nn
