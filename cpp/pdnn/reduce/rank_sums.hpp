#pragma once
/// What ranks agree on beside gradients: sums over a batch that they share, and the buffers that each learned from its
/// own rows.
#include "pdnn/comm/communicator.hpp"
#include "pdnn/nn/model.hpp"

namespace pdnn::reduce {

/// Sums over the ranks that share a batch.
class RankSum : public nn::BatchSum {
 public:
  explicit RankSum(comm::Communicator& comm) : comm_(comm) {}
  void sum(std::span<double> values) override {
    const comm::Labeled labeled({.what = "batch sum"});
    comm_.all_reduce(comm::View(values));
  }

 private:
  comm::Communicator& comm_;
};

/// The buffers become their mean over the ranks, the same bits on all of them.
template <class T>
void average_state(nn::Model<T>& model, comm::Communicator& comm) {
  const comm::Labeled labeled({.what = "buffers"});
  if (comm.size() > 1 && model.buffers->size() > 0) comm.all_reduce(comm::View(model.buffers->span()), comm::Op::mean);
}

/// The fastest of a few rounds, in seconds, on the rank where it is slowest; collective.
template <class Round>
double measure_rounds(comm::Communicator& comm, int rounds, Round round) {
  using Clock = std::chrono::steady_clock;
  std::array<double, 1> best{std::numeric_limits<double>::max()};
  for (int i = 0; i < rounds; ++i) {
    comm.barrier();
    const auto start = Clock::now();
    round();
    best[0] = std::min(best[0], std::chrono::duration<double>(Clock::now() - start).count());
  }
  comm.all_reduce(std::span(best), comm::Op::max);
  return best[0];
}

}  // namespace pdnn::reduce
