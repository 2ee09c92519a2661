#include "pdnn/optim/inverse_hessian.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace pdnn::optim {

namespace {

/// Products that are summed side by side, so that they fill vectors and hide the time that an addition takes.
constexpr Index kLanes = 16;

/// Σ product(i), i < n: the i of a lane in their order, then lanes by halves, then what is left.
template <class Product>
double sum(Index n, const Product& product) {
  std::array<double, kLanes> sums{};
  const Index whole = n - n % kLanes;
  for (Index at = 0; at < whole; at += kLanes)
    for (Index lane = 0; lane < kLanes; ++lane) sums[static_cast<std::size_t>(lane)] += product(at + lane);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  for (Index i = whole; i < n; ++i) sums[0] += product(i);
  return sums[0];
}

/// d += factor x, and next · d afterwards, in one pass.
template <class T>
double add_then_dot(double factor, const T* __restrict x, T* __restrict d, const T* __restrict next, Index n) {
  const T by = static_cast<T>(factor);
  return sum(n, [=](Index i) {
    d[i] += by * x[i];
    return static_cast<double>(next[i]) * static_cast<double>(d[i]);
  });
}

}  // namespace

template <class T>
double dot(std::span<const T> a, std::span<const T> b) {
  const T *const x = a.data(), *const y = b.data();
  return sum(static_cast<Index>(a.size()),
             [=](Index i) { return static_cast<double>(x[i]) * static_cast<double>(y[i]); });
}

template <class T>
void times_inverse_hessian(const Differences<T>& known, std::span<T> d) {
  const std::size_t count = known.rows.size();
  if (count == 0) return;
  const Index n = static_cast<Index>(d.size());
  const auto step = [&](std::size_t pair) { return known.steps.row(known.rows[pair]); };
  const auto change = [&](std::size_t pair) { return known.changes.row(known.rows[pair]); };
  const auto curvature = [&](std::size_t pair) { return known.curvatures[static_cast<std::size_t>(known.rows[pair])]; };
  const auto whole = [n](const T* row) { return std::span<const T>(row, static_cast<std::size_t>(n)); };

  std::vector<double> weights(count);
  double product = dot<T>(whole(step(count - 1)), d);
  for (std::size_t pair = count; pair-- > 0;) {
    weights[pair] = product / curvature(pair);
    product = add_then_dot(-weights[pair], change(pair), d.data(), pair > 0 ? step(pair - 1) : change(0), n);
  }
  const T* const last = change(count - 1);
  const double scale = curvature(count - 1) / dot(whole(last), whole(last));
  for (T& each : d) each *= static_cast<T>(scale);
  product *= scale;
  for (std::size_t pair = 0; pair < count; ++pair) {
    const double factor = weights[pair] - product / curvature(pair);
    product = add_then_dot(factor, step(pair), d.data(), change(std::min(pair + 1, count - 1)), n);
  }
}

template double dot(std::span<const float>, std::span<const float>);
template double dot(std::span<const double>, std::span<const double>);
template void times_inverse_hessian(const Differences<float>&, std::span<float>);
template void times_inverse_hessian(const Differences<double>&, std::span<double>);

}  // namespace pdnn::optim
