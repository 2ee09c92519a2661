// operator new and the memory of AlignedArrays, counted.
#include "allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

thread_local long own = 0;
std::atomic<long> all{0};

void* counted(void* memory) {
  ++own;
  all.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return counted(memory);
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? counted(memory) : nullptr;
}

namespace pdnn::tests {

long own_allocations() { return own; }
long all_allocations() { return all.load(std::memory_order_relaxed); }

}  // namespace pdnn::tests
