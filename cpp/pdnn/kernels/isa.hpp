#pragma once
/// Which instruction set the kernels run on: each is compiled once per set, and one is chosen at run time.
#include <array>
#include <string_view>

namespace pdnn::kernels {

/// v2: the plain generic build (128-bit vectors); neon: arm64; neon_bf16: the same with BFMMLA and BFDOT for those in
/// bfloat16; v3: AVX2 and FMA; v4: AVX-512 (F, BW, CD, DQ, VL); v4_bf16: the same with AVX512_BF16 for products in
/// bfloat16, and v4's kernels for all else; v4_amx: v4 with AMX for the products of Linear layers in bfloat16.
enum class Isa { v2, neon, neon_bf16, v3, v4, v4_bf16, v4_amx };

/// From the plainest to the best.
inline constexpr std::array kIsas = {Isa::v2, Isa::neon, Isa::neon_bf16, Isa::v3, Isa::v4, Isa::v4_bf16, Isa::v4_amx};

std::string_view name(Isa isa);

/// Why it does not run: this CPU or the operating system lacks it, or it was not compiled in; empty: it runs. The first
/// call for v4_amx asks Linux for the registers of AMX, which it gives to a process as a whole, for good.
std::string_view obstacle(Isa isa);
inline bool supported(Isa isa) { return obstacle(isa).empty(); }

/// The best supported one that is known to be faster than those before it: not v4_amx, and v4_bf16 not on Intel's
/// processors, where VDPBF16PS makes fewer products than multiply-adds of floats do (docs/bfloat16.md). The processor
/// alone decides, no measurement: the instruction set decides the bits of a model in bfloat16.
Isa default_isa();

/// The default if `forced` is empty, else the one it names: v2, neon, neon-bf16, v3, v4, v4-bf16 or v4-amx. Throws
/// ValueError if that is not a name, or names a set that does not run.
Isa choose_isa(std::string_view forced);

/// The one whose kernels of floats it has: itself, without instructions for bfloat16.
Isa plain(Isa isa);

/// The one that all kernels of this process use, chosen by the environment variable PDNN_ISA at the first call.
Isa active_isa();

}  // namespace pdnn::kernels
