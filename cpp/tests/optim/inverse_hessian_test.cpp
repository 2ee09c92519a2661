// The inverse Hessian of limited-memory BFGS, against the dense formula.
#include "pdnn/optim/inverse_hessian.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

#include "pdnn/core/random.hpp"

using namespace pdnn;
using namespace pdnn::optim;

BOOST_AUTO_TEST_SUITE(optim_inverse_hessian)

namespace {

constexpr double kNear = 1e-12;

/// Values of a stream, in ±1.
template <class T>
std::vector<T> random_vector(std::uint64_t seed, Index count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(2 * Rng(seed).uniform(i) - 1);
  return values;
}

/// H v for H of the pairs in this order, by its definition: (I − ρ s yᵀ) H (I − ρ y sᵀ) + ρ s sᵀ (eq. 7.16).
std::vector<double> by_definition(const Differences<double>& known, std::vector<double> v) {
  const std::size_t n = v.size();
  std::vector<std::vector<double>> h(n, std::vector<double>(n));
  const auto product = [n](const double* a, const double* b) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  };
  const double* const last = known.changes.row(known.rows.back());
  for (std::size_t i = 0; i < n; ++i) h[i][i] = product(known.steps.row(known.rows.back()), last) / product(last, last);
  for (const Index row : known.rows) {
    const double *const s = known.steps.row(row), *const y = known.changes.row(row);
    const double rho = 1 / product(s, y);
    std::vector<std::vector<double>> left(h), next(h);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k) sum += y[k] * h[k][j];
        left[i][j] = h[i][j] - rho * s[i] * sum;
      }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        next[i][j] = left[i][j] - rho * product(left[i].data(), y) * s[j] + rho * s[i] * s[j];
    h = next;
  }
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = product(h[i].data(), v.data());
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_dot_product_has_every_element) {
  for (const Index n : {0, 1, 15, 16, 17, 100}) {
    const std::vector<float> a = random_vector<float>(1, n), b = random_vector<float>(2, n);
    double want = 0;
    for (std::size_t i = 0; i < a.size(); ++i) want += double{a[i]} * double{b[i]};
    BOOST_TEST(dot<float>(a, b) == want, boost::test_tools::tolerance(kNear));
  }
}

BOOST_AUTO_TEST_CASE(the_recursion_is_the_dense_formula) {
  for (const Index n : {1, 7, 16, 35}) {
    const Index kept = 5;
    const std::vector<double> steps = random_vector<double>(3, kept * n), noise = random_vector<double>(4, kept * n);
    std::vector<double> changes(steps), curvatures;
    for (std::size_t i = 0; i < changes.size(); ++i) changes[i] += 0.3 * noise[i];
    for (Index row = 0; row < kept; ++row)
      curvatures.push_back(dot<double>({&steps[static_cast<std::size_t>(row * n)], static_cast<std::size_t>(n)},
                                       {&changes[static_cast<std::size_t>(row * n)], static_cast<std::size_t>(n)}));
    for (const std::vector<Index>& rows : {std::vector<Index>{}, {2}, {3, 4, 0, 1}}) {
      const Differences<double> known{{steps.data(), kept, n}, {changes.data(), kept, n}, curvatures, rows};
      const std::vector<double> given = random_vector<double>(5, n);
      std::vector<double> found(given);
      times_inverse_hessian<double>(known, found);
      const std::vector<double> want = rows.empty() ? given : by_definition(known, given);
      for (std::size_t i = 0; i < found.size(); ++i) BOOST_TEST(std::abs(found[i] - want[i]) < 1e-9);
    }
  }
}

BOOST_AUTO_TEST_CASE(floats_are_near_doubles) {
  const Index n = 100;
  const std::vector<float> steps = random_vector<float>(6, n), d = random_vector<float>(7, n);
  std::vector<float> changes(steps), found(d);
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i] *= 1 + 0.5F * static_cast<float>(i % 3);
  const std::vector<double> wide_steps(steps.begin(), steps.end()), wide_changes(changes.begin(), changes.end());
  const std::vector<double> curvature{dot<float>(steps, changes)};
  const std::vector<Index> rows{0};
  times_inverse_hessian<float>({{steps.data(), 1, n}, {changes.data(), 1, n}, curvature, rows}, found);
  std::vector<double> want(d.begin(), d.end());
  times_inverse_hessian<double>({{wide_steps.data(), 1, n}, {wide_changes.data(), 1, n}, curvature, rows}, want);
  for (std::size_t i = 0; i < want.size(); ++i) BOOST_TEST(std::abs(double{found[i]} - want[i]) < 1e-5);
}

BOOST_AUTO_TEST_SUITE_END()
