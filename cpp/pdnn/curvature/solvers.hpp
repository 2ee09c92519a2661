#pragma once
/// Solvers: systems with symmetric matrices in double, by Eigen, compiled once for each instruction set that it has.
#include "pdnn/core/types.hpp"

namespace pdnn::curvature {

/// out = a v. Both have the length of the system.
using Multiply = void (*)(void* context, const double* v, double* out);

/// Of a: [n, n], row-major, the lower triangle is read; it is overwritten.
struct Solvers {
  /// Leaves a⁻¹ b in b by Cholesky's a = l lᵀ; false, and b as it was, if a is not positive definite.
  bool (*solve_llt)(Index n, double* a, double* b);
  /// The same by a = l d lᵀ, with pivots: also of an a that is not positive definite; false if a is singular or not
  /// finite.
  bool (*solve_ldlt)(Index n, double* a, double* b);
  /// Conjugate gradients from x = 0, until |b − a x| ≤ tolerance · |b| or `most` iterations; returns their number.
  Index (*solve_cg)(Index n, Multiply multiply, void* context, const double* b, double tolerance, Index most,
                    double* x);
};

/// Those of the instruction set that the kernels use, or the best below it: v3's for v4 and its kin.
const Solvers& solvers();

// One build's, its only symbol beside those of its own namespace of Eigen.
const Solvers* solvers_v2();
const Solvers* solvers_v3();

}  // namespace pdnn::curvature
