// The solvers against the systems that they solve, of sizes about those of Eigen's blocks.
#include "pdnn/curvature/solvers.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace pdnn::curvature {
namespace {

BOOST_AUTO_TEST_SUITE(curvature_solvers)

using Numbers = std::vector<double>;

struct System {
  Index n;
  Numbers a, b;  // row-major, all of it

  Numbers times(const double* x) const {
    Numbers out(b.size());
    for (Index r = 0; r < n; ++r)
      for (Index c = 0; c < n; ++c) out[static_cast<std::size_t>(r)] += a[static_cast<std::size_t>(r * n + c)] * x[c];
    return out;
  }
  double residual(const Numbers& x) const {
    const Numbers ax = times(x.data());
    double worst = 0;
    for (std::size_t i = 0; i < b.size(); ++i) worst = std::max(worst, std::abs(ax[i] - b[i]));
    return worst;
  }
};

/// A symmetric matrix with n on its diagonal but for the last element, and numbers in ±½ beside it.
System make_system(Index n, double last) {
  std::mt19937_64 bits(static_cast<std::uint64_t>(n));
  std::uniform_real_distribution<double> draw(-0.5, 0.5);
  System system{n, Numbers(static_cast<std::size_t>(n * n)), Numbers(static_cast<std::size_t>(n))};
  for (Index r = 0; r < n; ++r) {
    for (Index c = 0; c <= r; ++c)
      system.a[static_cast<std::size_t>(r * n + c)] = system.a[static_cast<std::size_t>(c * n + r)] =
          r == c ? (r + 1 == n ? last : static_cast<double>(n)) : draw(bits);
    system.b[static_cast<std::size_t>(r)] = draw(bits);
  }
  return system;
}

/// What a solver is given: the lower triangle.
Numbers lower(const System& system) {
  Numbers half = system.a;
  for (Index r = 0; r < system.n; ++r)
    for (Index c = r + 1; c < system.n; ++c) half[static_cast<std::size_t>(r * system.n + c)] = std::nan("");
  return half;
}

BOOST_AUTO_TEST_CASE(a_positive_definite_system_is_solved_by_each) {
  for (const Index n : {1, 2, 7, 31, 64, 131}) {
    System system = make_system(n, static_cast<double>(n));
    for (const auto solve : {solvers().solve_llt, solvers().solve_ldlt}) {
      Numbers half = lower(system), x = system.b;
      BOOST_TEST(solve(n, half.data(), x.data()));
      BOOST_TEST(system.residual(x) < 1e-12);
    }
    Numbers x(system.b.size());
    const Multiply multiply = [](void* context, const double* v, double* out) {
      std::ranges::copy(static_cast<System*>(context)->times(v), out);
    };
    const Index made = solvers().solve_cg(n, multiply, &system, system.b.data(), 1e-14, 10 * n, x.data());
    BOOST_TEST((n == 1 || made >= 1));
    BOOST_TEST(system.residual(x) < 1e-12);
    solvers().solve_cg(n, multiply, &system, system.b.data(), 1e-14, 1, x.data());
    BOOST_TEST((n == 1 || system.residual(x) > 1e-9));  // one iteration is not enough
  }
}

BOOST_AUTO_TEST_CASE(only_ldlt_takes_a_matrix_that_is_not_positive_definite) {
  for (const Index n : {1, 2, 33, 100}) {
    const System system = make_system(n, -static_cast<double>(n));
    Numbers half = lower(system), x = system.b;
    BOOST_TEST(!solvers().solve_llt(n, half.data(), x.data()));
    BOOST_TEST(x == system.b, boost::test_tools::per_element());
    half = lower(system);
    BOOST_TEST(solvers().solve_ldlt(n, half.data(), x.data()));
    BOOST_TEST(system.residual(x) < 1e-11);
  }
}

BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_solve_nothing) {
  System system = make_system(5, 5);
  system.a[0] = std::nan("");
  for (const auto solve : {solvers().solve_llt, solvers().solve_ldlt}) {
    Numbers half = lower(system), x = system.b;
    BOOST_TEST(!solve(5, half.data(), x.data()));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::curvature
