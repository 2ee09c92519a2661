#pragma once
/// What the kernels' tests share: every build this machine can run, buffers that end at a forbidden page, and numbers.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <vector>

#include "emulated_tiles.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels::testing {

inline std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : kIsas)
    if (supported(isa)) isas.push_back(isa);
  return isas;
}

/// Calls action(table) with the table of each supported instruction set that has one of its own.
template <class T, class Action>
void for_each_isa(Action action) {
  for (const Isa isa : supported_isas())
    if (isa <= Isa::v4) action(tables(isa).of<T>());
}

/// By how much of a product the rounding of its factors to bfloat16 changes it at most: each by 2⁻⁸ of it.
inline constexpr double kRounding = 0x1p-7 + 0x1p-16;

/// Calls action(name, table, products) with the products of bfloat16 factors of each supported instruction set and the
/// table that they belong to; those of tiles also where their unit is missing and plain C++ does its work.
template <class Action>
void for_each_bfloat16(Action action) {
  for (const Isa isa : supported_isas()) action(name(isa), tables(isa).floats, tables(isa).bfloat16);
#ifdef PDNN_EMULATES_TILES
  if (supported(Isa::v4_bf16)) action("v4-amx emulated", tables(Isa::v4).floats, emulated_tiles().products);
#endif
}

/// Calls action(table, products, rounding) with the products of each precision and supported instruction set, the table
/// that they belong to, and 0 or kRounding.
template <class T, class Action>
void for_each_products(Action action) {
  for_each_isa<T>([&](const Table<T>& table) { action(table, table, 0.0); });
  if constexpr (std::is_same_v<T, float>)
    for_each_bfloat16([&](std::string_view, const Table<float>& table, const ProductKernels<float>& products) {
      action(table, products, kRounding);
    });
}

/// Calls work(part) for every worker of a team of `size`, one after the other.
template <class Work>
void as_team(int size, Work work) {
  for (int index = 0; index < size; ++index) work(Part{index, size});
}

/// Memory between two forbidden pages. `at_end(n)` are n elements that end where the second begins, so that they are
/// aligned to sizeof(T) only, and any access behind them ends the process; `at_begin()` follow the first.
template <class T>
class Guarded {
 public:
  explicit Guarded(Index most) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    const std::size_t bytes = static_cast<std::size_t>(most) * sizeof(T);
    size_ = (bytes + page_ - 1) / page_ * page_;
    void* memory = mmap(nullptr, size_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<char*>(memory) + page_;
    if (size_ > 0 && mprotect(begin_, size_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  ~Guarded() { munmap(begin_ - page_, size_ + 2 * page_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* at_begin() { return reinterpret_cast<T*>(begin_); }
  T* at_end(Index count) { return reinterpret_cast<T*>(begin_ + size_) - count; }

 private:
  std::size_t page_, size_ = 0;
  char* begin_ = nullptr;
};

/// Fills with numbers in [-1, 1) that depend on the seed.
template <class T>
void fill(T* values, Index count, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (Index i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    values[i] = static_cast<T>(static_cast<double>(state >> 40) * 0x1p-23 - 1);
  }
}

template <class T>
std::vector<T> numbers(Index count, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(count));
  fill(values.data(), count, seed);
  return values;
}

template <class T>
bool same_bits(const T* a, const T* b, Index count) {
  return count == 0 || std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(T)) == 0;
}

/// The distance of a result from the truth, in units in the last place of the result's type at the truth.
template <class T>
double ulps(T got, long double truth) {
  const T rounded = static_cast<T>(truth);
  if (std::isnan(truth) || std::isinf(rounded)) return std::isnan(truth) ? !std::isnan(got) : got != rounded;
  const T size = std::max(std::abs(rounded), std::numeric_limits<T>::min());
  const long double unit = std::nextafter(size, std::numeric_limits<T>::infinity()) - size;
  return static_cast<double>(std::abs(static_cast<long double>(got) - truth) / unit);
}

}  // namespace pdnn::kernels::testing
