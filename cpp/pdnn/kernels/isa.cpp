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

// The compiler's check covers the operating system's part too: that it saves the wide registers.
bool supported(Isa isa) {
  switch (isa) {
    case Isa::v4_bf16:
#ifdef PDNN_WITH_V4_BF16
      return supported(Isa::v4) && __builtin_cpu_supports("avx512bf16");
#else
      return false;
#endif
    case Isa::v4:
#ifdef PDNN_WITH_V4
      return supported(Isa::v3) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
#else
      return false;
#endif
    case Isa::v3:
#ifdef PDNN_WITH_V3
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
             __builtin_cpu_supports("movbe");
#else
      return false;
#endif
    case Isa::v2:
      break;
  }
  return true;
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
