#include "pdnn/core/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace pdnn {

namespace {

using Pin = std::span<const std::byte>;

std::mutex pins_mutex;
std::atomic<bool> any_pins{false};  // without a pin the lock is not taken

std::vector<Pin>& pins() {
  static auto& all = *new std::vector<Pin>;  // for AlignedArrays that outlive static objects, too
  return all;
}

Pin bytes_at(const void* begin, Index bytes) {
  return {static_cast<const std::byte*>(begin), static_cast<std::size_t>(bytes)};
}

}  // namespace

void pin(const void* begin, Index bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(pins_mutex);
  pins().push_back(bytes_at(begin, bytes));
  any_pins.store(true, std::memory_order_release);
}

bool pinned(const void* begin, Index bytes) {
  if (!any_pins.load(std::memory_order_acquire)) return false;
  const Pin own = bytes_at(begin, bytes);
  const std::lock_guard lock(pins_mutex);
  return std::ranges::any_of(pins(), [own](const Pin& pin) {
    return pin.data() < own.data() + own.size() && own.data() < pin.data() + pin.size();
  });
}

void* map_zeros(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void unmap(void* begin, std::size_t bytes) { munmap(begin, bytes); }

}  // namespace pdnn
