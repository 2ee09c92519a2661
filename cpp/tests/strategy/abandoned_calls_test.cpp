// MPI may go on with a call that its rank has abandoned, and so with memory that the rank has let go of: nobody else
// may get it.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>

#include "pdnn/curvature/quadratic_model.hpp"
#include "pdnn/engine/pipeline_engine.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/partition/network_part.hpp"
#include "pdnn/reduce/bucketed_reducer.hpp"
#include "pdnn/strategy/scatter_gather.hpp"

using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(abandoned_calls)

namespace {

/// A rank whose calls are over at once, as if all had given the same as it, until the others fail: during the
/// `last`-th call of more than kSmall bytes, which it then abandons.
class Failing final : public Communicator {
 public:
  Failing(int rank, int size, int last) : Communicator(rank, size), left_(last) {}

  std::shared_ptr<Communicator> split(int, int) override { return nullptr; }
  std::shared_ptr<Communicator> duplicate() override { return nullptr; }
  void notify(Notice, std::int64_t) override {}
  std::int64_t notified(Notice) override { return left_ == 0 ? 0 : -1; }
  [[noreturn]] void give_up(const std::string& message) override { throw CommunicationError(message); }

  /// Its memory.
  const Call& abandoned() const { return call_; }

 private:
  Request start(const Call& call) override {
    if (std::max(call.in.bytes(), call.out.bytes()) > kSmall && --left_ == 0) {
      call_ = call;
      return {this, 0};
    }
    const Index give = call.in.bytes(), take = call.out.bytes();
    if (call.in.data == call.out.data) return {};
    for (Index at = 0; give > 0 && at < take; at += give)
      std::memcpy(static_cast<std::byte*>(call.out.data) + at, call.in.data,
                  static_cast<std::size_t>(std::min(give, take - at)));
    return {};
  }
  bool test(int) override { return false; }
  Call abandon(int) override { return call_; }
  [[noreturn]] void time_out(int, const char* call) override { give_up(call); }

  int left_;
  Call call_{};
};

/// Whether some of these bytes are given to others.
bool given_away(const void* begin, Index bytes) {
  struct Block {
    std::unique_ptr<Block> before;
    std::array<std::byte, 56> rest;
  };
  constexpr int kBlocks = 1 << 16;
  const auto first = reinterpret_cast<std::uintptr_t>(begin), end = first + static_cast<std::uintptr_t>(bytes);
  std::unique_ptr<Block> others;
  bool found = false;
  for (int i = 0; i < kBlocks; ++i) {
    others = std::make_unique<Block>(std::move(others));
    const auto at = reinterpret_cast<std::uintptr_t>(others.get());
    found = found || (at < end && first < at + sizeof(Block));
  }
  while (others) others = std::move(others->before);
  return found;
}

/// Has one after another of the large calls of `job` fail; returns how many there are.
template <class Job>
int abandon_each(int rank, int size, Job job) {
  for (int last = 1;; ++last) {
    const auto comm = std::make_shared<Failing>(rank, size, last);
    try {
      job(comm);
      return last - 1;
    } catch (const Aborted&) {
    }
    const Call& call = comm->abandoned();
    BOOST_TEST(!given_away(call.in.data, call.in.bytes()), name(call.kind) << " reads what others get");
    BOOST_TEST(!given_away(call.out.data, call.out.bytes()), name(call.kind) << " fills what others get");
  }
}

constexpr nn::Init kInit{nn::Init::Kind::uniform, 0.5};

std::shared_ptr<nn::Network<double>> two_layers(Index inputs, Index inside, Index outputs) {
  return std::make_shared<nn::Network<double>>(
      std::vector<nn::LayerPtr<double>>{std::make_shared<nn::Linear<double>>(inputs, inside, true, kInit, kInit),
                                        std::make_shared<nn::Linear<double>>(inside, outputs, true, kInit, kInit)});
}

/// What a rank trains, and rows of one number.
struct Training {
  explicit Training(Index count, Index inside = 2)
      : model(two_layers(1, inside, 2), 1),
        network(model.bound({1})),
        optimizer(model.count(), kernels::Sgd{}),
        x(static_cast<std::size_t>(count), 1.0),
        weights(x.size(), 0.5),
        classes(x.size()),
        rows(x.size()) {
    optimizer.set_segments({{model.count(), 0.1, 0, false}});
    std::iota(rows.begin(), rows.end(), Index{0});
  }
  engine::Job<double> job() { return {model, *network, loss, {1}}; }
  data::Source<double> source() const {
    return {{.data = x.data(),
             .format = data::Samples::Format::float64,
             .count = std::ssize(x),
             .stride = 1,
             .sample = {1},
             .scale = scale},
            {classes.data(), {}, weights.data()}};
  }
  data::Step step() const { return {.rows = rows, .global_rows = std::ssize(rows)}; }

  nn::Model<double> model;
  std::shared_ptr<const nn::Network<double>> network;
  nn::CrossEntropyLoss<double> loss{nn::Reduction::mean};
  optim::Optimizer<double> optimizer;
  std::vector<double> x, weights;
  double scale = 2;  // 1: a batch lies ready in x
  std::vector<std::int32_t> classes;
  std::vector<Index> rows;
};

}  // namespace

BOOST_AUTO_TEST_CASE(weights_of_rows_that_the_root_sends) {
  for (const int rank : {0, 1}) {
    const int calls = abandon_each(rank, 2, [&](const std::shared_ptr<Communicator>& comm) {
      Training training(2000);
      auto engine = std::make_unique<engine::TeamEngine<double>>(training.job(), 1, 1000);
      strategy::ScatterGather<double> strategy(training.job(), training.optimizer, std::move(engine), comm, 0, 2000,
                                               false);
      strategy.step(training.source(), training.step());
    });
    BOOST_TEST(calls >= 2);  // of x and of the weights
  }
}

BOOST_AUTO_TEST_CASE(rows_that_lie_ready_in_the_callers_array) {
  const int calls = abandon_each(0, 2, [&](const std::shared_ptr<Communicator>& comm) {
    Training training(2000);
    training.scale = 1;
    auto engine = std::make_unique<engine::TeamEngine<double>>(training.job(), 1, 1000);
    strategy::ScatterGather<double> strategy(training.job(), training.optimizer, std::move(engine), comm, 0, 2000,
                                             false);
    strategy.step(training.source(), training.step());
  });
  BOOST_TEST(calls >= 3);  // of x, of the classes and of the weights
}

BOOST_AUTO_TEST_CASE(blocks_of_many_ranks) {
  constexpr int kRanks = 600;
  const int calls = abandon_each(0, kRanks, [&](const std::shared_ptr<Communicator>& comm) {
    const auto network = two_layers(1, 2, 2);
    const auto model = std::make_shared<nn::Model<double>>(network, 1);
    const auto optimizer = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{});
    optimizer->set_segments({{model->count(), 0.1, 0, false}});
    const partition::PartialModel<double> part(model, optimizer, partition::layers_of(*network, {0, 1}), comm, {});
  });
  BOOST_TEST(calls >= 2);
}

BOOST_AUTO_TEST_CASE(losses_of_many_leaves) {
  constexpr Index kLeaves = 300;
  const int calls = abandon_each(0, 2, [&](const std::shared_ptr<Communicator>& comm) {
    Training training(kLeaves);
    const engine::Job<double> job = training.job();
    engine::TeamEngine<double> engine(job, 1, kLeaves / 2);
    data::PhaseTimer timer;
    reduce::BucketedReducer<double> reducer({job, training.optimizer, engine, timer, kLeaves}, comm, 4096);
    data::Step step = training.step();
    step.leaves = {kLeaves, kLeaves, {0, kLeaves}};
    reducer.step(training.source(), step.shard({0, 2}), nullptr, false);
  });
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(squares_of_a_gradient_that_is_clipped) {
  constexpr int kRanks = 64;
  const int calls = abandon_each(0, kRanks, [&](const std::shared_ptr<Communicator>& comm) {
    constexpr Index kInside = 10000;
    const auto network = two_layers(1, kInside, 2);
    const auto model = std::make_shared<nn::Model<double>>(network, 1);
    const auto optimizer = std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{});
    optimizer->set_segments({{model->count(), 0.1, 0, false}});
    using Clip = optim::Clip<double>;
    optimizer->set_clip(std::make_unique<Clip>(Clip::By::norm, 1, model->count()));
    partition::PartialModel<double> part(model, optimizer, partition::layers_of(*network, {0, 1}), comm, {});
    (*part.optimizer().clip())(threads::Member(), slice(part.model().grads->span(), 0, part.model().count()));
  });
  BOOST_TEST(calls >= 1);
}

BOOST_AUTO_TEST_CASE(times_of_a_pipeline) {
  constexpr Index kMicroBatches = 200;
  const int calls = abandon_each(0, 2, [&](const std::shared_ptr<Communicator>& comm) {
    Training training(kMicroBatches);
    engine::PipelineEngine<double> engine(training.job(), comm, {.schedule = "gpipe", .micro_batches = kMicroBatches},
                                          kMicroBatches);
    engine.record();
    engine.gradient(training.source(), training.step(), {});
    engine.timeline();
  });
  BOOST_TEST(calls >= 1);
}

BOOST_AUTO_TEST_CASE(products_of_a_quadratic_model) {
  constexpr Index kInside = 200, kRows = 8;
  const int calls = abandon_each(0, 2, [&](const std::shared_ptr<Communicator>& comm) {
    const auto model = std::make_shared<nn::Model<double>>(two_layers(1, kInside, 1), 1);
    const auto loss = std::make_shared<nn::MSELoss<double>>(nn::Reduction::mean);
    const std::vector<double> x(kRows, 1.0), y(kRows, 2.0);
    std::vector<Index> rows(kRows);
    std::iota(rows.begin(), rows.end(), Index{0});
    const data::Source<double> source(
        {.data = x.data(), .format = data::Samples::Format::float64, .count = kRows, .stride = 1, .sample = {1}},
        {nullptr, {y.data(), kRows, 1}});
    curvature::QuadraticModel quadratic(model, loss, {1}, std::vector<bool>(4, true), curvature::Kind::gauss_newton, 1,
                                        comm.get());
    quadratic.take(source, rows);
    quadratic.linearize();
    const std::vector<double> diag(static_cast<std::size_t>(model->count()), 1.0);
    std::vector<double> solution(diag);
    quadratic.solve_cg(diag, 1e-3, 2, solution);
  });
  BOOST_TEST(calls >= 1);
}

BOOST_AUTO_TEST_SUITE_END()
