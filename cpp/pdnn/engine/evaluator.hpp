#pragma once
/// Evaluator: outputs, losses and gradients of a model in evaluation mode.
#include "pdnn/comm/communicator.hpp"
#include "pdnn/data/source.hpp"
#include "pdnn/threads/mutex.hpp"

namespace pdnn::engine {

using data::Batch;
using data::Source;
using threads::Member;

/// Sums over rows, and what these count in the mean.
struct Evaluation {
  nn::LossValue sums;
  double weight = 0;
};

/// Outputs and losses in evaluation mode, a chunk of rows at a time, by a team of threads; between chunks it looks for
/// interrupts. Any number of threads may call at once, with samples of any shapes that fit: the chunks of their
/// calls take turns, but each computes gradients alone, beside the others.
template <class T>
class Evaluator {
 public:
  Evaluator(const nn::Model<T>& model, int threads) : model_(model), team_(threads) {}

  /// Throws Aborted if one of `ranks` fails meanwhile; nullptr: there are no others. out: [rows, outputs], or null if
  /// nobody wants them.
  Evaluation loss(const nn::Loss<T>& loss, const Source<T>& source, std::span<const Index> rows,
                  comm::Communicator* ranks, T* out);
  /// out: [rows, outputs]
  void predict(const Source<T>& source, std::span<const Index> rows, T* out);
  /// As Model::gradient(), of these rows as one batch; the calling thread computes it.
  Evaluation gradient(const nn::Loss<T>& loss, const Source<T>& source, std::span<const Index> rows,
                      std::span<T> grads);

 private:
  /// Every member calls action(member, workspace, batch, y) for each chunk; the y lie in `out`, or, without it, in the
  /// workspace.
  template <class Action>
  void each_chunk(const Source<T>& source, std::span<const Index> rows, comm::Communicator* ranks, T* out,
                  Action action);

  const nn::Model<T>& model_;
  threads::Mutex mutex_;  // a team does one thing at a time
  threads::Team team_;
  nn::WorkspaceStore<T> workspaces_;
};

}  // namespace pdnn::engine
