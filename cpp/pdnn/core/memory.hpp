#pragma once
/// AlignedArray: memory aligned to cache lines, allocated once and never grown.
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <span>

#include "pdnn/core/errors.hpp"
#include "pdnn/core/types.hpp"

namespace pdnn {

inline constexpr std::size_t kCacheLine = 64;

/// MemoryError in Python, with the number of elements that were asked for.
class OutOfMemory : public std::bad_alloc {
 public:
  OutOfMemory(Index elements, std::size_t bytes_each)
      : words_(message("no memory for ", elements, " elements of ", bytes_each, " bytes")) {}
  const char* what() const noexcept override { return words_.c_str(); }

 private:
  std::string words_;
};

/// From now on these bytes may be read or written even after their owner lets go of them, by a library that cannot
/// take a call back: an AlignedArray that holds some of them leaves its memory allocated for good.
void pin(const void* begin, Index bytes);
bool pinned(const void* begin, Index bytes);

/// So many bytes of zeros, whose pages come when they are written to; null if there are none.
void* map_zeros(std::size_t bytes);
void unmap(void* begin, std::size_t bytes);

/// What new memory holds: zeros, or anything where all of it is written before it is read.
enum class Contents { zeros, anything };

/// `size` elements, zero at first unless told otherwise, starting on a cache line; or a part of someone else's
/// memory, which it keeps alive.
template <class T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(Index size, Contents contents = Contents::zeros) : size_(size) {
    constexpr Index kMost = (std::numeric_limits<Index>::max() - Index{kCacheLine}) / Index{sizeof(T)};
    if (size < 0 || size > kMost) throw OutOfMemory(size, sizeof(T));
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    const std::size_t lines = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    if (lines == 0) return;
    constexpr std::size_t kMapped = 1 << 22;  // the system has zeros for what may never be used
    const std::size_t mapped = contents == Contents::zeros && lines >= kMapped ? lines : 0;
    const auto free_unless_pinned = [size, mapped](T* data) {
      if (pinned(data, size * Index{sizeof(T)})) return;
      mapped > 0 ? unmap(data, mapped) : std::free(data);
    };
    void* memory = mapped > 0 ? map_zeros(mapped) : std::aligned_alloc(kCacheLine, lines);
    if (memory == nullptr) throw OutOfMemory(size, sizeof(T));
    data_.reset(static_cast<T*>(memory), free_unless_pinned);
    if (contents == Contents::zeros && mapped == 0) std::fill_n(data_.get(), size, T{});
  }
  AlignedArray(std::shared_ptr<void> owner, T* data, Index size) : data_(std::move(owner), data), size_(size) {}
  AlignedArray(AlignedArray&&) = default;
  AlignedArray& operator=(AlignedArray&&) = default;

  AlignedArray copy() const {
    AlignedArray other(size_, Contents::anything);
    std::copy_n(data(), size_, other.data());
    return other;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  Index size() const { return size_; }
  /// The same elements, which keep the memory alive when this is gone or another one has taken its place.
  std::shared_ptr<AlignedArray> share() { return std::make_shared<AlignedArray>(data_, data_.get(), size_); }
  std::span<T> span() { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const T> span() const { return {data(), static_cast<std::size_t>(size_)}; }
  T& operator[](Index index) { return data_.get()[index]; }
  const T& operator[](Index index) const { return data_.get()[index]; }

 private:
  std::shared_ptr<T> data_;
  Index size_ = 0;
};

}  // namespace pdnn
