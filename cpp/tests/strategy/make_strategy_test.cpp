// Every configuration makes a strategy that trains what one process does, or is refused.
#include <boost/test/unit_test.hpp>

#include "pdnn/data/epoch_order.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/strategy/session.hpp"
#include "ranks.hpp"

using namespace pdnn;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_make_strategy)

namespace {

using Vector = std::vector<double>;
constexpr Index kRows = 24, kInputs = 6, kClasses = 3, kBatch = 8;

std::shared_ptr<nn::Model<double>> make_model() {
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  return std::make_shared<nn::Model<double>>(
      std::make_shared<nn::Network<double>>(
          std::vector<nn::LayerPtr<double>>{std::make_shared<nn::Linear<double>>(kInputs, 8, true, init, init),
                                            std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh),
                                            std::make_shared<nn::Linear<double>>(8, kClasses, true, init, init)}),
      3);
}

struct Data {
  Data() {
    for (Index i = 0; i < kRows * kInputs; ++i) x.push_back(Rng(1).uniform(static_cast<std::uint64_t>(i)));
    for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kClasses));
  }
  data::Source<double> source() const {
    return {{x.data(), data::Samples::Format::float64, kRows, kInputs, {kInputs}}, {classes.data(), {}}};
  }
  Vector x;
  std::vector<std::int32_t> classes;
};

/// What a training of two epochs leaves on one rank.
struct Outcome {
  Vector params;
  EpochSums sums;
  RowsApart apart;
  std::size_t lanes;
};

Outcome train(const StrategyConfig& config, const std::shared_ptr<comm::Communicator>& comm, Index rows_of_step) {
  const Data data;
  const data::Source<double> source = data.source();
  const auto model = make_model();
  const auto sgd = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{});
  sgd->set_segments({{model->count(), 0.1, 1e-3, false}});
  Session<double> session(
      config, Training<double>(model, std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean), sgd, comm,
                               {kInputs}, 0, rows_of_step));
  session.strategy().record();
  Outcome outcome{};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    const std::vector<Index> order = data::epoch_order(4, epoch, kRows);
    const Epoch work{order, rows_of_step, 4, static_cast<std::int64_t>(epoch) * (kRows / rows_of_step), {}};
    outcome.sums = session.run_epoch(source, work, [](const EpochSums&) { return false; });
  }
  outcome.apart = session.strategy().rows_apart();
  session.finish();
  outcome.lanes = session.strategy().timeline().size();
  outcome.params.assign(model->params->data(), model->params->data() + model->count());
  return outcome;
}

Outcome train_alone(const StrategyConfig& config) { return train(config, comm::make_self(), kBatch); }

std::vector<Outcome> train_on_ranks(const StrategyConfig& config, int ranks, Index rows_of_step = kBatch) {
  return tests::on_ranks(
      ranks, [&](const std::shared_ptr<comm::Communicator>& comm) { return train(config, comm, rows_of_step); });
}

double difference(const Outcome& got, const Outcome& want) {
  BOOST_TEST_REQUIRE(got.params.size() == want.params.size());
  double largest = 0;
  for (std::size_t i = 0; i < got.params.size(); ++i)
    largest = std::max(largest, std::abs(got.params[i] - want.params[i]));
  return largest;
}

const reduce::ReducerOptions kMessages{.memory = reduce::ReducerOptions::Memory::messages, .bucket_bytes = 64};

}  // namespace

BOOST_AUTO_TEST_CASE(a_configuration_of_one_process_trains_as_serial) {
  const Outcome serial = train_alone(DataParallelConfig{});
  BOOST_TEST(serial.sums.rows == kRows);
  BOOST_TEST(serial.sums.updates == 3);
  BOOST_TEST(difference(train_alone(DataParallelConfig{.engine = TeamConfig{3}}), serial) == 0);
  BOOST_TEST(difference(train_alone(DataParallelConfig{.engine = PoolConfig{2, 1}}), serial) == 0);
  BOOST_TEST(difference(train_alone(HogwildConfig{1}), serial) == 0);
  BOOST_TEST(difference(train_alone(ElasticAveragingConfig{}), serial) == 0);
  const Outcome pool = train_alone(DataParallelConfig{.engine = PoolConfig{2, 4}});
  BOOST_TEST(difference(pool, serial) > 0);  // its pieces add up in another order
  BOOST_TEST(difference(pool, serial) < 1e-13);
  BOOST_TEST(train_alone(HogwildConfig{3}).sums.updates == 3);
}

BOOST_AUTO_TEST_CASE(a_configuration_of_ranks_trains_as_serial) {
  const Outcome serial = train_alone(DataParallelConfig{});
  const std::vector<std::pair<StrategyConfig, int>> table{
      {DataParallelConfig{}, 2},
      {DataParallelConfig{.engine = TeamConfig{2}, .reducer = kMessages}, 3},
      {DataParallelConfig{.engine = PoolConfig{2, 3}}, 2},
      {ScatterGatherConfig{}, 3},
      {GridConfig{.tensor = 2}, 2},
      {GridConfig{.stages = 2, .pipeline = {.micro_batches = 4}}, 2},
      {GridConfig{.stages = 2, .pipeline = {.schedule = "gpipe", .micro_batches = 2}, .cut = {1}}, 2},
      {GridConfig{.tensor = 2, .reducer = kMessages}, 4},
  };
  for (const auto& [config, ranks] : table)
    for (const Outcome& outcome : train_on_ranks(config, ranks)) {
      BOOST_TEST(difference(outcome, serial) < 1e-13);
      BOOST_TEST(outcome.sums.loss == serial.sums.loss, boost::test_tools::tolerance(1e-12));
      BOOST_TEST(outcome.sums.correct == serial.sums.correct);
    }
}

BOOST_AUTO_TEST_CASE(sums_over_leaves_have_the_same_bits_on_any_ranks) {
  using Memory = reduce::ReducerOptions::Memory;
  const reduce::ReducerOptions shared{.memory = Memory::shared}, messages{.memory = Memory::messages};
  for (const Index leaves : {1, 5, 11}) {  // and empty ones
    const auto pool = [&](int workers, const reduce::ReducerOptions& reducer) {
      return DataParallelConfig{.engine = PoolConfig{workers, leaves}, .reducer = reducer, .leaves = leaves};
    };
    const Outcome want = train_alone(pool(1, {}));
    const auto check = [&](const StrategyConfig& config, int ranks) {
      for (const Outcome& outcome : train_on_ranks(config, ranks)) {
        BOOST_TEST(difference(outcome, want) == 0);
        BOOST_TEST(outcome.sums.loss == want.sums.loss);
        BOOST_TEST(outcome.sums.correct == want.sums.correct);
      }
    };
    check(DataParallelConfig{.engine = PoolConfig{3, leaves}}, 1);
    check(GridConfig{.stages = 2, .pipeline = {.micro_batches = leaves}}, 2);
    for (const int ranks : {2, 3, 5}) {
      if (ranks > leaves) continue;
      for (const reduce::ReducerOptions& reducer : {shared, messages, kMessages}) {
        check(pool(2, reducer), ranks);
        check(DataParallelConfig{.engine = TeamConfig{2}, .reducer = reducer, .leaves = leaves}, ranks);
        if (ranks < 5) check(GridConfig{.stages = 2, .reducer = reducer, .leaves = leaves}, 2 * ranks);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_fields_of_a_configuration_reach_the_strategy) {
  const Outcome serial = train_alone(DataParallelConfig{});
  for (const Outcome& outcome : train_on_ranks(DataParallelConfig{.sum_of_means = true}, 2))
    BOOST_TEST(difference(outcome, serial) > 1e-3);  // twice the step
  for (const Outcome& outcome : train_on_ranks(GridConfig{.tensor = 2, .sum_of_means = true}, 4))
    BOOST_TEST(difference(outcome, serial) > 1e-3);
  const reduce::ReducerOptions coded{.bucket_bytes = 64, .compression = reduce::Compression{"int8", {}}};
  for (const Outcome& outcome : train_on_ranks(DataParallelConfig{.reducer = coded}, 2)) {
    BOOST_TEST(outcome.sums.compression.sums > 0);
    BOOST_TEST(difference(outcome, serial) > 0);
  }
  const GridConfig pipeline{.stages = 2, .pipeline = {.micro_batches = 2}};
  for (const Outcome& outcome : train_on_ranks(pipeline, 2)) BOOST_TEST(outcome.lanes == 2U);
  BOOST_TEST(serial.lanes == 0U);
}

BOOST_AUTO_TEST_CASE(models_are_averaged_as_often_as_configured) {
  const Outcome often = train_on_ranks(ModelAveragingConfig{.every = 1}, 2).front();
  const Outcome end = train_on_ranks(ModelAveragingConfig{}, 2).front();
  BOOST_TEST(difference(often, train_alone(DataParallelConfig{})) < 1e-13);  // plain SGD: as data parallel
  BOOST_TEST(difference(often, end) > 0);
  BOOST_TEST(often.apart.all == 0);
  BOOST_TEST(end.apart.all == 2 * kRows);
  for (const Index every : {Index{0}, Index{2}}) {
    const auto sums = train_on_ranks(ModelAveragingConfig{.every = every}, 3);
    const auto by_master = train_on_ranks(ModelAveragingConfig{.every = every, .by_master = true}, 3);
    for (std::size_t rank = 0; rank < 3; ++rank) BOOST_TEST(difference(by_master[rank], sums[rank]) == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_center_moves_as_often_and_as_far_as_configured) {
  const auto center = [](const ElasticAveragingConfig& config) { return train_on_ranks(config, 2).front(); };
  const Outcome usual = center({.every = 2});
  BOOST_TEST(difference(center({.every = 2, .moving_rate = 0.9}), usual) == 0);
  BOOST_TEST(difference(center({.engine = TeamConfig{2}, .every = 2}), usual) == 0);
  BOOST_TEST(difference(center({.every = 2, .moving_rate = 0.5}), usual) > 1e-3);
  BOOST_TEST(difference(center({.every = 3}), usual) > 1e-3);
  BOOST_TEST(usual.apart.all == 2 * kRows);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  BOOST_CHECK_THROW(train_on_ranks(GridConfig{.tensor = 2}, 3), ValueError);
  BOOST_CHECK_THROW(train_on_ranks(GridConfig{.stages = 4}, 4), ValueError);  // of three layers
  const reduce::Compression codec{"int8", {}};
  BOOST_CHECK_THROW(train_on_ranks(ModelAveragingConfig{.by_master = true, .compression = codec}, 2), ValueError);
  BOOST_CHECK_THROW(train_on_ranks(ElasticAveragingConfig{.moving_rate = 2}, 2), ValueError);
  const DataParallelConfig leaves{.engine = PoolConfig{1, 2}, .leaves = 2};
  DataParallelConfig of_means = leaves, coded = leaves;
  of_means.sum_of_means = true;
  coded.reducer.compression = codec;
  BOOST_CHECK_THROW(train_on_ranks(leaves, 3), ValueError);
  BOOST_CHECK_THROW(train_on_ranks(of_means, 2), ValueError);
  BOOST_CHECK_THROW(train_on_ranks(coded, 2), ValueError);
  const auto model = make_model();
  const auto sgd = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{});
  const auto loss = std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean);
  BOOST_CHECK_THROW(Training<double>(model, loss, sgd, comm::make_self(), {kInputs + 1}, 0, kBatch), ValueError);
  BOOST_CHECK_THROW(Training<double>(model, loss, sgd, comm::make_self(), {kInputs}, kClasses + 1, kBatch), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
