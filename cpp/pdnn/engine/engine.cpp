#include "pdnn/engine/engine.hpp"

#include "pdnn/core/subnormals.hpp"
#include "pdnn/kernels/table.hpp"

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

namespace {

/// From the numbers that a loss has left of each row of these leaves.
template <class T>
void write_leaf_sums(nn::Workspace<T>& workspace, const LeafNodes& leaves, std::span<nn::LossValue> sums) {
  Index begin = 0;
  auto leaf = static_cast<std::size_t>(leaves.leaves().run.begin);
  for (const Index end : leaves.ends()) {
    sums[leaf++] = nn::sum_of_rows(workspace.rows(), {begin, end});
    begin = end;
  }
}

}  // namespace

template <class T>
nn::LossValue TeamEngine<T>::gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) {
  const bool leaves = step.leaves.count > 0;
  if (leaves) {
    leaves_.cut(step.leaves);
    workspace_.make_leaf_room(step.leaves.count);
  }
  nn::LossValue sums;
  team_.run([&](const Member& member) {
    const Batch<T> batch =
        source.gather(member, step.rows, workspace_, /*sparse=*/!leaves && job_.network.takes_sparse());
    const kernels::Upcoming upcoming = source.upcoming(member, step.next);
    const nn::Pass pass{.team = &member,
                        .key = step.keys,
                        .first_row = step.first_row,
                        .final = hooks.grad_ready,
                        .number = step.number,
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
  write_leaf_sums(workspace_, leaves_, hooks.leaf_sums);
  return {};
}

/// Of a stack of layers nothing but kernels is left of a step.
template <class T>
bool TeamEngine<T>::steps(const Source<T>& source, const Steps& steps, optim::Optimizer<T>& optimizer,
                          nn::LossValue& sums) {
  const auto& [rows, batch, rates] = steps;
  const Member alone;
  const nn::Pass pass{.team = &alone};
  if (team_.size() > 1 || optimizer.clip() || !job_.network.in_stack(pass, batch)) return false;
  const SubnormalsAsZero zero;
  const double scale = job_.loss.scale(static_cast<double>(batch));
  const Tensor<T> y = workspace_.y(batch), dy = workspace_.dy(batch);
  const nn::Vars<T> vars = job_.model.vars(workspace_, nullptr);
  T *const params = job_.model.params->data(), *const grads = job_.model.grads->data();
  const Index count = job_.model.count();
  const kernels::Table<T>& table = kernels::table<T>();
  const bool varies = optimizer.by_step() || rates.rows > 0;
  const auto update = varies ? std::nullopt : optimizer.update({0, count}, params);
  for (Index at = 0, step = 0; at < std::ssize(rows); at += batch, ++step) {
    const Batch<T> now = source.gather(alone, slice(rows, at, batch), workspace_);
    if (at + batch < std::ssize(rows)) source.fetch(slice(rows, at + batch, batch));
    if (rates.rows > 0) optimizer.set_rates({rates.row(step), static_cast<std::size_t>(rates.cols)});
    optimizer.begin_step();
    job_.network.stack_forward(vars, now.x, y);
    sums += job_.loss(alone, y, now.target, scale, dy, workspace_.rows());
    job_.network.stack_backward(pass, vars, now.x, y, dy, job_.model.grads->span());
    if (update) {
      table.update(Part{}, *update, count, grads);
    } else {
      optimizer.apply(0, params, grads, count);
    }
  }
  return true;
}

template <class T>
PoolEngine<T>::PoolEngine(const Job<T>& job, int workers, Index pieces, Index capacity)
    : Engine<T>(job), pieces_(pieces), pool_(workers), waiting_(job.model.count(), pieces) {
  require(pieces >= 1, "Pool: ", pieces, " parallel batches; expected at least 1");
  require(!job.network.traits().communicates,
          "Pool: a layer that is dealt out to ranks needs them at the same passes, but a pool's pieces ",
          "go ahead in any order; use a team");
  const Index rows = (capacity + pieces - 1) / pieces;
  const Index at_once = job.network.traits().synchronized ? (pieces + workers - 1) / workers : 1;
  for (int i = 0; i < workers; ++i)
    workers_.push_back({nn::Workspace<T>(job.network, job.sample, at_once * rows), AlignedArray<T>(job.model.count()),
                        AlignedArray<T>(), LeafNodes()});
  summed_.resize(workers_.size());
  sums_.resize(static_cast<std::size_t>(pieces));
}

template <class T>
nn::LossValue PoolEngine<T>::gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) {
  if (!job_.network.traits().synchronized) return leaf_by_leaf(source, step, hooks);
  require(step.leaves.count > 0, "Pool: a layer with sync=True needs the whole batch at once, but a pool's pieces ",
          "go ahead one by one; use a team, or sync=False");
  run_by_run(source, step, hooks);
  return {};
}

template <class T>
nn::LossValue PoolEngine<T>::leaf_by_leaf(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) {
  const Index count = job_.model.count();
  const bool leaves = step.leaves.count > 0;
  const Range run = leaves ? step.leaves.run : Range{0, pieces_};
  const std::span<nn::LossValue> sums = leaves ? hooks.leaf_sums : std::span(sums_);
  if (run != run_) nodes_ = nodes_of(run, leaves ? step.leaves.count : pieces_);
  run_ = run;
  const Rng key = step.key();
  std::size_t node = 0;
  pool_.run(run.size(), [&](const threads::Task& task) {
    Worker& worker = workers_[static_cast<std::size_t>(task.worker)];
    const Member alone;
    const Step piece = step.shard({static_cast<int>(task.number), static_cast<int>(run.size())});
    const Batch<T> batch =
        source.gather(alone, piece.rows, worker.workspace, /*sparse=*/!leaves && job_.network.takes_sparse());
    if (leaves) {
      worker.leaf.cut(piece.leaves);
      worker.workspace.make_leaf_room(step.leaves.count);
    }
    const nn::Pass pass{
        .team = &alone, .key = key, .first_row = piece.first_row, .leaves = leaves ? &worker.leaf : nullptr};
    const Index leaf = run.begin + task.number;
    sums[static_cast<std::size_t>(leaf)] = nn::run_pass(job_.network, job_.model, worker.workspace, job_.loss, pass,
                                                        batch.x, batch.target, step.scale, worker.grads.span());
    task.order.pass(task.number, [&] {
      if (leaf == nodes_[node].end) ++node;
      const Index within = leaf - nodes_[node].begin;
      T* const sum = of_node(static_cast<Index>(node), std::ssize(nodes_), job_.model.grads->data(), hooks.more_nodes);
      waiting_.take(within, worker.grads, sum);
      waiting_.join(alone, within, nodes_[node].size(), {0, count}, sum);
      job_.model.commit(job_.network, pass, worker.workspace, piece.count());
    });
  });
  return leaves ? nn::LossValue{} : sum_of_leaves(sums);
}

template <class T>
void PoolEngine<T>::run_by_run(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) {
  cut_runs(step);
  const Rng key = step.key();
  pool_.team().run([&](const Member& member) {
    Worker& worker = workers_[static_cast<std::size_t>(member.index)];
    const Member alone;
    const Step own = step.shard(member);
    worker.leaf.cut(own.leaves);
    worker.workspace.make_leaf_room(step.leaves.count);
    WorkerSum sum(*this, member, hooks.batch_sum);
    const Batch<T> batch = source.gather(alone, own.rows, worker.workspace);
    const nn::Pass pass{.team = &alone,
                        .key = key,
                        .first_row = own.first_row,
                        .batch_sum = workers_.size() > 1 ? &sum : hooks.batch_sum,
                        .leaves = &worker.leaf};
    nn::run_pass<T>(job_.network, job_.model, worker.workspace, job_.loss, pass, batch.x, batch.target, step.scale,
                    worker.grads.span(), nullptr, worker.more_nodes.span());
    write_leaf_sums(worker.workspace, worker.leaf, hooks.leaf_sums);
    member.barrier();
    join_runs(member, hooks);
    if (member.first()) job_.model.commit(job_.network, pass, worker.workspace, own.count());  // the same of each run
  });
}

/// The nodes of the workers' runs, and how they become those of the step's.
template <class T>
void PoolEngine<T>::cut_runs(const Step& step) {
  const auto& [leaves, batch, run] = step.leaves;
  require(run.size() >= std::ssize(workers_), "Pool: ", workers_.size(), " workers for ", run.size(), " leaves");
  if (run == run_) return;
  run_ = {};  // until there is memory for all
  nodes_.clear(), made_.clear(), joins_.clear(), whole_.clear();
  for (Index i = 0; i < std::ssize(workers_); ++i) {
    Worker& worker = workers_[static_cast<std::size_t>(i)];
    const Range part = share(run.size(), i, std::ssize(workers_));
    const std::vector<Range> own = nodes_of({run.begin + part.begin, run.begin + part.end}, leaves);
    worker.more_nodes = AlignedArray<T>((std::ssize(own) - 1) * job_.model.count());
    for (Index node = 0; node < std::ssize(own); ++node)
      made_.push_back(of_node(node, std::ssize(own), worker.grads.data(), worker.more_nodes.span()));
    nodes_.insert(nodes_.end(), own.begin(), own.end());
  }
  std::vector<bool> joined(nodes_.size());
  join_nodes(nodes_, leaves, [&](std::size_t left, std::size_t right) {
    joins_.push_back({left, right});
    joined[right] = true;
  });
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    if (!joined[node]) whole_.push_back(node);
  run_ = run;
}

template <class T>
void PoolEngine<T>::join_runs(const Member& member, const nn::Hooks<T>& hooks) {
  const Index count = job_.model.count();
  const Range mine = member.range(count);
  for (const auto& [left, right] : joins_) {
    T* const sum = made_[left] + mine.begin;
    kernels::table<T>().add(Part{}, mine.size(), sum, made_[right] + mine.begin, sum);
  }
  for (Index node = 0; node < std::ssize(whole_); ++node) {
    T* const out = of_node(node, std::ssize(whole_), job_.model.grads->data(), hooks.more_nodes);
    std::copy_n(made_[whole_[static_cast<std::size_t>(node)]] + mine.begin, mine.size(), out + mine.begin);
  }
}

/// What a worker does not have is 0 with it, so the sums are exact in any order.
template <class T>
void PoolEngine<T>::WorkerSum::sum(std::span<double> values) {
  std::vector<std::span<double>>& all = engine.summed_;
  all[static_cast<std::size_t>(worker.index)] = values;
  worker.barrier();
  if (worker.first()) {
    for (std::size_t other = 1; other < all.size(); ++other)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += all[other][i];
    if (outside) outside->sum(values);
  }
  worker.barrier();
  if (!worker.first()) std::ranges::copy(all.front(), values.begin());
  worker.barrier();
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
