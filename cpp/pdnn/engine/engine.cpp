#include "pdnn/engine/engine.hpp"

namespace pdnn::engine {

template <class T>
void UpdateInBackward<T>::operator()(const Member& member, Range slice) {
  const Range mine = member.range(slice.size());
  const Index at = slice.begin + mine.begin;
  optimizer_.apply(at, model_.params->data() + at, model_.grads->data() + at, mine.size());
}

template <class T>
std::optional<kernels::Update<T>> UpdateInBackward<T>::of(Range slice) const {
  return optimizer_.update(slice, model_.params->data() + slice.begin);
}

template <class T>
void Engine<T>::update(optim::Optimizer<T>& optimizer, Range range) {
  UpdateInBackward<T> update(job_.model, optimizer);
  team().run([&](const Member& member) {
    if (optimizer.clip()) (*optimizer.clip())(member, slice(job_.model.grads->span(), range.begin, range.size()));
    update(member, range);
  });
}

template <class T>
nn::LossValue TeamEngine<T>::gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) {
  const bool leaves = step.leaves.count > 0;
  if (leaves) {
    leaves_.cut(step.leaves);
    workspace_.make_leaf_room(step.leaves.count);
  }
  nn::LossValue sums;
  team_.run([&](const Member& member) {
    const Batch<T> batch = source.gather(member, step.rows, workspace_);
    const kernels::Upcoming upcoming = source.upcoming(member, step.next);
    const nn::Pass pass{.team = &member,
                        .key = step.key,
                        .first_row = step.first_row,
                        .final = hooks.grad_ready,
                        .upcoming = &upcoming,
                        .batch_sum = hooks.batch_sum,
                        .leaves = leaves ? &leaves_ : nullptr};
    const nn::LossValue own = nn::run_pass(job_.network, job_.model, workspace_, job_.loss, pass, batch.x, batch.target,
                                           step.scale, job_.model.grads->span(), hooks.fused_update, hooks.more_nodes);
    if (!member.first()) return;
    sums = own;
    job_.model.commit(job_.network, pass, workspace_, step.count());
  });
  if (!leaves) return sums;
  Index begin = 0;
  auto leaf = static_cast<std::size_t>(step.leaves.run.begin);
  for (const Index end : leaves_.ends()) {
    hooks.leaf_sums[leaf++] = nn::sum_of_rows(workspace_.rows(), {begin, end});
    begin = end;
  }
  return {};
}

template <class T>
PoolEngine<T>::PoolEngine(const Job<T>& job, int workers, Index pieces, Index capacity)
    : Engine<T>(job), pieces_(pieces), pool_(workers), waiting_(job.model.count(), pieces) {
  require(pieces >= 1, "Pool: ", pieces, " parallel batches; expected at least 1");
  require(!job.network.traits().synchronized,
          "Pool: a layer with sync=True needs the whole batch at once, but a pool's pieces ",
          "go ahead one by one; use a team, or sync=False");
  require(!job.network.traits().communicates,
          "Pool: a layer that is dealt out to ranks needs them at the same passes, but a pool's pieces ",
          "go ahead in any order; use a team");
  for (int i = 0; i < workers; ++i)
    workers_.push_back({nn::Workspace<T>(job.network, job.sample, (capacity + pieces - 1) / pieces),
                        AlignedArray<T>(job.model.count()), LeafNodes()});
  sums_.resize(static_cast<std::size_t>(pieces));
}

template <class T>
nn::LossValue PoolEngine<T>::gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) {
  const Index count = job_.model.count();
  const bool leaves = step.leaves.count > 0;
  const Range run = leaves ? step.leaves.run : Range{0, pieces_};
  const std::span<nn::LossValue> sums = leaves ? hooks.leaf_sums : std::span(sums_);
  if (run != run_) nodes_ = nodes_of(run, leaves ? step.leaves.count : pieces_);
  run_ = run;
  std::size_t node = 0;
  pool_.run(run.size(), [&](const threads::Task& task) {
    Worker& worker = workers_[static_cast<std::size_t>(task.worker)];
    const Member alone;
    const Step piece = step.shard({static_cast<int>(task.number), static_cast<int>(run.size())});
    const Batch<T> batch = source.gather(alone, piece.rows, worker.workspace);
    if (leaves) {
      worker.leaf.cut(piece.leaves);
      worker.workspace.make_leaf_room(step.leaves.count);
    }
    const nn::Pass pass{
        .team = &alone, .key = step.key, .first_row = piece.first_row, .leaves = leaves ? &worker.leaf : nullptr};
    const Index leaf = run.begin + task.number;
    sums[static_cast<std::size_t>(leaf)] = nn::run_pass(job_.network, job_.model, worker.workspace, job_.loss, pass,
                                                        batch.x, batch.target, step.scale, worker.grads.span());
    task.order.pass(task.number, [&] {
      if (leaf == nodes_[node].end) ++node;
      const Index within = leaf - nodes_[node].begin;
      T* const sum = node == 0 ? job_.model.grads->data()
                               : slice(hooks.more_nodes, (static_cast<Index>(node) - 1) * count, count).data();
      waiting_.take(within, worker.grads, sum);
      waiting_.join(alone, within, nodes_[node].size(), {0, count}, sum);
      job_.model.commit(job_.network, pass, worker.workspace, piece.count());
    });
  });
  return leaves ? nn::LossValue{} : sum_of_leaves(sums);
}

template class Engine<float>;
template class Engine<double>;
template class UpdateInBackward<float>;
template class UpdateInBackward<double>;
template class TeamEngine<float>;
template class TeamEngine<double>;
template class PoolEngine<float>;
template class PoolEngine<double>;

}  // namespace pdnn::engine
