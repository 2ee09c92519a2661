// Optimizers: the rule from its formula, groups that cut anywhere, and slices in any order.
#include <boost/test/unit_test.hpp>
#include <vector>

#include "pdnn/optim/sgd.hpp"

using namespace pdnn;
using namespace pdnn::optim;

BOOST_AUTO_TEST_SUITE(optim_optimizer)

namespace {

std::vector<double> trained(bool nesterov, const std::vector<Range>& slices) {
  SGD<double> sgd(5, 0.9, nesterov);
  sgd.set_segments({{2, 0.1, 0.5, false}, {3, 0, 0, true}, {5, 0.2, 0, false}});
  std::vector<double> w{1, 2, 3, 4, 5};
  const std::vector<double> g{0.5, -1, 2, 0.25, -0.125};
  for (int step = 0; step < 3; ++step) {
    sgd.begin_step();
    for (const Range& slice : slices)
      sgd.apply(slice.begin, w.data() + slice.begin, g.data() + slice.begin, slice.size());
  }
  return w;
}

std::vector<double> expected(bool nesterov) {
  std::vector<double> w{1, 2, 3, 4, 5}, v(5);
  const std::vector<double> g{0.5, -1, 2, 0.25, -0.125}, lr{0.1, 0.1, 0, 0.2, 0.2}, l2{0.5, 0.5, 0, 0, 0};
  for (int step = 0; step < 3; ++step)
    for (std::size_t i = 0; i < 5; ++i) {
      const double d = g[i] + l2[i] * w[i];
      v[i] = 0.9 * v[i] + d;
      w[i] -= lr[i] * (nesterov ? d + 0.9 * v[i] : v[i]);
    }
  return w;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sgd_follows_its_formula_in_every_group) {
  for (const bool nesterov : {false, true}) {
    const std::vector<double> got = trained(nesterov, {{0, 5}}), want = expected(nesterov);
    for (std::size_t i = 0; i < 5; ++i) BOOST_TEST(got[i] == want[i], boost::test_tools::tolerance(1e-15));
    BOOST_TEST(got[2] == 3);  // frozen
  }
}

BOOST_AUTO_TEST_CASE(the_order_of_slices_changes_no_bit) {
  BOOST_TEST(trained(false, {{4, 5}, {1, 4}, {0, 1}, {2, 2}}) == trained(false, {{0, 5}}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_schedule_gives_every_group_its_rate) {
  SGD<float> sgd(4, 0, false);
  sgd.set_segments({{1, 9, 0, false, 1}, {2, 9, 0, false, 0}, {3, 9, 0, true, 7}, {4, 9, 0, false, 1}});
  const std::vector<double> rates{0.25, 0.5};
  sgd.set_rates(rates);
  std::vector<float> w(4, 1);
  const std::vector<float> g(4, 2), want{0, 0.5, 1, 0};
  sgd.apply(0, w.data(), g.data(), 4);
  BOOST_TEST(w == want, boost::test_tools::per_element());
  BOOST_CHECK_THROW(sgd.set_rates(std::span(rates).first(1)), ValueError);
}

BOOST_AUTO_TEST_CASE(segments_must_cover_the_parameters) {
  SGD<double> sgd(5, 0, false);
  BOOST_CHECK_THROW(sgd.set_segments({{4, 0.1, 0, false}}), ValueError);
  BOOST_CHECK_THROW(sgd.set_segments({{5, 0.1, 0, false}, {4, 0.1, 0, false}}), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
