#include "pdnn/reduce/tree_sum.hpp"

namespace pdnn::reduce {

namespace {

/// Of the nodes of a sum, and of its shares, which others of the same tag never overtake.
int tag_of_nodes(int number) { return 2 * number; }
int tag_of_sums(int number) { return 2 * number + 1; }

}  // namespace

template <class T>
TreeSum<T>::TreeSum(std::shared_ptr<comm::Communicator> comm, const NodeTree& tree, threads::Team& team, Range slice,
                    int number, std::span<const T> more_nodes)
    : comm_(std::move(comm)), tree_(tree), team_(team), slice_(slice), number_(number), more_nodes_(more_nodes) {
  const Index own = tree_.of_rank(comm_->rank()).size(), elements = share_of(comm_->rank()).size();
  arrived_ = AlignedArray<T>((tree_.count() - own) * elements);
  sum_ = AlignedArray<T>(elements);
  const T* arrived = arrived_.data();
  for (int rank = 0; rank < comm_->size(); ++rank) {
    for (Index node = 0; node < tree_.of_rank(rank).size(); ++node) {
      nodes_.push_back(arrived);
      if (rank != comm_->rank()) arrived += elements;
    }
  }
  requests_.reserve(static_cast<std::size_t>(tree_.count() + comm_->size() * (own + 2)));
}

template <class T>
std::span<const T> TreeSum<T>::node_of_this_rank(Index number) const {
  const Index nodes = tree_.of_rank(comm_->rank()).size();
  return {of_node<const T>(number, nodes, values_.data(), more_nodes_, slice_.begin), values_.size()};
}

/// To every rank its share of this rank's nodes, and the others' nodes of the own share.
template <class T>
void TreeSum<T>::start(std::span<T> gradient) {
  values_ = slice(gradient, slice_.begin, slice_.size());
  summed_ = false;
  requests_.clear();
  const int ranks = comm_->size(), own = comm_->rank();
  const Range mine = share_of(own), my_nodes = tree_.of_rank(own);
  for (Index node = my_nodes.begin; node < my_nodes.end; ++node)
    nodes_[static_cast<std::size_t>(node)] = node_of_this_rank(node - my_nodes.begin).data() + mine.begin;
  Index at = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own || mine.size() == 0) continue;
    for (Index node = 0; node < tree_.of_rank(rank).size(); ++node, at += mine.size())
      requests_.push_back(
          comm_->start_recv(comm::View(slice(arrived_.span(), at, mine.size())), rank, tag_of_nodes(number_)));
  }
  for (int step = 1; step < ranks; ++step) {  // each rank to another one
    const int rank = (own + step) % ranks;
    const Range theirs = share_of(rank);
    if (theirs.size() == 0) continue;
    for (Index node = 0; node < my_nodes.size(); ++node)
      requests_.push_back(comm_->start_send(
          comm::ConstView(slice(node_of_this_rank(node), theirs.begin, theirs.size())), rank, tag_of_nodes(number_)));
  }
}

/// Every rank's share of the sum to all others. No node is needed any more.
template <class T>
void TreeSum<T>::exchange_sums() {
  const comm::Labeled labeled({.what = "bucket", .number = number_});
  summed_ = true;
  requests_.clear();
  const int ranks = comm_->size(), own = comm_->rank();
  std::ranges::copy(sum_.span(), values_.begin() + share_of(own).begin);
  for (int step = 1; step < ranks; ++step) {
    const int from = (own + ranks - step) % ranks;
    const Range theirs = share_of(from);
    if (theirs.size() > 0)
      requests_.push_back(
          comm_->start_recv(comm::View(slice(values_, theirs.begin, theirs.size())), from, tag_of_sums(number_)));
  }
  for (int step = 1; step < ranks && sum_.size() > 0; ++step)
    requests_.push_back(comm_->start_send(comm::ConstView(std::span<const T>(sum_.span())), (own + step) % ranks,
                                          tag_of_sums(number_)));
}

template <class T>
bool TreeSum<T>::arrived() {
  bool all = true;
  for (comm::Request& request : requests_) all = request.test() && all;
  return all;
}

template <class T>
void TreeSum<T>::wait() {
  for (comm::Request& request : requests_) request.wait();
}

/// Called within a pass, by one of its threads.
template <class T>
bool TreeSum<T>::test() {
  if (!arrived()) return false;
  if (summed_) return true;
  add_up(Member());
  exchange_sums();
  return arrived();
}

template <class T>
void TreeSum<T>::finish() {
  wait();
  if (summed_) return;
  team_.run([&](const Member& member) { add_up(member); });
  exchange_sums();
  wait();
}

template class TreeSum<float>;
template class TreeSum<double>;

}  // namespace pdnn::reduce
