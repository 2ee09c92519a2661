// Several epochs in one call of a session: the same bits as one after another, and an end where a step is not finite.
#include <boost/test/unit_test.hpp>

#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/strategy/session.hpp"

using namespace pdnn;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_epochs_ahead)

namespace {

using Values = std::vector<double>;
constexpr Index kRowsAhead = 10, kEpochsAhead = 4, kGroupsAhead = 2;

/// A session over ten rows in two steps an epoch, with velocities, and a group for the biases.
struct Problem {
  Values x;
  std::vector<std::int32_t> classes;
  std::shared_ptr<nn::Model<double>> model;
  std::shared_ptr<optim::Optimizer<double>> sgd;
  std::vector<Index> orders;

  Problem() {
    for (Index i = 0; i < kRowsAhead * 3; ++i) x.push_back(Rng(1).uniform(static_cast<std::uint64_t>(i)));
    for (Index r = 0; r < kRowsAhead; ++r) classes.push_back(static_cast<std::int32_t>(r % 2));
    const nn::Init init{nn::Init::Kind::uniform, 0.5};
    model = std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(std::vector<nn::LayerPtr<double>>{
                                                    std::make_shared<nn::Linear<double>>(3, 5, true, init, init),
                                                    std::make_shared<nn::Linear<double>>(5, 2, true, init, init)}),
                                                3);
    sgd = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{0.9});
    sgd->set_segments(
        {{15, 0.1, 1e-3, false, 0}, {20, 0.1, 0, false, 1}, {30, 0.1, 1e-3, false, 0}, {32, 0.1, 0, false, 1}});
    for (Index epoch = 0; epoch < kEpochsAhead; ++epoch)
      std::ranges::copy(data::epoch_order(4, static_cast<std::uint64_t>(epoch), kRowsAhead),
                        std::back_inserter(orders));
  }

  data::Source<double> source() const {
    return {{x.data(), data::Samples::Format::float64, kRowsAhead, 3, {3}}, {classes.data(), {}}};
  }
  Session<double> session(const StrategyConfig& config) const {
    return Session<double>(
        config, Training<double>(model, std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean), sgd,
                                 comm::make_self(), {3}, 0, 5));
  }
  std::vector<EpochMade> run(const StrategyConfig& config, const Values& rates, const Values& scales,
                             bool squares = false) const {
    const Matrix<const double> table(rates.data(), std::ssize(rates) / kGroupsAhead, kGroupsAhead);
    return session(config).run_epochs(source(), {{}, 5, 4, 0, {}, OnNonfinite::stop},
                                      {{orders.data(), kEpochsAhead, kRowsAhead}, table, scales, squares});
  }
  Values params() const { return {model->params->data(), model->params->data() + model->count()}; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(several_epochs_have_the_bits_of_one_after_another) {
  const Values rates{0.1, 0.1, 0.05, 0.02, 0.03, 0.03, 0.2, 0.1}, scales{1, 2, 0.5, 1.5};
  for (const StrategyConfig& config :
       {StrategyConfig{DataParallelConfig{TeamConfig{1}}}, StrategyConfig{DataParallelConfig{PoolConfig{2, 3}}},
        StrategyConfig{HogwildConfig{1}}}) {
    const Problem one, several, looked_at;
    Session<double> session = one.session(config);
    const std::vector<EpochMade> made = several.run(config, rates, scales),
                                 told = looked_at.run(config, rates, scales, true);
    BOOST_TEST(std::ssize(made) == kEpochsAhead);
    for (Index epoch = 0; epoch < kEpochsAhead; ++epoch) {
      const auto at = static_cast<std::size_t>(epoch);
      std::vector<optim::Segment> segments = one.sgd->segments();
      for (optim::Segment& segment : segments) segment.lr = rates[at * kGroupsAhead + segment.group];
      one.sgd->set_segments(segments);
      one.sgd->scale_state(scales[at]);
      const std::span<const Index> order = std::span(one.orders).subspan(at * kRowsAhead, kRowsAhead);
      const EpochSums sums =
          session.run_epoch(one.source(), {order, 5, 4, 2 * epoch, {}}, [](const EpochSums&) { return false; });
      BOOST_TEST(made[at].sums.loss == sums.loss);
      BOOST_TEST(made[at].sums.steps == 2);
      BOOST_TEST(made[at].squares.empty());
      BOOST_TEST(told[at].sums.loss == sums.loss);
      BOOST_TEST(told[at].squares == one.sgd->squares(one.model->params->span()), boost::test_tools::per_element());
    }
    BOOST_TEST(several.params() == one.params(), boost::test_tools::per_element());
    BOOST_TEST(looked_at.params() == one.params(), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(squares_are_those_of_a_groups_parameters) {
  const Problem problem;
  Values squares(kGroupsAhead);
  const Values w = problem.params();
  for (std::size_t i = 0; i < w.size(); ++i) squares[(i >= 15 && i < 20) || i >= 30 ? 1 : 0] += w[i] * w[i];
  const Values got = problem.sgd->squares(problem.model->params->span());
  BOOST_TEST(got == squares, boost::test_tools::tolerance(1e-14) << boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(they_end_where_a_step_is_not_finite) {
  const Problem problem;
  const std::vector<EpochMade> made =
      problem.run(DataParallelConfig{TeamConfig{1}}, {0.1, 0.1, 1e308, 1e308, 0.1, 0.1, 0.1, 0.1}, {1, 1, 1, 1});
  BOOST_TEST(made.size() == 2U);
  BOOST_TEST(!made[0].sums.nonfinite.found());
  BOOST_TEST(made[1].sums.nonfinite.step == 3);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const Problem problem;
  BOOST_CHECK_THROW(problem.run(DataParallelConfig{TeamConfig{1}}, {}, {1, 1}), ValueError);
  BOOST_CHECK_THROW(problem.run(DataParallelConfig{TeamConfig{1}}, {0.1, 0.1}, {1, 1, 1, 1}), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
