#pragma once
/// Which instruction set the kernels run on: each is compiled once per set, and one is chosen at run time.
#include <array>
#include <string_view>

namespace pdnn::kernels {

/// v2: the plain generic build (128-bit vectors); v3: AVX2 and FMA; v4: AVX-512 (F, BW, CD, DQ, VL); v4_bf16: the same
/// with AVX512_BF16 for products in bfloat16, and v4's kernels for all else.
enum class Isa { v2, v3, v4, v4_bf16 };

/// From the plainest to the best.
inline constexpr std::array kIsas = {Isa::v2, Isa::v3, Isa::v4, Isa::v4_bf16};

std::string_view name(Isa isa);

/// Whether this CPU (and its operating system) runs it, and it was compiled in.
bool supported(Isa isa);

/// The best supported one if `forced` is empty, else the one it names: v2, v3, v4 or v4-bf16. Throws ValueError if that
/// is not a name, or names a set that this CPU lacks.
Isa choose_isa(std::string_view forced);

/// The one that all kernels of this process use, chosen by the environment variable PDNN_ISA at the first call.
Isa active_isa();

}  // namespace pdnn::kernels
