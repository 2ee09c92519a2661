#include "pdnn/reduce/shared_parameters.hpp"

#include <array>
#include <utility>

#include "pdnn/kernels/table.hpp"

namespace pdnn::reduce {

namespace {

/// Elements of a weight below which a meeting of the ranks costs more than a pass over it.
constexpr Index kLeastWeight = 16384;
/// Agreements that are timed. They are short: of few, another program may have disturbed all.
constexpr int kRounds = 8;
/// Elements that are added up before they are applied.
constexpr Index kBlock = 4096;

template <class T>
Index aligned(Index elements) {
  constexpr Index line = Index{kCacheLine} / Index{sizeof(T)};
  return (elements + line - 1) / line * line;
}

/// Of an epoch that was broken off, other ranks may be in its last step yet: an element is then what it was before
/// their update or after it. Nobody waits for them, so the thread sanitizer is not shown these reads.
template <class T>
[[gnu::no_sanitize_thread]] void copy_as_they_are(const AlignedArray<T>& from, AlignedArray<T>& to, Index count) {
  const volatile T* const elements = from.data();  // read here, not in memcpy
  T* const copies = to.data();
  for (Index i = 0; i < count; ++i) copies[i] = elements[i];
}

}  // namespace

template <class T>
Index SharedParameters<T>::bytes(const Replica<T>& replica, int ranks) {
  const Index array = aligned<T>(replica.job.model.count() + nn::Model<T>::kTail);
  const Index nodes = replica.leaves > 0 ? NodeTree(replica.leaves, ranks).count() : ranks;
  const Index arrays = 2 + std::ssize(replica.optimizer.state()) + nodes;  // parameters, total, memory, gradients
  return comm::SharedBarrier::bytes(ranks) + arrays * array * Index{sizeof(T)} +
         replica.leaves * Index{sizeof(nn::LossValue)};
}

template <class T>
SharedParameters<T>::SharedParameters(const Replica<T>& replica, std::shared_ptr<comm::Communicator> machine,
                                      std::shared_ptr<comm::Communicator> across,
                                      std::shared_ptr<comm::SharedMemory> memory)
    : GradientReducer<T>(replica),
      machine_(std::move(machine)),
      across_(std::move(across)),
      memory_(std::move(memory)),
      rendezvous_(*machine_, memory_->data()),
      stride_(aligned<T>(count() + nn::Model<T>::kTail)),
      room_(count()) {
  T* next = reinterpret_cast<T*>(memory_->data() + comm::SharedBarrier::bytes(machine_->size()));
  const auto take = [&](Index elements) {
    T* const array = std::exchange(next, next + stride_);
    return AlignedArray<T>(memory_, array, elements);
  };
  other_.params = std::make_shared<AlignedArray<T>>(take(count()));
  for (std::size_t i = 0; i < replica_.optimizer.state().size(); ++i) other_.state.push_back(take(count()));
  total_ = take(stride_).data();
  grads_ = next;
  if (replica.leaves > 0) {
    tree_.emplace(replica.leaves, machine_->size());
    for (int rank = 0; rank < machine_->size(); ++rank)
      for (Index node = 0; node < nodes_of_rank(rank).size(); ++node)
        nodes_.push_back(of_node(node, nodes_of_rank(rank).size(), grads(rank), more_nodes(rank)));
    all_sums_ = {reinterpret_cast<nn::LossValue*>(grads_ + tree_->count() * stride_), leaf_sums_.size()};
  }
  other_.grads = std::make_shared<AlignedArray<T>>(memory_, grads(machine_->rank()), model().grads->size());
  std::array<std::int32_t, 1> announce{replica_.engine.announces()};
  machine_->all_reduce(std::span(announce), comm::Op::min);
  all_announce_ = announce[0] != 0;
  constexpr std::size_t kMostSlices = 1024;
  slices_.reserve(kMostSlices);
  alone_ = measure_rounds(*machine_, kRounds, [&] {
    SharedParameters::meet();
    add_up(Member(), own_share({0, count()}), false, room_.data());
    SharedParameters::meet();
  });
}

template <class T>
Range SharedParameters<T>::own_share(Range slice) const {
  const Range mine = share(slice.size(), machine_->rank(), machine_->size());
  return {slice.begin + mine.begin, slice.begin + mine.end};
}

template <class T>
void SharedParameters<T>::add_up(const Member& member, Range range, bool others, T* out) const {
  if (tree_) return tree_->add_up<T>(member, nodes_, range, out);
  const Range mine = member.range(range.size());
  const Index at = range.begin + mine.begin;
  const int first = others && machine_->rank() == 0 ? 1 : 0;
  const T* sum = grads(first) + at;
  for (int rank = first + 1; rank < machine_->size(); ++rank) {
    if (others && rank == machine_->rank()) continue;
    kernels::table<T>().add(Part{}, mine.size(), sum, grads(rank) + at, out + at);
    sum = out + at;
  }
  if (sum != out + at) std::copy_n(sum, mine.size(), out + at);  // there was only one
}

template <class T>
void SharedParameters<T>::meet() const {
  const auto timed = replica_.timer.time(&Phases::agreement);
  rendezvous_.meet("ddp");
}

// ---- an epoch

template <class T>
void SharedParameters<T>::swap_buffers() {
  std::swap(model().params, other_.params);
  std::swap(model().grads, other_.grads);
  for (std::size_t i = 0; i < other_.state.size(); ++i) std::swap(replica_.optimizer.state()[i], other_.state[i]);
  within_ = !within_;
}

template <class T>
void SharedParameters<T>::begin_epoch() {
  const Range mine = own_share({0, count()});
  const auto fill = [&](const AlignedArray<T>& from, AlignedArray<T>& to) {
    std::copy(from.data() + mine.begin, from.data() + mine.end, to.data() + mine.begin);
  };
  meet();  // all ranks have read the result of the last epoch
  fill(*model().params, *other_.params);
  for (std::size_t i = 0; i < other_.state.size(); ++i) fill(replica_.optimizer.state()[i], other_.state[i]);
  meet();
  swap_buffers();
}

template <class T>
void SharedParameters<T>::end_epoch() {
  if (!within_) return;
  swap_buffers();
  const Index arrays = 1 + std::ssize(other_.state);
  machine_->has_read(arrays * (count() - own_share({0, count()}).size()) * Index{sizeof(T)});
  copy_as_they_are(*other_.params, *model().params, count());
  for (std::size_t i = 0; i < other_.state.size(); ++i)
    copy_as_they_are(other_.state[i], replica_.optimizer.state()[i], count());
}

// ---- a step

template <class T>
nn::Hooks<T> SharedParameters<T>::begin_step(bool keep) {
  whole_ = keep || replica_.optimizer.clip() || across_->size() > 1;
  slices_.clear();
  spent_before_ = replica_.timer.seconds(&Phases::agreement);
  added_ = 0;
  nn::Hooks<T> hooks;
  if (tree_) hooks = {.more_nodes = more_nodes(machine_->rank()), .leaf_sums = all_sums_};
  if (whole_) return hooks;
  const bool two_halves = tree_ && machine_->size() == 2 && tree_->count() == 2;
  if (all_announce_ && (!tree_ || two_halves))
    hooks.grad_ready = this, hooks.fused_update = this;
  else
    slices_.push_back({0, count()});
  return hooks;
}

template <class T>
void SharedParameters<T>::operator()(const Member& member, Range slice) {
  if (!member.first()) return;
  if (!slices_.empty() && slices_.back().begin == slice.end)
    slices_.back().begin = slice.begin;
  else
    slices_.push_back(slice);
}

template <class T>
std::optional<kernels::Update<T>> SharedParameters<T>::of(Range slice) const {
  if (slice.size() < kLeastWeight) return std::nullopt;
  return replica_.optimizer.update(slice, model().params->data() + slice.begin);
}

template <class T>
const T* SharedParameters<T>::from_others(const Member& member, Range slice) const {
  member.barrier();
  if (member.first()) {
    meet();
    added_ += slice.size();
  }
  member.barrier();
  if (machine_->size() == 2) return grads(1 - machine_->rank()) + slice.begin;
  add_up(member, slice, true, room_.data());
  member.barrier();
  return room_.data() + slice.begin;
}

template <class T>
StepSums SharedParameters<T>::finish_step(const StepSums& own) {
  write_tail(model(), own);
  meet();
  const auto timed = replica_.timer.time(&Phases::update);
  StepSums sums = sums_of_tails(own.rows);
  if (tree_) sums.loss = engine::sum_of_leaves(all_sums_);
  if (whole_) {
    agree_on_whole();
    if (!tree_) sums = read_tail(total_ + count(), own.rows);
  } else {
    update_slices();
  }
  count_reads();
  meet();  // before the next pass reads parameters, and writes gradients that others may be reading
  const double spent = replica_.timer.seconds(&Phases::agreement) - spent_before_;
  replica_.timer.add_hidden(std::max(0.0, alone_ - spent));
  return sums;
}

/// Of the ranks of this machine, in their order.
template <class T>
StepSums SharedParameters<T>::sums_of_tails(Index rows) const {
  StepSums sums{{0, 0}, rows, false};
  for (int rank = 0; rank < machine_->size(); ++rank) {
    const StepSums own = read_tail(grads(rank) + count(), rows);
    sums.loss += own.loss;
    sums.stop = sums.stop || own.stop;
  }
  return sums;
}

/// What this rank has read of the others in this step: their gradients, to add them up; of a sum that it needs whole,
/// their shares; their tails otherwise; and the parameters that they have updated.
template <class T>
void SharedParameters<T>::count_reads() {
  const int ranks = machine_->size();
  const Index others = nodes_of_rank(ranks - 1).end - nodes_of_rank(machine_->rank()).size();
  Index read = 0;
  if (whole_) {
    const Index all = added_whole(), mine = own_share({0, all}).size();
    read = others * mine + (all - mine) + (count() - own_share({0, count()}).size());
  } else {
    for (const Range& slice : slices_) added_ += own_share(slice).size();
    read = others * added_ + (count() - added_);
  }
  if (tree_ || !whole_) read += (ranks - 1) * nn::Model<T>::kTail;
  machine_->has_read(read * Index{sizeof(T)});
}

template <class T>
void SharedParameters<T>::update_slices() {
  replica_.engine.team().run([&](const Member& member) {
    for (const Range& slice : slices_) {
      const Range mine = own_share(slice), part = member.range(mine.size());
      const Index end = mine.begin + part.end;
      for (Index at = mine.begin + part.begin; at < end; at += kBlock) {  // while the sum is in cache
        const Index size = std::min(kBlock, end - at);
        add_up(Member(), {at, at + size}, false, room_.data());
        replica_.optimizer.apply(at, model().params->data() + at, room_.data() + at, size);
      }
    }
  });
}

/// The gradient of the global batch, on every rank; each then updates its share.
template <class T>
void SharedParameters<T>::agree_on_whole() {
  const Index all = added_whole();
  const Range mine = own_share({0, all});
  replica_.engine.team().run([&](const Member& member) { add_up(member, mine, false, total_); });
  if (across_->size() > 1)
    across_->all_reduce(comm::View(std::span(total_ + mine.begin, static_cast<std::size_t>(mine.size()))));
  meet();
  T* const kept = other_.grads->data();
  optim::Clip<T>* const clip = replica_.optimizer.clip();
  const Range share = own_share({0, count()});
  replica_.engine.team().run([&](const Member& member) {
    const Range part = member.range(all);
    std::copy(total_ + part.begin, total_ + part.end, kept + part.begin);
    member.barrier();
    if (clip) (*clip)(member, {kept, static_cast<std::size_t>(count())});
    const Range own = member.range(share.size());
    const Index at = share.begin + own.begin;
    replica_.optimizer.apply(at, model().params->data() + at, kept + at, own.size());
  });
}

template class SharedParameters<float>;
template class SharedParameters<double>;

}  // namespace pdnn::reduce
