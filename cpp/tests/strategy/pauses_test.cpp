// Pauses: every strategy ends an epoch early, at the same step on all ranks, and goes on with the same bits.
#include <boost/test/unit_test.hpp>

#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/strategy/session.hpp"
#include "ranks.hpp"

using namespace pdnn;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_pauses)

namespace {

using Vector = std::vector<double>;
constexpr Index kRows = 46, kInputs = 6, kClasses = 3, kBatch = 8;  // six steps, the last of six rows

struct Outcome {
  Vector params;  // and behind them the buffers
  EpochSums sums;
  int calls = 0;
};

/// Two epochs, with a pause after every so many steps; 0: none.
Outcome train(const StrategyConfig& config, const std::shared_ptr<comm::Communicator>& comm, Index steps) {
  Vector x;
  std::vector<std::int32_t> classes;
  for (Index i = 0; i < kRows * kInputs; ++i) x.push_back(Rng(1).uniform(static_cast<std::uint64_t>(i)));
  for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kClasses));
  const data::Source<double> source({x.data(), data::Samples::Format::float64, kRows, kInputs, {kInputs}},
                                    {classes.data(), {}});
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const auto model = std::make_shared<nn::Model<double>>(
      std::make_shared<nn::Network<double>>(std::vector<nn::LayerPtr<double>>{
          std::make_shared<nn::Linear<double>>(kInputs, 8, true, init, init),
          std::make_shared<nn::BatchNorm<double>>(nn::BatchNorm<double>::Options{.channels = 8, .images = false}),
          std::make_shared<nn::Dropout<double>>(0.2),
          std::make_shared<nn::Linear<double>>(8, kClasses, true, init, init)}),
      3);
  const auto sgd = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{0.9});
  sgd->set_segments({{model->count(), 0.1, 1e-3, false}});
  Session<double> session(
      config, Training<double>(model, std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean), sgd, comm,
                               {kInputs}, 0, kBatch));
  const Vector rates{0.1, 0.3, 0.2, 0.1, 0.05, 0.2};
  Outcome outcome;
  std::int64_t made = 0;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    const std::vector<Index> order = data::epoch_order(4, epoch, kRows);
    EpochSums sums;
    for (Index row = 0; row < kRows; row = std::min(kRows, sums.steps * kBatch)) {
      const Index before = sums.steps, left = std::ssize(rates) - before;
      const Epoch work{.order = order,
                       .batch_size = kBatch,
                       .seed = 4,
                       .first_step = made,
                       .rates = {rates.data() + before, left, 1},
                       .first_row = row,
                       .before = sums,
                       .most_steps = steps};
      sums = session.run_epoch(source, work, [](const EpochSums&) { return false; });
      made += sums.steps - before;
      ++outcome.calls;
      if (sums.stopped) throw std::logic_error("a pause is no wish to stop");
    }
    outcome.sums = sums;
  }
  session.finish();
  outcome.params.assign(model->params->data(), model->params->data() + model->count());
  outcome.params.insert(outcome.params.end(), model->buffers->data(), model->buffers->data() + model->buffers->size());
  return outcome;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_pause_changes_no_bit_of_models_and_sums) {
  using Memory = reduce::ReducerOptions::Memory;
  const std::vector<std::pair<StrategyConfig, int>> table{
      {DataParallelConfig{TeamConfig{1}}, 1},
      {DataParallelConfig{TeamConfig{2}}, 1},
      {DataParallelConfig{PoolConfig{2, 3}}, 1},
      {DataParallelConfig{.reducer = {Memory::shared}}, 3},
      {DataParallelConfig{.reducer = {Memory::messages, 64}}, 3},
      {DataParallelConfig{.reducer = {.compression = reduce::Compression{"topk:0.3", true}}}, 2},
      {ScatterGatherConfig{}, 2},
      {ModelAveragingConfig{.every = 4}, 1},
      {ModelAveragingConfig{.every = 4}, 3},
      {ModelAveragingConfig{.every = 0}, 2},
      {ModelAveragingConfig{.every = 4, .compression = reduce::Compression{"topk:0.3", true}}, 2},
      {ElasticAveragingConfig{.every = 4}, 3},
      {HogwildConfig{1}, 1}};
  for (const auto& [config, ranks] : table) {
    const auto outcomes = [&, &config = config, ranks = ranks](Index steps) {
      return tests::on_ranks(
          ranks, [&](const std::shared_ptr<comm::Communicator>& comm) { return train(config, comm, steps); });
    };
    const std::vector<Outcome> want = outcomes(0);
    for (const Index steps : {1, 2, 5}) {
      const std::vector<Outcome> got = outcomes(steps);
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        BOOST_TEST(got[rank].calls == 2 * ((6 + steps - 1) / steps));
        BOOST_TEST(got[rank].params == want[rank].params, boost::test_tools::per_element());
        BOOST_TEST(got[rank].sums.loss == want[rank].sums.loss);
        BOOST_TEST(got[rank].sums.correct == want[rank].sums.correct);
        BOOST_TEST(got[rank].sums.rows == kRows);
        BOOST_TEST(got[rank].sums.steps == want[rank].sums.steps);
        BOOST_TEST(got[rank].sums.updates == want[rank].sums.updates);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(workers_that_do_not_wait_take_every_row_once_around_pauses) {
  const Outcome got = train(HogwildConfig{3}, comm::make_self(), 2);
  BOOST_TEST(got.calls == 6);
  BOOST_TEST(got.sums.rows == kRows);
  BOOST_TEST(got.sums.weight == kRows);
  BOOST_TEST(got.sums.updates == 6);
}

BOOST_AUTO_TEST_CASE(an_epoch_that_is_stopped_leaves_the_gradient_of_its_last_step) {
  const Vector x(kRows * kInputs, 0.5);
  const std::vector<std::int32_t> classes(kRows, 1);
  const data::Source<double> source({x.data(), data::Samples::Format::float64, kRows, kInputs, {kInputs}},
                                    {classes.data(), {}});
  constexpr Index kHidden = 70;  // too many for a stack: a weight is updated as its gradient is made
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const auto model = std::make_shared<nn::Model<double>>(
      std::make_shared<nn::Network<double>>(
          std::vector<nn::LayerPtr<double>>{std::make_shared<nn::Linear<double>>(kInputs, kHidden, true, init, init),
                                            std::make_shared<nn::Dropout<double>>(0.2),
                                            std::make_shared<nn::Linear<double>>(kHidden, kClasses, true, init, init)}),
      3);
  const auto sgd = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{0.9});
  sgd->set_segments({{model->count(), 1e-4, 0, false}});
  Session<double> session(DataParallelConfig{},
                          Training<double>(model, std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean),
                                           sgd, comm::make_self(), {kInputs}, 0, kBatch));
  const std::vector<Index> order(1000000, 0);
  const EpochSums sums = session.run_epoch(source, {order, kBatch, 4, 0, {}}, [](const EpochSums&) { return true; });
  BOOST_TEST(sums.stopped);
  const std::span<const double> weight = slice(model->grads->span(), 0, kInputs * kHidden);
  BOOST_TEST(std::ranges::count(weight, 0.0) < std::ssize(weight));
}

BOOST_AUTO_TEST_SUITE_END()
