#pragma once
/// Sums of leaves joined as a binary counter carries: a sum waits until its neighbor of the same size is there.
#include "pdnn/kernels/impl/vector.hpp"
#include "pdnn/kernels/leaves.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr int kMostLevels = 48;  // of a tree whose leaves an Index counts in memory

/// How many of the sums that wait are joined by that of the leaf: core's joins_after(), which is not ours to call here.
PDNN_INLINE int joins_after(Index leaf, Index count) {
  const auto bits = static_cast<unsigned long long>(leaf);
  return leaf + 1 == count ? __builtin_popcountll(bits) : __builtin_ctzll(~bits);
}

/// to += from.
template <class T>
PDNN_INLINE void join_run(Index n, const T* from, T* to) {
  for (Index i = 0; i < n; i += kLanes<T>) store(to + i, load(to + i, n - i) + load(from + i, n - i), n - i);
}

/// sum[v] = the sum over all rows of n vectors, by leaves if there are several; add_rows(rows, sum) adds some rows.
template <class T, int n, bool several, class AddRows>
PDNN_INLINE void sum_leaves(const LeafSums<T>& leaves, Index rows, Vector<T> (&sum)[n], AddRows add_rows) {
  if constexpr (!several) return add_rows(Range{0, rows}, sum);
  Vector<T> waiting[kMostLevels][n];
  int waits = 0;
  for (Index leaf = 0, begin = 0; leaf < leaves.count; begin = leaves.ends[leaf++]) {
    PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] = Vector<T>{};
    add_rows(Range{begin, leaves.ends[leaf]}, sum);
    for (int joins = joins_after(leaf, leaves.count); joins > 0; --joins) {
      --waits;
      PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] += waiting[waits][v];
    }
    PDNN_UNROLL for (int v = 0; v < n; ++v) waiting[waits][v] = sum[v];
    ++waits;
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
