#include "pdnn/engine/evaluator.hpp"

namespace pdnn::engine {

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

template class Evaluator<float>;
template class Evaluator<double>;

}  // namespace pdnn::engine
