#include "pdnn/engine/evaluator.hpp"

#include <mutex>

#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/subnormals.hpp"

namespace pdnn::engine {

template <class T>
template <class Action>
void Evaluator<T>::each_chunk(const Source<T>& source, std::span<const Index> rows, comm::Communicator* ranks, T* out,
                              Action action) {
  const auto network = model_.bound(source.sample());
  const Index count = static_cast<Index>(rows.size());
  const Index chunk = nn::Workspace<T>::rows_at_once(*network, source.sample(), count);
  auto workspace = workspaces_.take(*network, source.sample(), std::min(count, chunk), nn::Use::forward);
  comm::Interrupts interrupts;
  for (Index at = 0; at < count; at += chunk) {
    if (interrupts.look() && ranks) ranks->check_others();
    const std::lock_guard lock(mutex_);  // but not of the look: signal handlers may evaluate, too
    team_.run([&](const Member& member) {
      const Index size = std::min(chunk, count - at);
      const Batch<T> batch = source.gather(member, slice(rows, at, size), *workspace, network->takes_sparse());
      Tensor<T> y = workspace->y(size);
      if (out) y.data = out + at * y.width();
      const nn::Pass pass{.team = &member, .training = false, .first_row = at, .forward_only = true};
      network->forward(pass, model_.vars(*workspace), batch.x, y);
      action(member, *workspace, batch, y);
    });
  }
  workspaces_.give_back(std::move(workspace));
}

template <class T>
Evaluation Evaluator<T>::loss(const nn::Loss<T>& loss, const Source<T>& source, std::span<const Index> rows,
                              comm::Communicator* ranks, T* out) {
  Evaluation all;
  each_chunk(source, rows, ranks, out,
             [&](const Member& member, nn::Workspace<T>& workspace, const Batch<T>& batch, const Tensor<T>& y) {
               const nn::LossValue own =
                   loss(member, y, batch.target, 1, {nullptr, y.batch, y.sample}, workspace.rows());
               if (!member.first()) return;
               all.sums.value += own.value;
               all.sums.correct += own.correct;
               all.weight += loss.weight_of_rows(batch.target, y.batch);
             });
  return all;
}

template <class T>
void Evaluator<T>::predict(const Source<T>& source, std::span<const Index> rows, T* out) {
  each_chunk(source, rows, nullptr, out, [](auto&&...) {});
}

template <class T>
Evaluation Evaluator<T>::gradient(const nn::Loss<T>& loss, const Source<T>& source, std::span<const Index> rows,
                                  std::span<T> grads) {
  const auto network = model_.bound(source.sample());
  auto workspace = workspaces_.take(*network, source.sample(), std::ssize(rows));
  const SubnormalsAsZero zero;
  const Member alone;
  const Batch<T> batch = source.gather(alone, rows, *workspace, network->takes_sparse());
  const nn::Pass pass{.team = &alone, .training = false};
  Evaluation all{.sums = {}, .weight = source.weight(loss, rows)};
  all.sums =
      nn::run_pass<T>(*network, model_, *workspace, loss, pass, batch.x, batch.target, loss.scale(all.weight), grads);
  workspaces_.give_back(std::move(workspace));
  return all;
}

template class Evaluator<float>;
template class Evaluator<double>;

}  // namespace pdnn::engine
