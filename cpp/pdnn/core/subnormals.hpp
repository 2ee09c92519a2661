#pragma once
/// SubnormalsAsZero: a scope in which numbers too small to be normal are 0.
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace pdnn {

/// While it lives, this thread takes subnormal numbers (below 1.2e-38 in float32, 2.2e-308 in float64) as 0, and
/// gives 0 where a result would be one. Processors work on them in microcode, a hundred times as long: parameters that
/// are never used shrink, under weight decay, and moments of theirs without it, until a step takes several times as
/// long as the first one did. Intel's manual, volume 1, 10.2.3 (FTZ, DAZ); Arm's, FPCR.FZ.
class SubnormalsAsZero {
 public:
  SubnormalsAsZero() : before_(mode()) {
    if ((before_ & kAsZero) != kAsZero) set_mode(before_ | kAsZero);
  }
  ~SubnormalsAsZero() {
    if ((before_ & kAsZero) != kAsZero) set_mode(before_);
  }
  SubnormalsAsZero(const SubnormalsAsZero&) = delete;
  SubnormalsAsZero& operator=(const SubnormalsAsZero&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = std::uint32_t;
  static constexpr Mode kAsZero = 0x8040;
  static Mode mode() { return _mm_getcsr(); }
  static void set_mode(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  static constexpr Mode kAsZero = Mode{1} << 24;
  static Mode mode() {
    Mode mode = 0;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = std::uint32_t;
  static constexpr Mode kAsZero = 0;
  static Mode mode() { return 0; }
  static void set_mode(Mode) {}
#endif

  Mode before_;
};

}  // namespace pdnn
