#include "pdnn/reduce/tree_sum.hpp"

namespace pdnn::reduce {

namespace {

constexpr int kTreeTag = comm::kMaxTag;  // away from the messages that programs send

}  // namespace

template <class T>
TreeSum<T>::TreeSum(const Replica<T>& replica, std::shared_ptr<comm::Communicator> comm)
    : GradientReducer<T>(replica),
      comm_(std::move(comm)),
      tree_(replica.leaves, comm_->size()),
      sums_(2 * leaf_sums_.size() + 1) {
  const Range mine = tree_.of_rank(comm_->rank());
  const Index elements = share_of(comm_->rank()).size();
  more_nodes_ = AlignedArray<T>((mine.size() - 1) * model().count());
  arrived_ = AlignedArray<T>((tree_.count() - mine.size()) * elements);
  sum_ = AlignedArray<T>(elements);
  const T* arrived = arrived_.data();
  for (int rank = 0; rank < comm_->size(); ++rank) {
    counts_.push_back(share_of(rank).size());
    for (Index node = tree_.of_rank(rank).begin; node < tree_.of_rank(rank).end; ++node) {
      nodes_.push_back(arrived);
      if (rank != comm_->rank()) arrived += elements;
    }
  }
  requests_.reserve(static_cast<std::size_t>(tree_.count() + comm_->size() * mine.size()));
}

template <class T>
nn::Hooks<T> TreeSum<T>::begin_step(bool) {
  std::ranges::fill(leaf_sums_, nn::LossValue{});
  return {.more_nodes = more_nodes_.span(), .leaf_sums = leaf_sums_};
}

/// To every rank its share of this rank's nodes, and the others' nodes of the own share.
template <class T>
void TreeSum<T>::exchange_nodes() {
  const int ranks = comm_->size(), own = comm_->rank();
  const Index count = model().count();
  const Range mine = share_of(own), my_nodes = tree_.of_rank(own);
  const auto node_of = [&](Index number) {  // of this rank
    return number == 0 ? model().grads->span().first(static_cast<std::size_t>(count))
                       : slice(more_nodes_.span(), (number - 1) * count, count);
  };
  requests_.clear();
  Index at = 0;
  for (Index node = 0; node < tree_.count(); ++node) {
    if (node >= my_nodes.begin && node < my_nodes.end) {
      nodes_[static_cast<std::size_t>(node)] = node_of(node - my_nodes.begin).data() + mine.begin;
      continue;
    }
    int rank = 0;
    while (node >= tree_.of_rank(rank).end) ++rank;
    if (mine.size() > 0)
      requests_.push_back(comm_->start_recv(comm::View(slice(arrived_.span(), at, mine.size())), rank, kTreeTag));
    at += mine.size();
  }
  for (int step = 1; step < ranks; ++step) {  // each rank to another one
    const int rank = (own + step) % ranks;
    const Range theirs = share_of(rank);
    if (theirs.size() == 0) continue;
    for (Index number = 0; number < my_nodes.size(); ++number)
      requests_.push_back(comm_->start_send(
          comm::ConstView(std::span<const T>(slice(node_of(number), theirs.begin, theirs.size()))), rank, kTreeTag));
  }
}

template <class T>
void TreeSum<T>::agree_on_gradient() {
  exchange_nodes();
  for (comm::Request& request : requests_) request.wait();
  replica_.engine.team().run(
      [&](const Member& member) { tree_.add_up<T>(member, nodes_, {0, sum_.size()}, sum_.data()); });
  comm_->all_gather(comm::ConstView(std::span<const T>(sum_.span())),
                    comm::View(slice(model().grads->span(), 0, model().count())), counts_);
}

template <class T>
StepSums TreeSum<T>::finish_step(const StepSums& own) {
  StepSums sums = own;
  {
    const auto timed = replica_.timer.time(&Phases::agreement);
    for (std::size_t leaf = 0; leaf < leaf_sums_.size(); ++leaf) {
      sums_[2 * leaf] = leaf_sums_[leaf].value;
      sums_[2 * leaf + 1] = leaf_sums_[leaf].correct;
    }
    sums_.back() = own.stop ? 1 : 0;
    comm::Request leaves = comm_->start_all_reduce(comm::View(std::span(sums_)));  // exact: the others have zeros
    agree_on_gradient();
    leaves.wait();
    for (std::size_t leaf = 0; leaf < leaf_sums_.size(); ++leaf)
      leaf_sums_[leaf] = {sums_[2 * leaf], sums_[2 * leaf + 1]};
    sums.loss = engine::sum_of_leaves(leaf_sums_);
    sums.stop = sums_.back() > 0;
  }
  const auto timed = replica_.timer.time(&Phases::update);
  replica_.engine.update(replica_.optimizer, {0, model().count()});
  return sums;
}

template class TreeSum<float>;
template class TreeSum<double>;

}  // namespace pdnn::reduce
