#pragma once
/// The arithmetic: a table of functions for each element type. Every function is called by every worker of a team with
/// the same arguments and does its own part of the output; none waits: the caller puts a barrier between a kernel and
/// whoever reads its result. Each output element is computed by one worker in a fixed order, so the size of the team
/// never changes a bit. Nothing is allocated. Unless it says so, an output overlaps no input.
///
/// A kernel is declared in one of the parts below, written in impl/ and entered in impl/tables.hpp, which is compiled
/// once for each instruction set.
#include "pdnn/kernels/coding.hpp"
#include "pdnn/kernels/elementwise.hpp"
#include "pdnn/kernels/images.hpp"
#include "pdnn/kernels/isa.hpp"
#include "pdnn/kernels/products.hpp"
#include "pdnn/kernels/rows.hpp"
#include "pdnn/kernels/sparse.hpp"
#include "pdnn/kernels/stack.hpp"
#include "pdnn/kernels/update.hpp"

namespace pdnn::kernels {

template <class T>
struct Table : ProductKernels<T>,
               SparseKernels<T>,
               StackKernels<T>,
               ConvolutionKernels<T>,
               ImageKernels<T>,
               ElementwiseKernels<T>,
               RowKernels<T>,
               UpdateKernels<T>,
               CodingKernels<T> {
  /// Multiplies and adds in registers for `rounds` rounds; returns how many floating-point operations that was.
  double (*work_at_peak)(Index rounds);
};

/// Products and convolutions of factors that are rounded, what rounds those of convolutions, and stacks that may have
/// such layers; null: these are no stacks.
template <class T>
struct RoundedKernels : ProductKernels<T>, ConvolutionKernels<T>, RoundingKernels<T>, StackKernels<T> {};

struct Tables {
  Table<float> floats;
  Table<double> doubles;
  /// Of factors that are rounded to bfloat16: to nearest, ties to even; NaN and infinity stay what they are. v4-bf16
  /// adds products in pairs, v4-amx those of 16 pairs before it adds them to a sum, both take and give 0 for subnormal
  /// numbers; the others, and v4-amx's convolutions, multiply and add what was rounded as floats.
  RoundedKernels<float> bfloat16;

  template <class T>
  const Table<T>& of() const {
    if constexpr (std::is_same_v<T, float>)
      return floats;
    else
      return doubles;
  }
};

/// A supported instruction set's.
const Tables& tables(Isa isa);
/// The active one's.
template <class T>
const Table<T>& table() {
  static const Table<T>& chosen = tables(active_isa()).template of<T>();
  return chosen;
}

/// Its kernels for factors that are rounded to this precision, which goes with float; null: they are not rounded.
template <class T>
const RoundedKernels<T>* rounded(Precision precision) {
  if constexpr (std::is_same_v<T, float>)
    if (precision == Precision::bfloat16) return &tables(active_isa()).bfloat16;
  return nullptr;
}
/// Of layers at most so wide the factors take longer to put in order for instructions for bfloat16 than these save,
/// without stacks for them and with.
inline constexpr Index kNarrow = 32, kNarrowWithStacks = 24;
/// Those for a layer so wide at most: of a narrow one, the kernels of floats.
template <class T>
const RoundedKernels<T>* rounded_of_width(Precision precision, Index widest) {
  const RoundedKernels<T>* const own = rounded<T>(precision);
  if constexpr (std::is_same_v<T, float>)
    if (own && widest <= (own->stack_forward ? kNarrowWithStacks : kNarrow))
      return &tables(plain(active_isa())).bfloat16;
  return own;
}
/// Its products of this precision for a layer so wide at most, and its convolutions.
template <class T>
const ProductKernels<T>& products(Precision precision, Index widest) {
  if (const RoundedKernels<T>* const chosen = rounded_of_width<T>(precision, widest)) return *chosen;
  return table<T>();
}
template <class T>
const ConvolutionKernels<T>& convolutions(Precision precision) {
  if (const RoundedKernels<T>* const chosen = rounded<T>(precision)) return *chosen;
  return table<T>();
}

/// For rows that are at most so wide: where v4's vectors would be half empty, v3's table, which has the same bits. v4
/// would transpose squares of mostly nothing, and wait for what was stored in part.
template <class T>
const Table<T>& table_of_width(Index widest) {
  static const Table<T>& narrow =
      active_isa() > Isa::v3 && supported(Isa::v3) ? tables(Isa::v3).template of<T>() : table<T>();
  return widest * static_cast<Index>(sizeof(T)) <= 32 ? narrow : table<T>();
}

/// The arithmetic peak of this core right now, in floating-point operations a second: fused multiply-adds (for v2: a
/// multiply and an add) on registers for about `seconds`.
template <class T>
double measure_peak(double seconds);

/// The rate of a layer of 256 by 256 at batch 64 in bfloat16 on a supported instruction set, in the same unit.
double measure_bfloat16(Isa isa, double seconds);

// One build's tables, or the part in which it differs: its only symbol.
const Tables* tables_v2();
const Tables* tables_neon();
const Tables* tables_v3();
const Tables* tables_v4();
const RoundedKernels<float>* bfloat16_neon_bf16();
const RoundedKernels<float>* bfloat16_v4_bf16();
const ProductKernels<float>* bfloat16_v4_amx();

}  // namespace pdnn::kernels
