#pragma once
/// Step: one batch on its way through training. Made once by a strategy, narrowed for a rank, a piece or a micro-batch.
#include "pdnn/core/random.hpp"
#include "pdnn/core/types.hpp"

namespace pdnn::data {

struct Step {
  std::span<const Index> rows;    ///< of the source, in the order of the epoch
  std::span<const Index> next{};  ///< rows of the step after it; empty: there is none
  Rng key{};                      ///< of its random numbers
  Index first_row = 0;            ///< of `rows`, in the global batch
  Index global_rows = 0;          ///< of the global batch, over all ranks
  /// What a row's loss is multiplied by. Given by the code that knows the global batch, so the sums of members, pieces
  /// and ranks simply add up and nothing is divided by a number of workers.
  double scale = 1;
  std::int64_t number = 0;  ///< steps made before
  bool stop = false;        ///< asks all ranks to end after this step

  Index count() const { return static_cast<Index>(rows.size()); }
  /// The same step, of which a part of the rows is computed.
  Step shard(Part part) const {
    Step step = *this;
    if (part.size == 1) return step;
    const Range mine = part.range(count()), next_mine = part.range(static_cast<Index>(next.size()));
    step.rows = slice(rows, mine.begin, mine.size());
    step.next = slice(next, next_mine.begin, next_mine.size());
    step.first_row += mine.begin;
    return step;
  }
};

}  // namespace pdnn::data
