#pragma once
/// TreeSum: reproducible sums over ranks, by messages.
#include "pdnn/comm/communicator.hpp"
#include "pdnn/reduce/bucket_sum.hpp"
#include "pdnn/reduce/node_tree.hpp"

namespace pdnn::reduce {

/// The sum over the ranks of one slice of the gradients of their nodes of the tree over a batch's leaves. Each rank is
/// sent all nodes of its share of the slice, adds them up in the order of the tree, and sends the sum to the others: a
/// reduce-scatter and an all-gather. So the bits are those of one rank that makes all leaves.
template <class T>
class TreeSum : public BucketSum<T> {
 public:
  /// Sums that may be under way at once.
  static constexpr int kMost = comm::kMaxTag / 2;

  /// The `number`-th of those sums. `more_nodes`: the gradients of this rank's second,
  /// third, … node; that of the first lies where the sum will be. All of these outlive it.
  TreeSum(std::shared_ptr<comm::Communicator> comm, const NodeTree& tree, threads::Team& team, Range slice, int number,
          std::span<const T> more_nodes);

  void start(std::span<T> gradient) override;
  bool test() override;
  void finish() override;

 private:
  Range share_of(int rank) const { return share(slice_.size(), rank, comm_->size()); }
  std::span<const T> node_of_this_rank(Index number) const;
  void add_up(const Member& member) { tree_.add_up<T>(member, nodes_, {0, sum_.size()}, sum_.data()); }
  void exchange_sums();
  bool arrived();
  void wait();

  std::shared_ptr<comm::Communicator> comm_;
  const NodeTree& tree_;
  threads::Team& team_;
  Range slice_;
  int number_;
  std::span<const T> more_nodes_;
  std::span<T> values_;
  AlignedArray<T> arrived_;      // this rank's share of the others' nodes
  AlignedArray<T> sum_;          // of that share
  std::vector<const T*> nodes_;  // that share of every node
  std::vector<comm::Request> requests_;
  bool summed_ = false;
};

}  // namespace pdnn::reduce
