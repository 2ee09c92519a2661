#pragma once
/// Multiply-adds on registers alone: the rate of the arithmetic without memory accesses.
#include "pdnn/kernels/impl/vector.hpp"

namespace pdnn::kernels::impl {
namespace {

template <class T>
double work_at_peak(Index rounds) {
  constexpr int chains = 10;  // independent sums: more than a multiply-add's latency times its rate
  Vector<T> sum[chains] = {}, x = broadcast(T(1.0001)), y = broadcast(T(0.9));
  for (Index round = 0; round < rounds; ++round) {
    PDNN_UNROLL for (int chain = 0; chain < chains; ++chain) sum[chain] = fma<T>(x, y, sum[chain]);
    // Hides the values from the compiler, which would otherwise do this sum only once.
#if defined(__x86_64__)
    asm volatile("" : "+x"(x), "+x"(y));
    PDNN_UNROLL for (int chain = 0; chain < chains; ++chain) asm volatile("" : "+x"(sum[chain]));
#else
    asm volatile("" : "+w"(x), "+w"(y));
    PDNN_UNROLL for (int chain = 0; chain < chains; ++chain) asm volatile("" : "+w"(sum[chain]));
#endif
  }
  return 2.0 * chains * static_cast<double>(kLanes<T> * rounds);
}

}  // namespace
}  // namespace pdnn::kernels::impl
