#include "pdnn/kernels/isa.hpp"

#include <cstdlib>
#include <ranges>
#include <string>

#include "pdnn/core/errors.hpp"

namespace pdnn::kernels {

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::v4_bf16:
      return "v4-bf16";
    case Isa::v4:
      return "v4";
    case Isa::v3:
      return "v3";
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

}  // namespace

bool supported(Isa isa) {
  switch (isa) {
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
    default:
      return isa == Isa::v2;
  }
}

Isa choose_isa(std::string_view forced) {
  std::string offers;
  for (const Isa isa : std::views::reverse(kIsas)) {
    if (!supported(isa)) {
      require(forced != name(isa), "PDNN_ISA=", forced, ": this processor, or this build of pdnn, lacks it; unset it");
      continue;
    }
    if (forced.empty() || forced == name(isa)) return isa;
    offers += (offers.empty() ? "" : ", ") + std::string(name(isa));
  }
  throw ValueError(message("PDNN_ISA=", forced, " is not the name of an instruction set; here these run: ", offers));
}

Isa active_isa() {
  static const Isa isa = [] {
    const char* forced = std::getenv("PDNN_ISA");
    return choose_isa(forced ? forced : "");
  }();
  return isa;
}

}  // namespace pdnn::kernels
