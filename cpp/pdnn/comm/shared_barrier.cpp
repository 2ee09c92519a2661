#include "pdnn/comm/shared_barrier.hpp"

#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

SharedBarrier::SharedBarrier(Communicator& comm, std::byte* memory)
    : comm_(comm),
      ranks_(reinterpret_cast<Arrivals*>(memory), static_cast<std::size_t>(comm.size())),
      record_(comm.recorded().recorder(), comm.recorded().id_of_part(kMeeting), comm.rank(), comm.size()) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share it");
}

void SharedBarrier::arrive() {
  comm_.count_down();
  entry_ = record_.enter({.step = comm_.step(), .kind = kMeeting}, true);
  ranks_[static_cast<std::size_t>(comm_.rank())].arrivals.store(++arrivals_, std::memory_order_release);
}

bool SharedBarrier::all_here() const {
  for (const Arrivals& place : ranks_)
    if (place.arrivals.load(std::memory_order_acquire) < arrivals_) return false;
  return true;
}

void SharedBarrier::wait(const char* call) {
  constexpr int kLooks = 200;  // before anything costs more than a look
  const RecordedCall recorded(record_, entry_);
  for (int look = 0; look < kLooks; ++look)
    if (all_here()) return;
  if (entry_ != 0) record_.recorder()->waits(entry_);
  Waiting waiting;
  while (!all_here()) {
    comm_.check_others();
    if (waiting.seconds() > comm_.timeout()) comm_.give_up(comm_.time_out_message(call, missing()));
    if (waiting.pause()) comm_.look_for_stall(waiting.seconds(), entry_);
  }
}

std::string SharedBarrier::missing() const {
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].arrivals.load(std::memory_order_acquire) < arrivals_)
      ranks += message(count++ == 0 ? " " : ", ", rank);
  return (count == 1 ? "rank" : "ranks") + ranks;
}

}  // namespace pdnn::comm
