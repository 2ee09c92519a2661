#include "pdnn/parallel/epoch.hpp"

#include <numeric>

namespace pdnn::parallel {

namespace {

enum Stream : std::uint64_t { kOrder, kSteps, kDraws, kAugmentation };  // what a seed's children are for

}  // namespace

std::vector<Index> epoch_order(std::uint64_t seed, std::uint64_t epoch, Index count) {
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), Index{0});
  shuffle(Rng(seed).child(kOrder).child(epoch), order);
  return order;
}

std::vector<Index> draw_rows(std::uint64_t seed, std::uint64_t epoch, Index count, Index rows) {
  const Rng rng = Rng(seed).child(kDraws).child(epoch);
  std::vector<Index> drawn(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] = static_cast<Index>(rng.below(static_cast<std::uint64_t>(rows), i));
  return drawn;
}

Rng step_key(std::uint64_t seed, std::int64_t step) {
  return Rng(seed).child(kSteps).child(static_cast<std::uint64_t>(step));
}

Rng augmentation_key(std::uint64_t seed, std::uint64_t epoch) { return Rng(seed).child(kAugmentation).child(epoch); }

template <class T>
InPanels<T>::InPanels(const nn::Network<T>& network, nn::Model<T>& model, optim::Optimizer<T>& optimizer)
    : network_(network), model_(model), optimizer_(optimizer), room_(model.count()) {
  network_.to_panels(model_.params->span(), room_.span());
  for (Buffer<T>& memory : optimizer_.memory()) network_.to_panels(memory.span(), room_.span());
}

template <class T>
InPanels<T>::~InPanels() {
  network_.from_panels(model_.params->span(), room_.span());
  network_.from_panels(model_.grads->span(), room_.span());
  for (Buffer<T>& memory : optimizer_.memory()) network_.from_panels(memory.span(), room_.span());
}

template <class T>
Evaluator<T>::Evaluator(const nn::Model<T>& model, std::shared_ptr<const nn::Network<T>> network, const Shape& sample,
                        int threads)
    : model_(model), network_(std::move(network)), team_(threads), workspace_(*network_, sample, kChunk) {}

template <class T>
template <class Chunk>
void Evaluator<T>::each_chunk(const Source<T>& source, std::span<const Index> rows, Chunk&& chunk) {
  team_.run([&](const Member& member) {
    const Index count = static_cast<Index>(rows.size());
    for (Index at = 0; at < count; at += kChunk) {
      const Range range{at, std::min(at + kChunk, count)};
      const Batch<T> batch = source.gather(member, slice(rows, range.begin, range.size()), workspace_);
      const nn::Pass pass{.team = &member, .training = false};
      chunk(member, pass, range, batch);
      member.barrier();  // the workspace is filled anew
    }
  });
}

template <class T>
nn::LossValue Evaluator<T>::loss(const nn::Loss<T>& loss, const Source<T>& source, std::span<const Index> rows) {
  nn::LossValue sums;
  each_chunk(source, rows, [&](const Member& member, const nn::Pass& pass, Range range, const Batch<T>& batch) {
    const Tensor<T> y = workspace_.y(range.size());
    network_->forward(pass, model_.vars(workspace_), batch.x, y);
    const nn::LossValue own = loss(member, y, batch.target, 1, {nullptr, y.batch, y.sample}, workspace_.rows());
    if (!member.first()) return;
    sums.value += own.value;
    sums.correct += own.correct;
  });
  return sums;
}

template <class T>
void Evaluator<T>::predict(const Source<T>& source, std::span<const Index> rows, T* out) {
  each_chunk(source, rows, [&](const Member&, const nn::Pass& pass, Range range, const Batch<T>& batch) {
    Tensor<T> y = workspace_.y(range.size());
    y.data = out + range.begin * y.width();
    network_->forward(pass, model_.vars(workspace_), batch.x, y);
  });
}

template class InPanels<float>;
template class InPanels<double>;
template class Evaluator<float>;
template class Evaluator<double>;

}  // namespace pdnn::parallel
