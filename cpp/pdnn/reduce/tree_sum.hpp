#pragma once
/// TreeSum: reproducible sums over ranks, by messages.
#include "pdnn/reduce/gradient_reducer.hpp"
#include "pdnn/reduce/node_tree.hpp"

namespace pdnn::reduce {

/// The ranks make the gradients of the nodes of their leaves. Each rank is sent all nodes of its share of the elements,
/// adds them up in the order of the tree, and sends the sum to the others: a reduce-scatter and an all-gather. So the
/// bits are those of one rank that makes all leaves.
template <class T>
class TreeSum : public GradientReducer<T> {
 public:
  TreeSum(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm);

  nn::Hooks<T> begin_step(bool keep) override;
  StepSums finish_step(const StepSums& own) override;

 private:
  using GradientReducer<T>::replica_, GradientReducer<T>::model, GradientReducer<T>::leaf_sums_;

  Range share_of(int rank) const { return share(model().count(), rank, comm_->size()); }
  void exchange_nodes();
  void agree_on_gradient();

  std::shared_ptr<comm::Communicator> comm_;
  NodeTree tree_;
  AlignedArray<T> more_nodes_;   // of this rank, but the first
  AlignedArray<T> arrived_;      // this rank's share of the others' nodes
  AlignedArray<T> sum_;          // of that share
  std::vector<const T*> nodes_;  // that share of every node
  std::vector<Index> counts_;    // elements of each rank's share
  std::vector<double> sums_;     // a loss and right answers a leaf; wishes to stop
  std::vector<comm::Request> requests_;
};

}  // namespace pdnn::reduce
