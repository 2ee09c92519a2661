#pragma once
/// Step: one batch on its way through training; Steps: several. Made once by a strategy, narrowed for a rank, a piece
/// or a micro-batch.
#include "pdnn/core/leaves.hpp"
#include "pdnn/core/random.hpp"
#include "pdnn/core/types.hpp"

namespace pdnn::data {

struct Step {
  std::span<const Index> rows;    ///< of the source, in the order of the epoch
  std::span<const Index> next{};  ///< rows of the step after it; empty: there is none
  Rng keys{};                     ///< of the training; key() is the step's own
  Index first_row = 0;            ///< of `rows`, in the global batch
  Index global_rows = 0;          ///< of the global batch, over all ranks
  Leaves leaves{};                ///< of the global batch; its run has these rows
  /// What a row's loss is multiplied by. Given by the code that knows the global batch, so the sums of members, pieces
  /// and ranks simply add up and nothing is divided by a number of workers.
  double scale = 1;
  std::int64_t number = 0;  ///< steps made before
  bool stop = false;        ///< asks all ranks to end after this step

  Index count() const { return static_cast<Index>(rows.size()); }
  /// Of its random numbers: drawn where they are needed, which takes longer than a small network's layer.
  Rng key() const { return keys.child(static_cast<std::uint64_t>(number)); }
  /// The same step, of which a part of the rows is computed.
  Step shard(Part part) const {
    Step step = *this;
    if (part.size == 1) return step;
    if (leaves.count > 0) return with_leaves(part.range(leaves.run.size()));
    const Range mine = part.range(count()), next_mine = part.range(static_cast<Index>(next.size()));
    step.rows = slice(rows, mine.begin, mine.size());
    step.next = slice(next, next_mine.begin, next_mine.size());
    step.first_row += mine.begin;
    return step;
  }

 private:
  /// Some of the leaves that are here.
  Step with_leaves(Range some) const {
    const Index at = leaves.rows().begin, all = static_cast<Index>(next.size());
    const Range run{leaves.run.begin + some.begin, leaves.run.begin + some.end};
    Step step = *this;
    step.leaves.run = run;
    const Range mine = step.leaves.rows();
    step.rows = slice(rows, run.size() > 0 ? mine.begin - at : 0, mine.size());
    step.first_row = mine.begin;
    const Range coming = Leaves{leaves.count, all, run}.rows();  // of a whole batch; of a part of one it is not known
    step.next = leaves.run.size() == leaves.count ? slice(next, coming.begin, coming.size()) : std::span<const Index>{};
    return step;
  }
};

/// Steps one after another, with an update after each.
struct Steps {
  std::span<const Index> rows;  ///< of the source, in the order of the epoch
  Index batch;                  ///< how many of them in each
  Matrix<const double> rates;   ///< learning rates: a row a step, of one a group; no rows: as the optimizer has them
};

}  // namespace pdnn::data
