#pragma once
/// The inverse of a Hessian as limited-memory BFGS estimates it: from differences of parameters and of gradients.
#include <span>

#include "pdnn/core/types.hpp"

namespace pdnn::optim {

/// Σ a_i b_i in double, in an order that depends on the length alone.
template <class T>
double dot(std::span<const T> a, std::span<const T> b);

/// Pairs of differences of n elements: step · change > 0 is a pair's curvature.
template <class T>
struct Differences {
  Matrix<const T> steps, changes;  // [rows, n], of parameters and of gradients
  std::span<const double> curvatures;
  std::span<const Index> rows;  // those to use, the oldest first
};

/// d ← H d by the two-loop recursion (Nocedal and Wright, Numerical Optimization, 2006, algorithm 7.4), from γ times
/// the identity with γ of the last pair, eq. 7.20. The same bits on every machine whose compiler keeps to IEEE 754.
template <class T>
void times_inverse_hessian(const Differences<T>& known, std::span<T> d);

}  // namespace pdnn::optim
