// Averaging: what an average is, when it is made, what stays a rank's own.
#include "pdnn/strategy/model_averaging.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "pdnn/core/errors.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/partition/network_part.hpp"
#include "pdnn/strategy/data_parallel.hpp"
#include "ranks.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::reduce;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_averaging)

namespace {

using Vector = std::vector<double>;
constexpr Index kRows = 23, kInputs = 6, kClasses = 3, kBatch = 4;

struct Plan {
  Index every = 1;
  bool by_master = false;
  bool data_parallel = false;
  double momentum = 0;
  int threads = 1;
  bool norm = true, synchronized = false;
  Index hidden = 8;
  bool panels = false;
  bool finish = true, fail_at_the_end = false;
  std::optional<Compression> compression{};
  Index rows = kRows;  // of an epoch: those of the source, again and again
  Index bad_row = -1;  // has a NaN, and steps that are not finite are left out
  std::function<bool(comm::Communicator&)> poll = [](comm::Communicator&) { return false; };
};

struct Outcome {
  Vector params, seen;  // at the end, parameters and behind them the buffers; in evaluation
  EpochSums sums;
  RowsApart apart;
  CompressionStats stats{};
  bool kept = false;  // its own model, when another rank failed at the end
};

Vector everything(const nn::Model<double>& model) {
  Vector all(model.params->data(), model.params->data() + model.count());
  all.insert(all.end(), model.buffers->data(), model.buffers->data() + model.buffers->size());
  return all;
}

/// Two epochs of batches of kBatch rows a rank.
Outcome train(const Plan& plan, const std::shared_ptr<comm::Communicator>& comm) {
  Vector x(kRows * kInputs);
  std::vector<std::int32_t> classes;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Rng(1).uniform(i);
  if (plan.bad_row >= 0) x[static_cast<std::size_t>(plan.bad_row * kInputs)] = std::nan("");
  for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kClasses));
  const Source<double> source({x.data(), Samples::Format::float64, kRows, kInputs, {kInputs}, 1, 0},
                              {classes.data(), {}});
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const Index hidden = plan.hidden;
  std::vector<nn::LayerPtr<double>> layers{std::make_shared<nn::Linear<double>>(kInputs, hidden, true, init, init)};
  if (plan.norm)
    layers.push_back(std::make_shared<nn::BatchNorm<double>>(
        nn::BatchNorm<double>::Options{.channels = hidden, .images = false, .eps = 0.1, .sync = plan.synchronized}));
  else
    layers.push_back(std::make_shared<nn::Dropout<double>>(0.2));
  layers.push_back(std::make_shared<nn::Linear<double>>(hidden, kClasses, true, init, init));
  const auto whole = std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(layers), 3);
  const auto bound = whole->bound({kInputs}), network = plan.panels ? bound->with_panels() : bound;
  const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
  const auto optimizer = std::make_shared<optim::Optimizer<double>>(whole->count(), kernels::Sgd{plan.momentum});
  optimizer->set_segments({{whole->count(), 0.1, 1e-2, false}});
  partition::PartialModel<double> copy(whole, optimizer, network->layout());
  copy.take();
  nn::Model<double>& model = copy.model();
  optim::Optimizer<double>& sgd = copy.optimizer();
  const Job<double> job{model, *network, loss, {kInputs}};
  const Index step_rows = kBatch * comm->size();
  auto engine = std::make_unique<TeamEngine<double>>(job, plan.threads, step_rows);
  std::unique_ptr<Strategy<double>> strategy;
  if (plan.data_parallel)
    strategy = std::make_unique<DataParallel<double>>(job, sgd, std::move(engine), comm);
  else
    strategy = std::make_unique<ModelAveraging<double>>(
        job, sgd, std::move(engine), comm,
        ModelAveragingConfig{.every = plan.every, .by_master = plan.by_master, .compression = plan.compression});
  Outcome outcome;
  std::int64_t steps = 0;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    copy.take();
    std::vector<Index> order = epoch_order(4, epoch, kRows);
    order.resize(static_cast<std::size_t>(plan.rows), 0);
    outcome.sums = strategy->run_epoch(
        source, {order, step_rows, 4, steps, {}, plan.bad_row < 0 ? OnNonfinite::ignore : OnNonfinite::skip},
        [&](const EpochSums&) { return plan.poll(*comm); });
    steps += outcome.sums.steps;
    copy.gather();
  }
  const auto seen = [&] {
    copy.gather();
    return everything(*whole);
  };
  const Vector own = seen();
  const bool entered = strategy->enter_evaluation();
  outcome.seen = seen();
  if (entered) strategy->leave_evaluation();
  if (seen() != own) throw std::logic_error("evaluation changed a rank's model");
  outcome.apart = strategy->rows_apart();
  if (plan.fail_at_the_end && comm->rank() > 0) {
    comm->notify(comm::Notice::failed);
  } else if (plan.fail_at_the_end) {
    try {
      strategy->finish();
    } catch (const Aborted&) {
      outcome.kept = seen() == own;
    }
  } else if (plan.finish) {
    strategy->finish();
  }
  outcome.params = seen();
  outcome.stats = strategy->take_stats();
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

}  // namespace

BOOST_AUTO_TEST_CASE(averaging_after_every_step_is_data_parallel_with_plain_sgd) {
  for (const int ranks : {1, 2, 3, 4})  // the last step of an epoch leaves ranks with fewer rows, or none
    for (const int threads : {1, 2}) {
      const Vector want = on_ranks({.data_parallel = true, .norm = false}, ranks)[0].params;
      for (const Outcome& got : on_ranks({.threads = threads, .norm = false}, ranks))
        BOOST_TEST(difference(got.params, want) <= 1e-14);
    }
}

BOOST_AUTO_TEST_CASE(the_master_and_an_all_reduce_give_the_same_bits) {
  for (const int ranks : {2, 3, 4})
    for (const Index every : {0, 2}) {
      const std::vector<Outcome> want = on_ranks({.every = every, .momentum = 0.9}, ranks);
      const std::vector<Outcome> got = on_ranks({.every = every, .by_master = true, .momentum = 0.9}, ranks);
      for (const std::vector<Outcome>& outcomes : {want, got})
        for (const Outcome& outcome : outcomes) {
          BOOST_TEST(outcome.params == want[0].params, boost::test_tools::per_element());
          BOOST_TEST(outcome.seen == want[0].params, boost::test_tools::per_element());
        }
    }
}

BOOST_AUTO_TEST_CASE(an_average_weighs_parameters_and_buffers_by_rows) {
  // Steps of 12 and 11 rows, in two epochs: 16, 16 and 14 rows for the three ranks.
  const std::vector<Outcome> apart = on_ranks({.every = 0, .finish = false}, 3);
  double rows = 0;
  for (const Outcome& outcome : apart) rows += outcome.apart.own;
  BOOST_TEST(rows == 2 * kRows);
  BOOST_TEST(apart[0].apart.own > apart[2].apart.own);
  Vector want(apart[0].params.size());
  for (const Outcome& outcome : apart) {
    BOOST_TEST(outcome.apart.all == rows);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += outcome.params[i] * outcome.apart.own / rows;
  }
  BOOST_TEST(difference(apart[0].params, apart[1].params) > 1e-3);
  for (const Outcome& outcome : on_ranks({.every = 0}, 3)) BOOST_TEST(difference(outcome.params, want) <= 1e-15);
}

BOOST_AUTO_TEST_CASE(an_epoch_counts_every_row_once_and_each_ranks_updates) {
  for (const int ranks : {1, 2, 3, 4, 6})
    for (const Outcome& outcome : on_ranks({.every = 2}, ranks)) {
      const Index a_step = ranks * kBatch, steps = (kRows + a_step - 1) / a_step;
      const Index left = kRows - (steps - 1) * a_step;
      BOOST_TEST(outcome.sums.rows == kRows);
      BOOST_TEST(outcome.sums.steps == steps);
      BOOST_TEST(outcome.sums.updates == (steps - 1) * ranks + std::min<Index>(left, ranks));
    }
}

BOOST_AUTO_TEST_CASE(rows_of_a_step_that_is_left_out_are_counted_once) {
  for (const Index bad_row : {Index{0}, Index{9}, kRows - 1})
    for (const Outcome& outcome : on_ranks({.every = 1000, .norm = false, .finish = false, .bad_row = bad_row}, 2)) {
      BOOST_TEST(outcome.sums.skipped == 1);
      BOOST_TEST(outcome.sums.rows + outcome.sums.skipped_rows == kRows);
      BOOST_TEST(!outcome.sums.stopped);
      BOOST_TEST(outcome.apart.all == 2 * kRows);  // of two epochs, and no average
    }
}

BOOST_AUTO_TEST_CASE(an_average_that_is_subnormal_is_0) {
  const auto ends = tests::on_ranks(2, [](const std::shared_ptr<comm::Communicator>& comm) {
    const nn::Init init{nn::Init::Kind::uniform, 0.5};
    const std::vector<nn::LayerPtr<double>> layers{std::make_shared<nn::Linear<double>>(1, 2, false, init, init)};
    nn::Model<double> model(std::make_shared<nn::Network<double>>(layers), 3);
    const auto network = model.bound({1});
    const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
    optim::Optimizer<double> sgd(model.count(), kernels::Sgd{});
    sgd.set_segments({{model.count(), 0.1, 0, false}});
    const Job<double> job{model, *network, loss, {1}};
    ModelAveraging<double> strategy(job, sgd, std::make_unique<TeamEngine<double>>(job, 1, 1), comm, {.every = 1});
    model.params->data()[0] = comm->rank() == 0 ? 6e-308 : -5e-308;  // half of either is normal
    strategy.set_rows_apart({1, 2});
    strategy.finish();
    return model.params->data()[0];
  });
  for (const double mean : ends) BOOST_TEST(mean == 0);
}

BOOST_AUTO_TEST_CASE(one_rank_is_serial) {
  const Outcome serial = train({.data_parallel = true, .momentum = 0.9}, comm::make_self());
  for (const Index every : {0, 3})
    BOOST_TEST(train({.every = every, .momentum = 0.9}, comm::make_self()).params == serial.params,
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(weights_in_panels_are_averaged_too) {
  const Vector want = on_ranks({.every = 2, .momentum = 0.9, .hidden = 70}, 2)[0].params;
  for (const Outcome& outcome : on_ranks({.every = 2, .momentum = 0.9, .hidden = 70, .panels = true}, 2))
    BOOST_TEST(outcome.params == want, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_last_average_that_fails_leaves_a_rank_its_own_model) {
  const Plan plan{.every = 0, .hidden = 70, .panels = true, .fail_at_the_end = true};
  BOOST_TEST(on_ranks(plan, 2)[0].kept);
}

constexpr Index kMany = 100'000 * kBatch;  // rows that take much longer than it takes to look up

/// They meet after every step, after 90,000 of 100,000 and at the end. Rank 0 is slow at first, so that they stop after
/// different numbers of steps.
BOOST_AUTO_TEST_CASE(ranks_that_seldom_meet_hear_that_one_wishes_to_stop) {
  for (const Index every : {0, 1, 90'000})
    for (const bool by_master : {false, true})
      for (const bool codec : {false, true}) {
        if (codec && by_master) continue;
        Plan plan{.every = every, .by_master = by_master, .norm = false, .finish = false, .rows = 2 * kMany};
        if (codec) plan.compression = Compression{"int8", {}};
        plan.poll = [](comm::Communicator& comm) {
          if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
          return comm.rank() == 1;
        };
        const std::vector<Outcome> outcomes = on_ranks(plan, 2);
        for (const Outcome& outcome : outcomes) {
          BOOST_TEST(outcome.sums.stopped);
          BOOST_TEST(outcome.sums.steps < 80'000);
          BOOST_TEST(outcome.sums.rows == outcomes[0].sums.rows);
          BOOST_TEST(outcome.sums.steps == outcomes[0].sums.steps);
          if (every == 0) continue;
          BOOST_TEST(outcome.params == outcomes[0].params, boost::test_tools::per_element());
          BOOST_TEST(outcome.apart.all == 0);
        }
      }
}

BOOST_AUTO_TEST_CASE(a_wish_to_stop_concerns_its_own_epoch) {
  std::atomic<bool> asked = false;
  const Outcome second =
      train({.rows = kMany, .poll = [&](comm::Communicator&) { return !asked.exchange(true); }}, comm::make_self());
  BOOST_TEST(asked);
  BOOST_TEST(!second.sums.stopped);
  BOOST_TEST(second.sums.rows == kMany);
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_meet_hear_that_one_has_failed) {
  const auto told = tests::on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
    Index looks = 0;
    Plan plan{.every = 0, .norm = false, .finish = false, .rows = 2 * kMany};
    plan.poll = [&](comm::Communicator& own) {
      if (++looks == 1) own.notify(comm::Notice::failed);
      return false;
    };
    try {
      train(plan, comm);
    } catch (const Aborted&) {
      return looks;
    }
    return Index{-1};
  });
  for (const Index looks : told) BOOST_TEST((looks == 0 || looks == 1));
}

BOOST_AUTO_TEST_CASE(layers_that_synchronize_are_refused_among_ranks) {
  BOOST_CHECK_THROW(on_ranks({.synchronized = true}, 2), ValueError);
  BOOST_CHECK_NO_THROW(on_ranks({.synchronized = true}, 1));
}

BOOST_AUTO_TEST_CASE(a_codec_that_loses_nothing_makes_the_same_averages) {
  for (const int ranks : {1, 2, 3})
    for (const Index every : {0, 2})
      for (const bool panels : {false, true}) {
        Plan plan{.every = every, .momentum = 0.9, .threads = 2, .hidden = 70, .panels = panels};
        const std::vector<Outcome> want = on_ranks(plan, ranks);
        plan.compression = Compression{"topk:1", {}};
        const std::vector<Outcome> got = on_ranks(plan, ranks);
        for (std::size_t rank = 0; rank < got.size(); ++rank) {
          BOOST_TEST(difference(got[rank].params, want[rank].params) <= 1e-13);
          BOOST_TEST(difference(got[rank].seen, want[rank].seen) <= 1e-13);  // which traveled as it is
          BOOST_TEST(got[rank].params == got[0].params, boost::test_tools::per_element());
          if (every == 0) BOOST_TEST(got[rank].stats.sums == (ranks > 1 ? 1 : 0));
        }
      }
}

BOOST_AUTO_TEST_CASE(by_a_codec_ranks_end_with_one_model_near_the_average) {
  for (const auto& [codec, tolerance] : std::vector<std::pair<std::string, double>>{
           {"bf16", 1e-2}, {"int8:32", 1e-2}, {"1bit:64", 1}, {"topk:0.3", 1}, {"powersgd:2", 0.5}})
    for (const int ranks : {2, 3})
      for (const bool panels : {false, true}) {
        Plan plan{.every = 2, .hidden = 70, .panels = panels};
        const Vector want = on_ranks(plan, ranks)[0].params;
        plan.compression = Compression{codec, {}};
        const std::vector<Outcome> got = on_ranks(plan, ranks);
        for (const Outcome& outcome : got) {
          BOOST_TEST(outcome.params == got[0].params, boost::test_tools::per_element());
          BOOST_TEST(difference(outcome.params, want) > 0);
          BOOST_TEST(difference(outcome.params, want) < tolerance);
        }
      }
}

BOOST_AUTO_TEST_CASE(a_master_takes_no_codes) {
  BOOST_CHECK_THROW(on_ranks({.by_master = true, .compression = Compression{"int8", {}}}, 2), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
