#pragma once
/// SharedParameters: replicas on one machine keep one copy of the parameters, of which each rank updates a share.
#include "pdnn/comm/shared_barrier.hpp"
#include "pdnn/comm/shared_memory.hpp"
#include "pdnn/reduce/gradient_reducer.hpp"
#include "pdnn/reduce/node_tree.hpp"

namespace pdnn::reduce {

/// While an epoch lasts, parameters, what the optimizer remembers of them, and every rank's gradient lie in memory that
/// the ranks share. A weight in panels is dealt to the ranks by panels: of those that others update a rank stores its
/// gradient, and its own it updates inside the product that makes their gradient, whose sums begin with the others'. Of
/// everything else each rank adds up and updates its share when all gradients are there. So the gradient is read once
/// and the parameters are written once, by the rank that needs them next to its core.
///
/// Of a batch in leaves each rank stores the gradients of its nodes, and all is added up in shares, in the order of the
/// tree, when all of them are there. Where the batch is the sum of two nodes, one of each rank, the weights are updated
/// inside the products all the same: the order of two does not matter.
///
/// Ranks of several machines: each machine's ranks add up a share each, the shares are all-reduced between machines,
/// and then every machine updates its parameters.
template <class T>
class SharedParameters : public GradientReducer<T>, public nn::GradReady, public nn::FusedUpdate<T> {
 public:
  /// Collective. `machine` has the ranks of this one's machine, `across` those with the same place in every machine;
  /// `memory` is shared by `machine`, has bytes(...) and is zero.
  SharedParameters(const Replica<T>& replica, std::shared_ptr<comm::Communicator> machine,
                   std::shared_ptr<comm::Communicator> across, std::shared_ptr<comm::SharedMemory> memory);
  static Index bytes(const Replica<T>& replica, int ranks);

  void begin_epoch() override;
  void end_epoch() override;
  nn::Hooks<T> begin_step(bool keep) override;
  StepSums finish_step(const StepSums& own) override;
  void step_without_weight() override { std::ranges::fill(other_.grads->span(), T{}); }
  Range own_elements() const override { return own_share({0, count()}); }
  void meet() const override;

  void operator()(const Member& member, Range slice) override;
  std::optional<kernels::Update<T>> of(Range slice) const override;
  Range own_panels(Index panels) const override { return share(panels, machine_->rank(), machine_->size()); }
  const T* from_others(const Member& member, Range slice) const override;

  /// Seconds of an agreement beside which nothing is done: the slowest rank's.
  double alone() const { return alone_; }

 private:
  using GradientReducer<T>::replica_, GradientReducer<T>::model, GradientReducer<T>::leaf_sums_;

  /// The buffers of the model and the optimizer that lie in shared memory, or in their stead during an epoch.
  struct Buffers {
    std::shared_ptr<AlignedArray<T>> params, grads;
    std::vector<AlignedArray<T>> state;
  };

  Index count() const { return model().count(); }
  /// Nodes whose gradients a rank stores; of a batch that is not cut, one.
  Range nodes_of_rank(int rank) const { return tree_ ? tree_->of_rank(rank) : Range{rank, rank + 1}; }
  /// A rank's first node, with its sums in the tail; the others follow without.
  T* grads(int rank) const { return grads_ + nodes_of_rank(rank).begin * stride_; }
  std::span<T> more_nodes(int rank) const {
    return {grads(rank) + stride_, static_cast<std::size_t>((nodes_of_rank(rank).size() - 1) * count())};
  }
  /// The part of a slice that this rank adds up and updates.
  Range own_share(Range slice) const;
  /// This member's part of out = the sum of the ranks' gradients over a range, in the order of ranks or of the tree;
  /// out lies as they do. With `others`, this rank's own is left out.
  void add_up(const Member& member, Range range, bool others, T* out) const;
  void swap_buffers();
  /// Elements of the gradients and, unless the leaves have them, their tails, that are added up as a whole.
  Index added_whole() const { return count() + (tree_ ? 0 : nn::Model<T>::kTail); }
  StepSums sums_of_tails(Index rows) const;
  void count_reads();
  void update_slices();
  void agree_on_whole();

  std::shared_ptr<comm::Communicator> machine_, across_;
  std::shared_ptr<comm::SharedMemory> memory_;
  mutable comm::SharedBarrier rendezvous_;
  std::optional<NodeTree> tree_;           // of a batch in leaves
  Index stride_ = 0;                       // elements of a gradient with its tail, to the end of a cache line
  T *grads_ = nullptr, *total_ = nullptr;  // of the nodes; of the global batch
  std::vector<const T*> nodes_;            // of a batch in leaves: where each node's gradient begins
  std::span<nn::LossValue> all_sums_;      // and what its leaves have of the loss, in shared memory
  Buffers other_;                          // the shared ones between epochs, the own ones within
  mutable AlignedArray<T> room_;
  /// What became final in this step. Neighbours are one: how many slices a pass announces depends on its rows, of which
  /// ranks have different numbers, and all must cut it alike.
  std::vector<Range> slices_;
  bool all_announce_ = false;  // every rank's engine, slice by slice
  bool within_ = false, whole_ = false;
  double spent_before_ = 0;  // seconds of agreement when this step began
  mutable Index added_ = 0;  // elements of the sum of all gradients that this rank has made in this step
  double alone_ = 0;
};

}  // namespace pdnn::reduce
