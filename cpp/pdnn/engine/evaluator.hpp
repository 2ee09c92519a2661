#pragma once
/// Evaluator: outputs and losses of a model in evaluation mode.
#include "pdnn/data/source.hpp"

namespace pdnn::engine {

using data::Batch;
using data::Source;
using threads::Member;

/// Outputs and losses in evaluation mode, a chunk of rows at a time, by a team of threads; never communicates.
template <class T>
class Evaluator {
 public:
  Evaluator(const nn::Model<T>& model, std::shared_ptr<const nn::Network<T>> network, const Shape& sample, int threads);

  nn::LossValue loss(const nn::Loss<T>& loss, const Source<T>& source, std::span<const Index> rows);
  /// out: [rows, outputs]
  void predict(const Source<T>& source, std::span<const Index> rows, T* out);

 private:
  template <class Chunk>
  void each_chunk(const Source<T>& source, std::span<const Index> rows, Chunk&& chunk);

  static constexpr Index kChunk = 256;
  const nn::Model<T>& model_;
  std::shared_ptr<const nn::Network<T>> network_;
  threads::Team team_;
  nn::Workspace<T> workspace_;
};

}  // namespace pdnn::engine
