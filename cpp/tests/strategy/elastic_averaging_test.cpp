// Elastic averaging: models and center by the paper's formulas, what ranks have alike, when they stop.
#include "pdnn/strategy/elastic_averaging.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>

#include "pdnn/core/errors.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/strategy/session.hpp"
#include "ranks.hpp"

using namespace pdnn;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_elastic_averaging)

namespace {

using Vector = std::vector<double>;
constexpr Index kRows = 18, kInputs = 5, kBatch = 4, kEpochs = 3;
constexpr double kRate = 0.1;  // of learning

/// Linear regression: targets are near a plane.
struct Data {
  Data() {
    for (Index i = 0; i < kRows * kInputs; ++i) x.push_back(Rng(1).uniform(static_cast<std::uint64_t>(i)) - 0.5);
    for (Index r = 0; r < kRows; ++r)
      y.push_back(2 * x[static_cast<std::size_t>(r * kInputs)] + Rng(2).uniform(static_cast<std::uint64_t>(r)));
  }
  data::Source<double> source() const {
    return {{x.data(), data::Samples::Format::float64, kRows, kInputs, {kInputs}},
            {nullptr, Matrix<const double>(y.data(), kRows, 1)}};
  }
  Vector x, y;
};

struct Plan {
  StrategyConfig config;
  bool deep = false;  // a network of every kind of parameter, with momentum; otherwise one Linear without bias
  bool finish = true;
  Index repeat = 1;  // times that each epoch goes through the rows
  std::function<bool(comm::Communicator&)> poll = [](comm::Communicator&) { return false; };
};

struct Outcome {
  Vector begin, own, seen, params;  // parameters and buffers: at first, of this rank, in evaluation, at last
  EpochSums sums;                   // of the last epoch
  bool held = false;                // after an evaluation the model is the rank's own again
};

std::shared_ptr<nn::Model<double>> make_model(bool deep) {
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const auto linear = [&](Index inputs, Index outputs) {
    return std::make_shared<nn::Linear<double>>(inputs, outputs, deep, init, init);
  };
  std::vector<nn::LayerPtr<double>> layers{linear(kInputs, 1)};
  if (deep)
    layers = {linear(kInputs, 70),
              std::make_shared<nn::BatchNorm<double>>(
                  nn::BatchNorm<double>::Options{.channels = 70, .images = false, .eps = 0.1}),
              std::make_shared<nn::Dropout<double>>(0.2), linear(70, 1)};
  return std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(layers), 3);
}

Vector everything(const nn::Model<double>& model) {
  Vector all(model.params->data(), model.params->data() + model.count());
  all.insert(all.end(), model.buffers->data(), model.buffers->data() + model.buffers->size());
  return all;
}

Outcome train(const Plan& plan, const std::shared_ptr<comm::Communicator>& comm) {
  const Data data;
  const auto model = make_model(plan.deep);
  const auto sgd = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{plan.deep ? 0.9 : 0.0});
  sgd->set_segments({{model->count(), plan.deep ? 0.01 : kRate, 0, false}});
  const Index rows_of_step = kBatch * comm->size();
  Session<double> session(plan.config,
                          Training<double>(model, std::make_shared<nn::MSELoss<double>>(nn::Reduction::mean), sgd, comm,
                                           {kInputs}, 1, rows_of_step));
  Outcome outcome;
  outcome.begin = everything(*model);
  std::int64_t steps = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs && !outcome.sums.stopped; ++epoch) {
    const std::vector<Index> once = data::epoch_order(4, epoch, kRows);
    std::vector<Index> order;
    for (Index i = 0; i < plan.repeat; ++i) order.insert(order.end(), once.begin(), once.end());
    outcome.sums = session.run_epoch(data.source(), {order, rows_of_step, 4, steps, {}},
                                     [&](const EpochSums&) { return plan.poll(*comm); });
    steps += outcome.sums.steps;
  }
  outcome.own = everything(*model);
  session.enter_evaluation();
  outcome.seen = everything(*model);
  session.leave_evaluation();
  outcome.held = everything(*model) == outcome.own;
  if (plan.finish) session.finish();
  outcome.params = everything(*model);
  return outcome;
}

std::vector<Outcome> on_ranks(const Plan& plan, int ranks) {
  return tests::on_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& comm) { return train(plan, comm); });
}

double difference(const Vector& a, const Vector& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// All ranks' models and their center, by plain loops: steps of gradient descent, then equations (5) and (6).
struct Reference {
  Reference(int ranks, Index every, double moving_rate, const Vector& begin) : models(ranks, begin), center(begin) {
    const Data data;
    const Index p = ranks, rows_of_step = kBatch * p;
    Index steps = 0;
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const std::vector<Index> order = data::epoch_order(4, epoch, kRows);
      for (Index at = 0; at < kRows; at += rows_of_step) {
        const Index rows = std::min(rows_of_step, kRows - at);
        for (Index rank = 0, first = at; rank < p; ++rank) {
          const Index own = rows / p + (rank < rows % p ? 1 : 0);
          descend(models[static_cast<std::size_t>(rank)], data, slice(std::span(order), first, own));
          first += own;
        }
        if (++steps % every == 0) move_together(moving_rate / static_cast<double>(p));
      }
    }
  }

  static void descend(Vector& w, const Data& data, std::span<const Index> rows) {
    Vector gradient(w.size());
    for (const Index row : rows) {
      const double* x = data.x.data() + row * kInputs;
      const double error = std::inner_product(w.begin(), w.end(), x, 0.0) - data.y[static_cast<std::size_t>(row)];
      for (std::size_t i = 0; i < w.size(); ++i) gradient[i] += 2 * error * x[i] / static_cast<double>(rows.size());
    }
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= kRate * gradient[i];
  }

  void move_together(double alpha) {
    const Vector old = center;
    for (Vector& x : models)
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double force = alpha * (x[i] - old[i]);
        x[i] -= force;
        center[i] += force;
      }
  }

  std::vector<Vector> models;
  Vector center;
};

}  // namespace

BOOST_AUTO_TEST_CASE(models_and_center_follow_the_papers_formulas) {
  for (const int ranks : {2, 3, 4})  // of the last step four ranks have one row each, or none
    for (const Index every : {1, 2, 5})
      for (const double moving_rate : {0.3, 0.9, 1.0}) {
        const ElasticAveragingConfig config{.every = every, .moving_rate = moving_rate};
        const std::vector<Outcome> got = on_ranks({.config = config}, ranks);
        const Reference want(ranks, every, moving_rate, got[0].begin);
        BOOST_TEST(difference(want.models[0], want.models[1]) > 1e-6);
        for (std::size_t rank = 0; rank < got.size(); ++rank) {
          BOOST_TEST(difference(got[rank].own, want.models[rank]) <= 1e-15);
          BOOST_TEST(difference(got[rank].params, want.center) <= 1e-15);
          BOOST_TEST(got[rank].params == got[0].params, boost::test_tools::per_element());
          BOOST_TEST(got[rank].seen == got[0].params, boost::test_tools::per_element());
          BOOST_TEST(got[rank].held);
        }
      }
}

BOOST_AUTO_TEST_CASE(buffers_and_weights_in_panels_are_moved_too) {
  for (const int ranks : {2, 3}) {
    const Index steps = kEpochs * ((kRows + ranks * kBatch - 1) / (ranks * kBatch));
    const auto apart = on_ranks({.config = ModelAveragingConfig{}, .deep = true, .finish = false}, ranks);
    const auto moved = on_ranks({.config = ElasticAveragingConfig{.every = steps}, .deep = true}, ranks);
    Vector center = apart[0].begin;
    for (std::size_t rank = 0; rank < apart.size(); ++rank) {
      Vector own = apart[rank].own;
      for (std::size_t i = 0; i < own.size(); ++i) {
        const double force = 0.9 / ranks * (own[i] - apart[0].begin[i]);
        own[i] -= force;
        center[i] += force;
      }
      BOOST_TEST(difference(moved[rank].own, own) <= 1e-15);
    }
    BOOST_TEST(difference(center, apart[0].begin) > 0.01);
    BOOST_TEST(difference(center, apart[0].begin) < 10);
    for (const Outcome& outcome : moved) {
      BOOST_TEST(difference(outcome.params, center) <= 1e-15);
      BOOST_TEST(outcome.seen == moved[0].params, boost::test_tools::per_element());
      BOOST_TEST(outcome.held);
    }
    for (const Outcome& outcome : on_ranks({.config = ElasticAveragingConfig{.every = steps + 1}, .deep = true}, ranks))
      BOOST_TEST(outcome.params == outcome.begin, boost::test_tools::per_element());  // a center that never moved
  }
}

BOOST_AUTO_TEST_CASE(teams_and_pools_of_one_piece_change_no_bit) {
  const auto train_by = [](const EngineConfig& engine) {
    return on_ranks({.config = ElasticAveragingConfig{.engine = engine, .every = 2}, .deep = true}, 2);
  };
  const std::vector<Outcome> want = train_by(TeamConfig{1});
  for (const EngineConfig& engine : {EngineConfig{TeamConfig{2}}, EngineConfig{TeamConfig{3}}})
    for (std::size_t rank = 0; rank < 2; ++rank) {
      BOOST_TEST(train_by(engine)[rank].own == want[rank].own, boost::test_tools::per_element());
      BOOST_TEST(train_by(engine)[rank].params == want[rank].params, boost::test_tools::per_element());
    }
  BOOST_TEST(train_by(PoolConfig{2, 1})[1].params == want[1].params, boost::test_tools::per_element());
  BOOST_TEST(train_by(PoolConfig{2, 2})[1].params == train_by(PoolConfig{1, 2})[0].params,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(one_rank_is_serial) {
  const Outcome serial = train({.config = DataParallelConfig{}, .deep = true}, comm::make_self());
  const Outcome elastic = train({.config = ElasticAveragingConfig{}, .deep = true}, comm::make_self());
  BOOST_TEST(elastic.params == serial.params, boost::test_tools::per_element());
  BOOST_TEST(elastic.seen == serial.params, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_wish_to_stop_reaches_all_ranks_before_the_next_move) {
  for (const Index every : {7, 90'000}) {
    const Plan plan{.config = ElasticAveragingConfig{.every = every},
                    .repeat = 400'000,
                    .poll = [](comm::Communicator& comm) { return comm.rank() == 1; }};
    const std::vector<Outcome> outcomes = on_ranks(plan, 2);
    for (const Outcome& outcome : outcomes) {
      BOOST_TEST(outcome.sums.stopped);
      BOOST_TEST(outcome.sums.rows < plan.repeat * kRows);
      BOOST_TEST(outcome.sums.steps == outcomes[0].sums.steps);
      BOOST_TEST(outcome.params == outcomes[0].params, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  for (const ElasticAveragingConfig& config : std::vector<ElasticAveragingConfig>{
           {.every = 0}, {.moving_rate = 0}, {.moving_rate = 1.1}, {.moving_rate = std::nan("")}})
    BOOST_CHECK_THROW(on_ranks({.config = config}, 2), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
