// Clipping: by norm and by value from the formulas, the same bits for any team, and what is not finite.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "pdnn/core/random.hpp"
#include "pdnn/optim/optimizer.hpp"

using namespace pdnn;
using namespace pdnn::optim;
using By = Clip<double>::By;

BOOST_AUTO_TEST_SUITE(optim_clip)

namespace {

std::vector<double> clipped(By by, double most, std::vector<double> g, int threads = 1) {
  Clip<double> clip(by, most, static_cast<Index>(g.size()));
  threads::Team(threads).run([&](const threads::Member& member) { clip(member, g); });
  return g;
}

std::vector<double> gradient(Index count) {
  std::vector<double> g(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = Rng(3).normal(i);
  return g;
}

}  // namespace

BOOST_AUTO_TEST_CASE(by_norm_shortens_and_keeps_the_direction) {
  const std::vector<double> g{3, 0, -4}, short_enough = clipped(By::norm, 5.1, g), shortened = clipped(By::norm, 1, g);
  BOOST_TEST(short_enough == g, boost::test_tools::per_element());
  for (std::size_t i = 0; i < g.size(); ++i)
    BOOST_TEST(shortened[i] == g[i] / (5 + 1e-6), boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE(by_value_bounds_every_element) {
  const std::vector<double> want{1, -0.5, -1};
  BOOST_TEST(clipped(By::value, 1, {3, -0.5, -4}) == want, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_size_of_a_team_changes_no_bit) {
  for (const Index count : {1, 1000, 5 * 4096 + 7})
    for (const By by : {By::norm, By::value}) {
      const std::vector<double> alone = clipped(by, 0.01, gradient(count));
      BOOST_TEST((alone != gradient(count)));
      for (const int threads : {2, 3}) BOOST_TEST((clipped(by, 0.01, gradient(count), threads) == alone));
    }
}

BOOST_AUTO_TEST_CASE(a_norm_whose_squares_are_too_large_is_compared_with_the_bound) {
  const std::vector<double> g{3e200, -4e200};
  BOOST_TEST(clipped(By::norm, 6e200, g) == g, boost::test_tools::per_element());
  const std::vector<double> shortened = clipped(By::norm, 1, g);
  BOOST_TEST(shortened[0] == 0.6, boost::test_tools::tolerance(1e-15));
  BOOST_TEST(shortened[1] == -0.8, boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE(what_is_no_number_is_not_hidden) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double g : clipped(By::norm, 1, {nan, 1})) BOOST_TEST(std::isnan(g));
  BOOST_TEST(std::isnan(clipped(By::value, 1, {nan})[0]));
}

BOOST_AUTO_TEST_CASE(a_bound_is_a_number_above_0) {
  for (const double most : {0.0, -1.0, std::numeric_limits<double>::infinity()})
    BOOST_CHECK_THROW(Clip<double>(By::norm, most, 1), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
