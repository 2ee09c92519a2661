#include "pdnn/kernels/isa.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ranges>
#include <string>
#ifdef PDNN_WITH_V4_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(PDNN_WITH_NEON_BF16) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(PDNN_WITH_NEON_BF16)
#include <sys/sysctl.h>
#endif

#include "pdnn/core/errors.hpp"

namespace pdnn::kernels {

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::v4_amx:
      return "v4-amx";
    case Isa::v4_bf16:
      return "v4-bf16";
    case Isa::v4:
      return "v4";
    case Isa::v3:
      return "v3";
    case Isa::neon_bf16:
      return "neon-bf16";
    case Isa::neon:
      return "neon";
    case Isa::v2:
      break;
  }
  return "v2";
}

namespace {

// The compiler's checks cover the operating system's part too: that it saves the wide registers.
#if defined(PDNN_WITH_V3) || defined(PDNN_WITH_V4)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
         __builtin_cpu_supports("movbe");
}
#endif
#ifdef PDNN_WITH_V4
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

#if defined(PDNN_WITH_NEON_BF16) && defined(__linux__)
bool has_bfloat16() { return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }
#elif defined(PDNN_WITH_NEON_BF16)
bool has_bfloat16() {  // as macOS tells it
  int has = 0;
  std::size_t size = sizeof has;
  return sysctlbyname("hw.optional.arm.FEAT_BF16", &has, &size, nullptr, 0) == 0 && has != 0;
}
#endif

/// Whether this CPU has it, and it was compiled in.
bool present(Isa isa) {
  switch (isa) {
#ifdef PDNN_WITH_V4_AMX
    case Isa::v4_amx:
      return present(Isa::v4_bf16) && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
#endif
#if defined(PDNN_WITH_V4) && defined(PDNN_WITH_V4_BF16)
    case Isa::v4_bf16:
      return has_avx512() && __builtin_cpu_supports("avx512bf16");
#endif
#ifdef PDNN_WITH_V4
    case Isa::v4:
      return has_avx512();
#endif
#ifdef PDNN_WITH_V3
    case Isa::v3:
      return has_avx2();
#endif
#if defined(PDNN_WITH_NEON) && defined(PDNN_WITH_NEON_BF16)
    case Isa::neon_bf16:
      return has_bfloat16();
#endif
#ifdef PDNN_WITH_NEON
    case Isa::neon:
      return true;  // every arm64 processor has it
#endif
    default:
      return isa == Isa::v2;
  }
}

/// Asks Linux for the registers of tiles: ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA
/// (Documentation/arch/x86/xstate.rst). Why it refuses; empty: it does not.
std::string_view refusal_of_tiles() {
#ifdef PDNN_WITH_V4_AMX
  static const int error = syscall(SYS_arch_prctl, 0x1023, 18) == 0 ? 0 : errno;
  if (error == 0) return {};
  if (error == ENOSPC) return "a thread's stack for signals (sigaltstack) has no room for the registers of AMX";
#endif
  return "the system refuses the registers of AMX";
}

/// Whether it is known to be faster than those before it, where it runs.
bool pays(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::v4_bf16) return !__builtin_cpu_is("intel");
#endif
  return isa != Isa::v4_amx;
}

}  // namespace

std::string_view obstacle(Isa isa) {
  if (!present(isa)) return "this processor, or this build of pdnn, lacks it";
  return isa == Isa::v4_amx ? refusal_of_tiles() : std::string_view();
}

Isa default_isa() {
  return *std::ranges::find_if(std::views::reverse(kIsas), [](Isa isa) { return pays(isa) && supported(isa); });
}

Isa choose_isa(std::string_view forced) {
  if (forced.empty()) return default_isa();
  for (const Isa isa : kIsas) {
    if (forced != name(isa)) continue;
    require(supported(isa), "PDNN_ISA=", forced, ": ", obstacle(isa), "; unset PDNN_ISA");
    return isa;
  }
  std::string offers;  // not before a name was wrong: whether v4_amx runs is asked of the system, for good
  for (const Isa isa : std::views::reverse(kIsas))
    if (supported(isa)) offers += (offers.empty() ? "" : ", ") + std::string(name(isa));
  throw ValueError(message("PDNN_ISA=", forced, " is not the name of an instruction set; here these run: ", offers));
}

Isa plain(Isa isa) {
  switch (isa) {
    case Isa::v4_amx:
    case Isa::v4_bf16:
      return Isa::v4;
    case Isa::neon_bf16:
      return Isa::neon;
    default:
      return isa;
  }
}

Isa active_isa() {
  static const Isa isa = [] {
    const char* forced = std::getenv("PDNN_ISA");
    return choose_isa(forced ? forced : "");
  }();
  return isa;
}

}  // namespace pdnn::kernels
