#include "pdnn/threads/barrier.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn::threads {

void Barrier::wait() {
  if (size_ == 1) return;
  std::uint32_t seen = generation_.load();
  if ((seen & kAborted) == 0) {
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      seen = generation_.add(2);
    } else {
      seen = generation_.wait(seen, patience_);
    }
  }
  if ((seen & kAborted) != 0) throw Aborted("barrier: another member failed");
}

void Barrier::abort() { generation_.set(kAborted); }

void Barrier::reset() {
  arrived_.store(0, std::memory_order_relaxed);
  generation_.store(0);
}

}  // namespace pdnn::threads
