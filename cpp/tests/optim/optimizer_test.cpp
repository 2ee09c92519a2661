// Optimizers: the rules from their formulas, groups that cut anywhere, and slices in any order.
#include "pdnn/optim/optimizer.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

using namespace pdnn;
using namespace pdnn::optim;

BOOST_AUTO_TEST_SUITE(optim_optimizer)

namespace {

using Numbers = std::vector<double>;
const std::vector<Segment> kGroups{{2, 0.1, 0.5, false}, {3, 0, 0, true}, {5, 0.2, 0, false}};

std::shared_ptr<Optimizer<double>> make(const kernels::Rule& rule) {
  return std::make_shared<Optimizer<double>>(5, rule);
}

/// Every optimizer, for five parameters.
std::vector<std::shared_ptr<Optimizer<double>>> optimizers() {
  return {make(kernels::Sgd{}),
          make(kernels::Sgd{0.9}),
          make(kernels::Sgd{0.9, true}),
          make(kernels::Adam{0.9, 0.99, 1e-3, false}),
          make(kernels::Adam{0.9, 0.99, 1e-3, true}),
          make(kernels::Lion{0.9, 0.99}),
          make(kernels::RmsProp{0.9, 1e-3, 0, false}),
          make(kernels::RmsProp{0.9, 1e-3, 0, true}),
          make(kernels::RmsProp{0.9, 1e-3, 0.5, true})};
}

Numbers trained(Optimizer<double>& optimizer, const std::vector<Range>& slices) {
  optimizer.set_segments(kGroups);
  Numbers w{1, 2, 3, 4, 5};
  for (int step = 0; step < 3; ++step) {
    const Numbers g{0.5, -1, 2, 0.25 * step, -0.125};
    optimizer.begin_step();
    for (const Range& slice : slices)
      optimizer.apply(slice.begin, w.data() + slice.begin, g.data() + slice.begin, slice.size());
  }
  return w;
}

/// The same from step(i, t, d, lr), the change of parameter i at step t = 1, 2, 3 by its gradient d, which has the
/// weight decay in it.
template <class Step>
Numbers expected(Step step) {
  Numbers w{1, 2, 3, 4, 5};
  const Numbers lr{0.1, 0.1, 0, 0.2, 0.2}, decay{0.5, 0.5, 0, 0, 0};
  for (int t = 1; t <= 3; ++t) {
    const Numbers g{0.5, -1, 2, 0.25 * (t - 1), -0.125};
    for (std::size_t i = 0; i < 5; ++i)
      if (i != 2) w[i] -= step(i, t, g[i] + decay[i] * w[i], lr[i]);
  }
  return w;
}

void check_close(const Numbers& got, const Numbers& want) {
  for (std::size_t i = 0; i < want.size(); ++i) BOOST_TEST(got[i] == want[i], boost::test_tools::tolerance(1e-14));
  BOOST_TEST(got[2] == 3);  // frozen
}

}  // namespace

BOOST_AUTO_TEST_CASE(sgd_follows_its_formula_in_every_group) {
  for (const bool nesterov : {false, true}) {
    Optimizer<double> sgd(5, kernels::Sgd{0.9, nesterov});
    Numbers v(5);
    check_close(trained(sgd, {{0, 5}}), expected([&](std::size_t i, int, double d, double lr) {
                  v[i] = 0.9 * v[i] + d;
                  return lr * (nesterov ? d + 0.9 * v[i] : v[i]);
                }));
  }
}

BOOST_AUTO_TEST_CASE(adam_follows_its_formula_in_every_group) {
  Optimizer<double> adam(5, kernels::Adam{0.9, 0.99, 1e-3, false});
  Numbers m(5), v(5);
  check_close(trained(adam, {{0, 5}}), expected([&](std::size_t i, int t, double d, double lr) {
                m[i] = 0.9 * m[i] + 0.1 * d;
                v[i] = 0.99 * v[i] + 0.01 * d * d;
                const double mean = m[i] / (1 - std::pow(0.9, t)), square = v[i] / (1 - std::pow(0.99, t));
                return lr * mean / (std::sqrt(square) + 1e-3);
              }));
}

BOOST_AUTO_TEST_CASE(rmsprop_follows_its_formula_in_every_group) {
  Optimizer<double> rmsprop(5, kernels::RmsProp{0.9, 1e-3, 0.5, true});
  Numbers v(5), m(5), b(5);
  check_close(trained(rmsprop, {{0, 5}}), expected([&](std::size_t i, int, double d, double lr) {
                v[i] = 0.9 * v[i] + 0.1 * d * d;
                m[i] = 0.9 * m[i] + 0.1 * d;
                b[i] = 0.5 * b[i] + d / (std::sqrt(v[i] - m[i] * m[i]) + 1e-3);
                return lr * b[i];
              }));
}

BOOST_AUTO_TEST_CASE(lion_follows_its_formula_in_every_group) {
  Optimizer<double> lion(5, kernels::Lion{0.9, 0.99});
  lion.set_segments({{5, 0.1, 0.5, false}});
  Numbers w{1, 2, 3, 4, 5}, want = w, m(5);
  const Numbers g{0.5, -1, 2, 0, -0.125};
  for (int step = 0; step < 3; ++step) {
    lion.begin_step();
    lion.apply(0, w.data(), g.data(), 5);
    for (std::size_t i = 0; i < 5; ++i) {
      const double c = 0.9 * m[i] + 0.1 * g[i];
      want[i] = (1 - 0.1 * 0.5) * want[i] - 0.1 * (c > 0 ? 1 : c < 0 ? -1 : 0);
      m[i] = 0.99 * m[i] + 0.01 * g[i];
    }
  }
  for (std::size_t i = 0; i < 5; ++i) BOOST_TEST(w[i] == want[i], boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(decoupled_weight_decay_stays_out_of_the_means) {
  Optimizer<double> adam(1, kernels::Adam{0.9, 0.99, 1e-3, true});
  adam.set_segments({{1, 0.1, 0.5, false}});
  double w = 8;
  const double g = 0;
  adam.begin_step();
  adam.apply(0, &w, &g, 1);
  BOOST_TEST(w == 8 * (1 - 0.1 * 0.5), boost::test_tools::tolerance(1e-15));
  BOOST_TEST(adam.state()[1][0] == 0);
}

BOOST_AUTO_TEST_CASE(the_order_of_slices_changes_no_bit) {
  const auto whole = optimizers(), sliced = optimizers();
  for (std::size_t i = 0; i < whole.size(); ++i)
    BOOST_TEST(trained(*sliced[i], {{4, 5}, {1, 4}, {0, 1}, {2, 2}}) == trained(*whole[i], {{0, 5}}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_clone_goes_on_from_the_same_step_and_clips_as_much) {
  for (const bool clipped : {false, true}) {
    Optimizer<double> adam(5, kernels::Adam{0.9, 0.99, 1e-3, false});
    if (clipped) adam.set_clip(std::make_unique<Clip<double>>(Clip<double>::By::value, 0.5, 5));
    trained(adam, {{0, 5}});
    const std::unique_ptr<Optimizer<double>> clone = adam.clone();
    BOOST_TEST((clone->clip() != nullptr) == clipped);
    BOOST_TEST(clone->steps() == 3);
    BOOST_TEST(clone->state_hash() == adam.state_hash());
    BOOST_TEST(trained(*clone, {{0, 5}}) == trained(adam, {{0, 5}}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_step_changes_the_hash_of_an_optimizer_without_state) {
  Optimizer<double> sgd(5, kernels::Sgd{});
  const std::size_t before = sgd.state_hash();
  sgd.begin_step();
  BOOST_TEST(sgd.state_hash() != before);
}

BOOST_AUTO_TEST_CASE(parameters_that_are_frozen_are_not_looked_at) {
  Optimizer<double> sgd(5, kernels::Sgd{});
  sgd.set_segments({{2, 0.1, 0, false, 0}, {3, 0.1, 0, true, 2}, {5, 0.1, 0, false, 1}});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  BOOST_TEST(sgd.first_nonfinite(Numbers{1, 1, nan, 1, 1}) == 5);
  BOOST_TEST(sgd.first_nonfinite(Numbers{1, 1, nan, 1, nan}) == 4);
  BOOST_TEST(sgd.squares(Numbers{1, 2, 3, 4, 5}) == Numbers({5, 41}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_schedule_gives_every_group_its_rate) {
  Optimizer<float> sgd(4, kernels::Sgd{});
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
  Optimizer<double> sgd(5, kernels::Sgd{});
  BOOST_CHECK_THROW(sgd.set_segments({{4, 0.1, 0, false}}), ValueError);
  BOOST_CHECK_THROW(sgd.set_segments({{5, 0.1, 0, false}, {4, 0.1, 0, false}}), ValueError);
  BOOST_CHECK_THROW(sgd.set_segments({{4, 0.1, 0, false}, {3, 0.1, 0, false}, {5, 0.1, 0, false}}), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
