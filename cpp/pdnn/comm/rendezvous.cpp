#include "pdnn/comm/rendezvous.hpp"

#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

Rendezvous::Rendezvous(Communicator& comm, std::byte* memory)
    : comm_(comm), places_(reinterpret_cast<Place*>(memory), static_cast<std::size_t>(comm.size())) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share it");
}

void Rendezvous::arrive() {
  places_[static_cast<std::size_t>(comm_.rank())].arrivals.store(++arrivals_, std::memory_order_release);
}

bool Rendezvous::all_here() const {
  for (const Place& place : places_)
    if (place.arrivals.load(std::memory_order_acquire) < arrivals_) return false;
  return true;
}

void Rendezvous::wait(const char* call) {
  constexpr int kLooks = 200;  // before anything costs more than a look
  for (int look = 0; look < kLooks; ++look)
    if (all_here()) return;
  Waiting waiting;
  while (!all_here()) {
    comm_.check_others();
    if (waiting.seconds() > comm_.timeout()) comm_.give_up(comm_.time_out_message(call, missing()));
    waiting.pause();
  }
}

std::string Rendezvous::missing() const {
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < places_.size(); ++rank)
    if (places_[rank].arrivals.load(std::memory_order_acquire) < arrivals_)
      ranks += message(count++ == 0 ? " " : ", ", rank);
  return (count == 1 ? "rank" : "ranks") + ranks;
}

}  // namespace pdnn::comm
