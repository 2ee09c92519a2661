// One table of strategies: each trains to the same parameters as serial, bit for bit where that is promised.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/partition/network_part.hpp"
#include "pdnn/reduce/compressed_sum.hpp"
#include "pdnn/strategy/data_parallel.hpp"
#include "pdnn/strategy/scatter_gather.hpp"
#include "ranks.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::reduce;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_strategies)

namespace {

using Vector = std::vector<double>;
constexpr Index kRows = 23, kInputs = 6, kClasses = 3, kBatch = 7;  // batches of 7, 7, 7 and 2

enum class Norm { none, own_rows, synchronized };

/// How a rank trains.
struct Plan {
  int threads = 1;
  Index pieces = 0;  // 0: a team
  bool scatter = false, once = false;
  bool values = false;  // targets are values, else classes
  Index batch = kBatch;
  Norm norm = Norm::none;
  double clip_norm = 0;  // 0: not clipped
  Index hidden = 8;
  bool panels = false;
  bool deep = false;  // a layer from `hidden` to `hidden`
  ReducerOptions reducer{};
  int machines = 1;  // that the ranks are taken to be on
};

struct Data {
  Data() : x(kRows * kInputs), t(kRows * kClasses) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(Rng(1).below(256, i));
    for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kClasses));
    for (std::size_t i = 0; i < t.size(); ++i) t[i] = Rng(2).uniform(i);
  }
  Source<double> source(bool values) const {
    nn::Target<double> target{classes.data(), {}};
    if (values) target = {nullptr, {t.data(), kRows, kClasses}};
    return {{x.data(), Samples::Format::uint8, kRows, kInputs, {kInputs}, 1.0 / 255, -0.5}, target};
  }
  std::vector<std::uint8_t> x;
  std::vector<std::int32_t> classes;
  Vector t;
};

std::shared_ptr<nn::Network<double>> make_network(Norm norm, Index hidden, bool deep) {
  const nn::Init init{nn::Init::Kind::uniform, deep ? 0.1 : 0.5};
  if (deep)
    return std::make_shared<nn::Network<double>>(
        std::vector<nn::LayerPtr<double>>{std::make_shared<nn::Linear<double>>(kInputs, hidden, true, init, init),
                                          std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh),
                                          std::make_shared<nn::Linear<double>>(hidden, hidden, true, init, init),
                                          std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh),
                                          std::make_shared<nn::Linear<double>>(hidden, kClasses, true, init, init)});
  if (norm != Norm::none) {
    const nn::BatchNorm<double>::Options options{
        .channels = 8, .images = false, .eps = 0.1, .sync = norm == Norm::synchronized};
    return std::make_shared<nn::Network<double>>(
        std::vector<nn::LayerPtr<double>>{std::make_shared<nn::Linear<double>>(kInputs, 8, true, init, init),
                                          std::make_shared<nn::BatchNorm<double>>(options),
                                          std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::relu),
                                          std::make_shared<nn::Linear<double>>(8, kClasses, true, init, init)});
  }
  return std::make_shared<nn::Network<double>>(
      std::vector<nn::LayerPtr<double>>{std::make_shared<nn::Linear<double>>(kInputs, hidden, true, init, init),
                                        std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::sigmoid),
                                        std::make_shared<nn::Dropout<double>>(0.2),
                                        std::make_shared<nn::Linear<double>>(hidden, kClasses, true, init, init)});
}

std::unique_ptr<Engine<double>> make_engine(const Job<double>& job, const Plan& plan, Index capacity) {
  if (plan.pieces == 0) return std::make_unique<TeamEngine<double>>(job, plan.threads, capacity);
  return std::make_unique<PoolEngine<double>>(job, plan.threads, plan.pieces, capacity);
}

struct Outcome {
  Vector params;  // and behind them the buffers
  double loss, correct;
  CompressionStats stats{};
  Index remembered = 0;  // elements
};

/// Two epochs on one rank of a group.
Outcome train(const Plan& plan, const std::shared_ptr<comm::Communicator>& comm) {
  const Data data;
  const Source<double> source = data.source(plan.values);
  const auto whole = std::make_shared<nn::Model<double>>(make_network(plan.norm, plan.hidden, plan.deep), 3);
  const auto bound = whole->bound({kInputs}), network = plan.panels ? bound->with_panels() : bound;
  const nn::CrossEntropyLoss<double> cross_entropy(nn::Reduction::mean);
  const nn::MSELoss<double> squares(nn::Reduction::mean);
  const nn::Loss<double>& loss = plan.values ? static_cast<const nn::Loss<double>&>(squares) : cross_entropy;
  const auto optimizer = std::make_shared<optim::Optimizer<double>>(whole->count(), kernels::Sgd{0.9});
  optimizer->set_segments({{whole->count(), 0.1, 1e-3, false}});
  if (plan.clip_norm > 0) {
    using Clip = optim::Clip<double>;
    optimizer->set_clip(std::make_unique<Clip>(Clip::By::norm, plan.clip_norm, whole->count()));
  }
  partition::PartialModel<double> copy(whole, optimizer, network->layout());
  copy.take();
  nn::Model<double>& model = copy.model();
  optim::Optimizer<double>& sgd = copy.optimizer();
  const Job<double> job{model, *network, loss, {kInputs}};
  std::unique_ptr<Strategy<double>> strategy;
  if (plan.scatter) {
    strategy = std::make_unique<ScatterGather<double>>(job, sgd, make_engine(job, plan, plan.batch), comm,
                                                       plan.values ? kClasses : 0, plan.batch, plan.once);
  } else {
    ReducerOptions options = plan.reducer;
    if (plan.machines > 1) options.machine = comm->split(comm->rank() % plan.machines, comm->rank());
    strategy = std::make_unique<DataParallel<double>>(job, sgd, make_engine(job, plan, plan.batch), comm,
                                                      DataParallel<double>::Options{.reducer = options});
  }
  EpochSums sums;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<Index> order = epoch_order(4, epoch, kRows);
    if (plan.once && !plan.scatter) std::ranges::sort(order);
    const Epoch work{order, plan.batch, 4, static_cast<std::int64_t>(epoch) * 4, {}};
    sums = strategy->run_epoch(source, work, [](const EpochSums&) { return false; });
  }
  if (sums.rows != kRows) throw std::logic_error("an epoch took another number of rows");
  copy.gather();
  Vector params(whole->params->data(), whole->params->data() + whole->count());
  params.insert(params.end(), whole->buffers->data(), whole->buffers->data() + whole->buffers->size());
  Outcome outcome{params, sums.loss, sums.correct, sums.compression};
  for (const std::span<double> part : strategy->memory()) outcome.remembered += std::ssize(part);
  return outcome;
}

Outcome train_alone(const Plan& plan) { return train(plan, comm::make_self()); }

std::vector<Outcome> train_on_ranks(const Plan& plan, int ranks) {
  return tests::on_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& comm) { return train(plan, comm); });
}

void check_equal(const Outcome& got, const Outcome& want, double tolerance) {
  BOOST_TEST_REQUIRE(got.params.size() == want.params.size());
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < got.params.size(); ++i) {
    difference = std::max(difference, std::abs(got.params[i] - want.params[i]));
    largest = std::max(largest, std::abs(want.params[i]));
  }
  BOOST_TEST(difference <= tolerance * largest);
  BOOST_TEST(std::abs(got.loss - want.loss) <= tolerance * std::abs(want.loss));
  BOOST_TEST(got.correct == want.correct);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_team_of_any_size_equals_serial_bit_for_bit) {
  for (const bool values : {false, true})
    for (const int threads : {2, 3, 4})
      check_equal(train_alone({.threads = threads, .values = values}), train_alone({.values = values}), 0);
}

BOOST_AUTO_TEST_CASE(a_pool_equals_serial_and_its_workers_change_no_bit) {
  for (const Index pieces : {1, 3, 8, 9}) {  // more pieces than rows of the last batch, and than rows of any
    const Outcome one = train_alone({.threads = 1, .pieces = pieces});
    check_equal(one, train_alone({}), pieces == 1 ? 0 : 1e-13);
    for (const int workers : {2, 5}) check_equal(train_alone({.threads = workers, .pieces = pieces}), one, 0);
  }
}

BOOST_AUTO_TEST_CASE(ranks_equal_serial_also_when_some_have_no_row) {
  for (const bool values : {false, true}) {
    const Outcome serial = train_alone({.values = values});
    for (const int ranks : {1, 2, 3, 4})  // the last batch has two rows
      for (const Plan& plan :
           {Plan{.values = values}, Plan{.threads = 2, .values = values},
            Plan{.threads = 2, .pieces = 3, .values = values}, Plan{.scatter = true, .values = values}})
        for (const Outcome& outcome : train_on_ranks(plan, ranks)) check_equal(outcome, serial, 1e-13);
  }
}

BOOST_AUTO_TEST_CASE(ranks_agree_through_shared_memory_or_messages_of_any_size) {
  using Memory = ReducerOptions::Memory;
  const std::vector<ReducerOptions> options{{Memory::shared, 0, nullptr},
                                            {Memory::messages, 8, nullptr},
                                            {Memory::messages, 56, nullptr},
                                            {Memory::messages, 1 << 20, nullptr},
                                            {Memory::messages, 0, nullptr}};
  for (const bool clip : {false, true}) {
    const double norm = clip ? 0.1 : 0;
    const Outcome serial = train_alone({.clip_norm = norm});
    for (const ReducerOptions& reducer : options)
      for (const int ranks : {2, 3, 4})
        for (const Plan& plan :
             {Plan{.clip_norm = norm, .reducer = reducer}, Plan{.threads = 2, .clip_norm = norm, .reducer = reducer},
              Plan{.threads = 2, .pieces = 3, .clip_norm = norm, .reducer = reducer}}) {
          const std::vector<Outcome> outcomes = train_on_ranks(plan, ranks);
          for (const Outcome& outcome : outcomes) {
            check_equal(outcome, serial, 1e-13);
            check_equal(outcome, outcomes[0], 0);
          }
        }
  }
}

BOOST_AUTO_TEST_CASE(wide_weights_are_shared_out_by_panels_or_sent_panel_by_panel) {
  using Memory = ReducerOptions::Memory;
  for (const Plan& wide : {Plan{.hidden = 2800, .panels = true}, Plan{.hidden = 130, .panels = true, .deep = true}}) {
    const Outcome serial = train_alone(wide);
    for (const int ranks : {2, 3, 4})
      for (const int threads : {1, 2})
        for (const ReducerOptions& reducer :
             {ReducerOptions{Memory::shared, 0, nullptr}, ReducerOptions{Memory::messages, 5000, nullptr}}) {
          Plan plan = wide;
          plan.threads = threads;
          plan.reducer = reducer;
          const std::vector<Outcome> outcomes = train_on_ranks(plan, ranks);
          for (const Outcome& outcome : outcomes) {
            check_equal(outcome, serial, 1e-13);
            check_equal(outcome, outcomes[0], 0);
          }
        }
  }
}

namespace {

ReducerOptions coded(const std::string& codec, Index bucket_bytes, std::optional<bool> feedback = {}) {
  return {.bucket_bytes = bucket_bytes, .compression = Compression{codec, feedback}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_codec_that_loses_nothing_changes_nothing) {
  for (const bool clip : {false, true}) {
    const double norm = clip ? 0.1 : 0;
    const Plan wide{.clip_norm = norm, .hidden = 130, .panels = true, .deep = true};
    const Outcome serial = train_alone(wide);
    for (const int ranks : {1, 2, 3})
      for (const Index bytes : {0, 5000})  // 0: by itself
        for (const int threads : {1, 2}) {
          Plan plan = wide;
          plan.threads = threads;
          plan.pieces = threads == 2 && bytes == 5000 ? 3 : 0;
          plan.reducer = coded("topk:1", bytes);
          const std::vector<Outcome> outcomes = train_on_ranks(plan, ranks);
          for (const Outcome& outcome : outcomes) {
            check_equal(outcome, serial, 1e-12);
            check_equal(outcome, outcomes[0], 0);
            BOOST_TEST(outcome.stats.sums == (ranks > 1 ? 4 : 0));
          }
        }
  }
}

BOOST_AUTO_TEST_CASE(codecs_give_all_ranks_the_same_bits_near_what_they_train_without) {
  const Plan wide{.hidden = 130, .panels = true, .deep = true};
  const Outcome serial = train_alone(wide);
  for (const auto& [codec, tolerance] : std::vector<std::pair<std::string, double>>{
           {"fp16", 1e-3}, {"bf16", 1e-3}, {"int8:32", 1e-2}, {"1bit:64", 1}, {"topk:0.3", 0.2}, {"powersgd:2", 0.2}})
    for (const int ranks : {2, 3})
      for (const Index bytes : {0, 5000}) {
        Plan plan = wide;
        plan.threads = 2;
        plan.reducer = coded(codec, bytes);
        const std::vector<Outcome> outcomes = train_on_ranks(plan, ranks);
        for (const Outcome& outcome : outcomes) {
          check_equal(outcome, outcomes[0], 0);
          double difference = 0;
          for (std::size_t i = 0; i < serial.params.size(); ++i)
            difference = std::max(difference, std::abs(outcome.params[i] - serial.params[i]));
          BOOST_TEST(difference > 0);
          BOOST_TEST(difference < tolerance, codec << ", " << ranks << " ranks: " << difference);
          BOOST_TEST((outcome.remembered > 0) == codec::wants_feedback(codec));
        }
      }
}

BOOST_AUTO_TEST_CASE(low_rank_sums_see_whole_matrices_in_panels_or_in_rows) {
  for (const Index bytes : {8, 5000, 1 << 20}) {
    const Plan rows{.hidden = 130, .deep = true, .reducer = coded("powersgd:2", bytes)};
    Plan panels = rows;
    panels.panels = true;
    const Outcome want = train_on_ranks(rows, 2)[0];
    for (const Outcome& outcome : train_on_ranks(panels, 2)) {
      check_equal(outcome, want, 1e-9);
      BOOST_TEST(outcome.stats.bytes == 4 * 8 * (2 * (6 + 130) + 2 * (130 + 130) + 2 * (130 + 3) + (130 + 130 + 3)));
    }
  }
}

BOOST_AUTO_TEST_CASE(bytes_of_codes_are_those_of_the_buckets) {
  const Index params = 6 * 130 + 130 + 130 * 130 + 130 + 130 * 3 + 3, bucket = 5000 / 8;
  for (const std::string codec : {"bf16", "int8:64", "1bit:64", "topk:0.1"})
    for (const int ranks : {2, 3}) {
      Plan plan{.hidden = 130, .panels = true, .deep = true, .reducer = coded(codec, 5000, false)};
      Index want = 0, own = 0, all = 0;  // of all ranks, without a codec of a rank, and what they say
      for (Index end = params; end > 0; end -= bucket) {
        const Index size = std::min(bucket, end);
        own += 2 * (ranks - 1) * size * 8 / ranks;
        const auto coder = codec::make_codec<double>(codec, size);
        if (ranks == 2) want += 2 * coder->bytes(size);
        for (int rank = 0; rank < ranks && ranks == 3; ++rank)
          want += 2 * (ranks - 1) * coder->bytes(share(size, rank, ranks).size());
      }
      for (const Outcome& outcome : train_on_ranks(plan, ranks)) {
        all += outcome.stats.bytes;
        BOOST_TEST(outcome.stats.bytes_uncompressed == 4 * own);
        BOOST_TEST(outcome.remembered == 0);
      }
      BOOST_TEST(all == 4 * want, codec << " on " << ranks << " ranks");
    }
}

BOOST_AUTO_TEST_CASE(a_codec_is_of_messages) {
  ReducerOptions reducer = coded("int8", 0);
  reducer.memory = ReducerOptions::Memory::shared;
  BOOST_CHECK_THROW(train_on_ranks({.reducer = reducer}, 2), ValueError);
}

BOOST_AUTO_TEST_CASE(machines_add_up_their_ranks_first) {
  const ReducerOptions shared{ReducerOptions::Memory::shared, 0, nullptr};
  for (const Plan& plan : {Plan{.reducer = shared, .machines = 2},
                           Plan{.threads = 2, .clip_norm = 0.1, .reducer = shared, .machines = 2}}) {
    const Outcome serial = train_alone({.clip_norm = plan.clip_norm});
    for (const Outcome& outcome : train_on_ranks(plan, 4)) check_equal(outcome, serial, 1e-13);
  }
  BOOST_CHECK_THROW(train_on_ranks({.reducer = shared, .machines = 2}, 3), ValueError);  // one of them is alone
}

BOOST_AUTO_TEST_CASE(clipping_sees_the_whole_gradient_of_the_global_batch) {
  const Outcome serial = train_alone({.clip_norm = 0.1});
  BOOST_TEST((serial.params != train_alone({}).params));
  check_equal(train_alone({.clip_norm = 1e6}), train_alone({}), 0);  // updated at the end, or slice by slice
  check_equal(train_alone({.threads = 3, .clip_norm = 0.1}), serial, 0);
  check_equal(train_alone({.threads = 2, .pieces = 3, .clip_norm = 0.1}), serial, 1e-13);
  for (const Plan& plan : {Plan{.threads = 2, .clip_norm = 0.1}, Plan{.scatter = true, .clip_norm = 0.1}})
    for (const Outcome& outcome : train_on_ranks(plan, 3)) check_equal(outcome, serial, 1e-13);
}

BOOST_AUTO_TEST_CASE(rows_scattered_once_serve_every_step) {
  const Outcome serial = train_alone({.once = true, .batch = kRows});  // in the order of the data
  for (const int ranks : {1, 2, 3})
    for (const Outcome& outcome : train_on_ranks({.scatter = true, .once = true, .batch = kRows}, ranks))
      check_equal(outcome, serial, 1e-13);
}

BOOST_AUTO_TEST_CASE(training_in_panels_is_training_in_rows) {
  const Outcome serial = train_alone({.hidden = 70});
  for (const int threads : {1, 2, 3})
    check_equal(train_alone({.threads = threads, .hidden = 70, .panels = true}), serial, 0);
  check_equal(train_alone({.pieces = 1, .hidden = 70, .panels = true}), serial, 0);
  for (const Plan& plan :
       {Plan{.threads = 2, .hidden = 70, .panels = true}, Plan{.scatter = true, .hidden = 70, .panels = true}})
    for (const Outcome& outcome : train_on_ranks(plan, 2)) check_equal(outcome, serial, 1e-13);
}

BOOST_AUTO_TEST_CASE(all_ranks_hold_the_same_bits) {
  const std::vector<Outcome> outcomes = train_on_ranks({.threads = 2}, 3);
  for (const Outcome& outcome : outcomes) check_equal(outcome, outcomes[0], 0);
}

BOOST_AUTO_TEST_CASE(batch_norm_is_the_same_for_any_team_and_any_number_of_a_pools_workers) {
  const Outcome serial = train_alone({.norm = Norm::own_rows});
  for (const int threads : {2, 3, 4}) check_equal(train_alone({.threads = threads, .norm = Norm::own_rows}), serial, 0);
  const Outcome pool = train_alone({.threads = 1, .pieces = 3, .norm = Norm::own_rows});
  for (const int workers : {2, 5})
    check_equal(train_alone({.threads = workers, .pieces = 3, .norm = Norm::own_rows}), pool, 0);
  BOOST_CHECK_THROW(train_alone({.pieces = 3, .norm = Norm::synchronized}), ValueError);
}

BOOST_AUTO_TEST_CASE(synchronized_batch_norm_over_ranks_equals_serial_also_when_some_have_no_row) {
  const Outcome serial = train_alone({.norm = Norm::own_rows});
  for (const int ranks : {1, 2, 3, 4})
    for (const Plan& plan : {Plan{.norm = Norm::synchronized}, Plan{.threads = 2, .norm = Norm::synchronized},
                             Plan{.scatter = true, .norm = Norm::synchronized}})
      for (const Outcome& outcome : train_on_ranks(plan, ranks)) check_equal(outcome, serial, 1e-12);
}

BOOST_AUTO_TEST_CASE(without_synchronizing_ranks_train_as_a_pool_of_as_many_pieces_and_agree_on_the_buffers) {
  for (const int ranks : {2, 3}) {
    const Outcome pool = train_alone({.pieces = ranks, .norm = Norm::own_rows});
    const std::vector<Outcome> outcomes = train_on_ranks({.norm = Norm::own_rows}, ranks);
    for (const Outcome& outcome : outcomes) {
      check_equal(outcome, outcomes[0], 0);
      const Vector params(outcome.params.begin(), outcome.params.end() - 16);
      check_equal({params, outcome.loss, outcome.correct},
                  {Vector(pool.params.begin(), pool.params.end() - 16), pool.loss, pool.correct}, 1e-12);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_order_of_an_epoch_is_a_permutation_that_depends_on_seed_and_epoch) {
  std::vector<Index> order = epoch_order(1, 2, 100);
  BOOST_TEST(order == epoch_order(1, 2, 100), boost::test_tools::per_element());
  BOOST_TEST((order != epoch_order(1, 3, 100)));
  BOOST_TEST((order != epoch_order(2, 2, 100)));
  std::sort(order.begin(), order.end());
  std::vector<Index> all(100);
  std::iota(all.begin(), all.end(), Index{0});
  BOOST_TEST(order == all, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
