#pragma once
/// NetworkPart: what a rank holds of a network that several ranks hold together, copied out of the whole model and
/// back.
#include "pdnn/comm/communicator.hpp"
#include "pdnn/nn/model.hpp"
#include "pdnn/optim/optimizer.hpp"

namespace pdnn::partition {

/// rows × cols elements of a flat buffer, from element `whole` on, rows `stride` apart. In the part's own buffer they
/// lie one after another.
struct Block {
  Index whole, stride, rows, cols;
  Index count() const { return rows * cols; }
  bool operator==(const Block&) const = default;
};
Index count(const std::vector<Block>& blocks);

/// A part's layers, the first of them number `first_number` of the network, and where the whole model has their
/// parameters and buffers.
template <class T>
struct NetworkPart {
  std::vector<nn::LayerPtr<T>> layers;
  Index first_number = 0;
  std::vector<Block> params{}, buffers{};
};

/// Some layers of a network, one after another: a stage of a pipeline.
template <class T>
NetworkPart<T> layers_of(const nn::Network<T>& network, Range layers);

/// The model of a part, or of all, as it lies while it is trained, with an optimizer of its own, beside the whole model
/// that every rank of a group has and users see. Between take() and gather() the whole one stands still.
template <class T>
class PartialModel {
 public:
  /// Collective: `group` are the ranks that hold one whole model together. ValueError if the optimizer's groups differ
  /// within a block. If it clips, so does the part's, by the norm of the whole gradient.
  PartialModel(std::shared_ptr<nn::Model<T>> whole, std::shared_ptr<optim::Optimizer<T>> optimizer,
               const NetworkPart<T>& part, std::shared_ptr<comm::Communicator> group, nn::Layout<T> layout = {});
  /// All of a model that this rank trains by itself.
  PartialModel(const std::shared_ptr<nn::Model<T>>& whole, std::shared_ptr<optim::Optimizer<T>> optimizer,
               nn::Layout<T> layout);

  nn::Model<T>& model() { return model_; }
  optim::Optimizer<T>& optimizer() { return *part_optimizer_; }

  /// Copies the part's parameters, buffers and all that the optimizer knows of them out of the whole.
  void take();
  /// Collective: the whole model, its last gradient, its buffers and the optimizer's state again on every rank.
  void gather();
  /// Where the whole model has an element of the part's parameters.
  Index place(Index element) const;

 private:
  using Blocks = std::vector<Block>;

  void take_segments();
  typename optim::Clip<T>::Share share_of_norm() const;
  void exchange_blocks(const NetworkPart<T>& part);
  /// Calls copy(array of the whole, array of the part) for each that is as long as the parameters.
  template <class Copy>
  void each_array(Copy copy);
  void gather_array(std::span<const T> part, const std::vector<Blocks>& blocks, std::span<T> whole);

  std::shared_ptr<nn::Model<T>> whole_;
  std::shared_ptr<optim::Optimizer<T>> optimizer_;
  std::shared_ptr<comm::Communicator> group_;
  nn::Model<T> model_;
  std::unique_ptr<optim::Optimizer<T>> part_optimizer_;
  std::vector<Blocks> params_, buffers_;  // of every rank
  nn::Layout<T> layout_;
};

}  // namespace pdnn::partition
