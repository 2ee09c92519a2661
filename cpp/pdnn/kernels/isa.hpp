#pragma once
/// Which instruction set the kernels run on: each is compiled once per set, and one is chosen at run time.
#include <string_view>

namespace pdnn::kernels {

/// v2: the plain generic build (128-bit vectors); v3: AVX2 and FMA; v4: AVX-512 (F, BW, CD, DQ, VL).
enum class Isa { v2, v3, v4 };

std::string_view name(Isa isa);

/// Whether this CPU (and its operating system) runs it, and it was compiled in.
bool supported(Isa isa);

/// The best supported one, or the one that PDNN_ISA=v2|v3|v4 forces. Decided once. Throws ValueError if PDNN_ISA is not
/// a name, or names a set that this CPU lacks.
Isa active_isa();

}  // namespace pdnn::kernels
