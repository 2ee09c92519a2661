#pragma once
/// What is fetched into the second-level cache before its use, beside the tiles of a product.
#include "pdnn/kernels/impl/vector.hpp"
#include "pdnn/kernels/products.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kLine = 64;

/// Fetches upcoming rows into the second-level cache, a few lines after each of `tiles` tiles.
class Fetcher {
 public:
  PDNN_INLINE Fetcher(const Upcoming* what, Index tiles) {
    if (!what) return;
    left_ = *what;
    lines_ = ceil_div(left_.count * ceil_div(left_.bytes, kLine), tiles > 0 ? tiles : 1);
  }
  PDNN_INLINE void after_tile() {
    for (Index lines = lines_; lines > 0 && left_.count > 0;) {
      const char* const row = left_.data + *left_.rows * left_.stride;
      const Index end = min(at_ + lines * kLine, left_.bytes);
      lines -= ceil_div(end - at_, kLine);
      for (Index at = at_; at < end; at += kLine) __builtin_prefetch(row + at, 0, 2);
      at_ = end;
      if (end < left_.bytes) return;
      at_ = 0, ++left_.rows, --left_.count;
    }
  }

 private:
  Upcoming left_{nullptr, 0, nullptr, 0, 0};
  Index at_ = 0, lines_ = 0;
};

/// Fetches `rows` rows of `bytes` bytes into the second-level cache.
PDNN_INLINE void fetch_rows(const char* data, Index stride, Index rows, Index bytes) {
  for (; rows > 0; --rows, data += stride)
    for (Index at = 0; at < bytes; at += kLine) __builtin_prefetch(data + at, 0, 2);
}

}  // namespace
}  // namespace pdnn::kernels::impl
