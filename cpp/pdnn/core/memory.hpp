#pragma once
/// Buffer: memory aligned to cache lines, allocated once and never grown.
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "pdnn/core/types.hpp"

namespace pdnn {

inline constexpr std::size_t kCacheLine = 64;

/// `size` elements, zero at first, starting on a cache line.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Index size) : size_(size) {
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    const std::size_t lines = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    if (lines == 0) return;
    data_.reset(static_cast<T*>(std::aligned_alloc(kCacheLine, lines)));
    if (!data_) throw std::bad_alloc();
    std::fill_n(data_.get(), size, T{});
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  Index size() const { return size_; }
  std::span<T> span() { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const T> span() const { return {data(), static_cast<std::size_t>(size_)}; }
  T& operator[](Index index) { return data_.get()[index]; }
  const T& operator[](Index index) const { return data_.get()[index]; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T, Free> data_;
  Index size_ = 0;
};

}  // namespace pdnn
