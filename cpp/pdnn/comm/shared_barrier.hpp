#pragma once
/// SharedBarrier: where ranks that share memory meet, in a fraction of a microsecond while each of them has a core.
#include <atomic>
#include <cstdint>
#include <span>

#include "pdnn/comm/communicator.hpp"
#include "pdnn/core/memory.hpp"

namespace pdnn::comm {

class SharedBarrier {
 public:
  /// Of shared memory that it needs.
  static Index bytes(int ranks) { return ranks * Index{sizeof(Arrivals)}; }
  /// `memory`: those bytes, zero at first, the same on all ranks of `comm`, which outlives it.
  SharedBarrier(Communicator& comm, std::byte* memory);

  /// Says that this rank has come; what it wrote before is seen by those who have waited for it.
  void arrive();
  /// Returns when every rank has arrived as often as this one. CommunicationError if that takes longer than
  /// PDNN_TIMEOUT (MPI: ends the job), RankFailed if another rank died, Aborted if one failed; `call` is what the
  /// message speaks of.
  void wait(const char* call);
  /// Both.
  void meet(const char* call) {
    arrive();
    wait(call);
  }

 private:
  struct alignas(kCacheLine) Arrivals {
    std::atomic<std::uint64_t> arrivals;
  };

  bool all_here() const;
  std::string missing() const;

  Communicator& comm_;
  std::span<Arrivals> ranks_;
  std::uint64_t arrivals_ = 0;  // of this rank
  RecordedGroup record_;
  std::uint64_t entry_ = 0;  // of the latest arrival
};

}  // namespace pdnn::comm
