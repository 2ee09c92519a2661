// A training step allocates nothing once the first ones have been made.
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "allocations.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/conv2d.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/layers/pool2d.hpp"
#include "pdnn/nn/layers/residual.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/strategy/data_parallel.hpp"
#include "pdnn/strategy/strategy.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::reduce;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_allocation)

namespace {

using Layers = std::vector<nn::LayerPtr<float>>;
constexpr Index kRows = 24, kBatch = 9;
constexpr nn::Init kInit{nn::Init::Kind::uniform, 0.3};

nn::LayerPtr<float> linear(Index inputs, Index outputs) {
  return std::make_shared<nn::Linear<float>>(inputs, outputs, true, kInit, kInit);
}
nn::LayerPtr<float> conv(Index inputs, Index outputs, Index stride = 1, Index padding = 0) {
  return std::make_shared<nn::Conv2d<float>>(inputs, outputs, nn::WindowOptions{3, stride, padding}, true, kInit,
                                             kInit);
}
nn::LayerPtr<float> norm(Index channels) {
  return std::make_shared<nn::BatchNorm<float>>(nn::BatchNorm<float>::Options{.channels = channels, .images = true});
}
nn::LayerPtr<float> activation(kernels::Activation f) { return std::make_shared<nn::ActivationLayer<float>>(f); }
nn::LayerPtr<float> relu() { return activation(kernels::Activation::relu); }
nn::LayerPtr<float> network(Layers layers) { return std::make_shared<nn::Network<float>>(std::move(layers)); }

/// Small forms of the networks of the exercises.
struct Case {
  const char* name;
  Layers layers;
  Shape sample;
};
std::vector<Case> cases() {
  const auto pool = std::make_shared<nn::MaxPool2d<float>>(nn::WindowOptions{2, 2});
  const auto flatten = std::make_shared<nn::Flatten<float>>();
  return {
      {"perceptron", {linear(20, 70), activation(kernels::Activation::sigmoid), linear(70, 5)}, {20}},
      {"pooled convolutions",
       {conv(1, 4), pool, relu(), conv(4, 6), pool, relu(), std::make_shared<nn::Dropout<float>>(0.4), flatten,
        linear(6, 5)},
       {1, 12, 12}},
      {"residual network",
       {conv(3, 4, 2, 1), norm(4), relu(),
        std::make_shared<nn::Residual<float>>(network({conv(4, 4, 1, 1), norm(4), relu()})), flatten, linear(36, 5)},
       {3, 6, 6}},
  };
}

void check(const Case& example, int threads, Index pieces, const kernels::Rule& rule) {
  nn::Model<float> model(std::make_shared<nn::Network<float>>(example.layers), 1);
  const auto bound = model.bound(example.sample);
  const nn::CrossEntropyLoss<float> loss(nn::Reduction::mean);
  const auto optimizer = std::make_unique<optim::Optimizer<float>>(model.count(), rule);
  optimizer->set_segments({{model.count(), 0.01, 1e-3, false}});
  const Job<float> job{model, *bound, loss, example.sample};
  std::unique_ptr<Engine<float>> engine;
  if (pieces == 0)
    engine = std::make_unique<TeamEngine<float>>(job, threads, kBatch);
  else
    engine = std::make_unique<PoolEngine<float>>(job, threads, pieces, kBatch);
  DataParallel<float> strategy(job, *optimizer, std::move(engine), comm::make_self());

  const Index width = example.sample.count();
  std::vector<float> x(static_cast<std::size_t>(kRows * width));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(Rng(1).uniform(i));
  std::vector<std::int32_t> classes(kRows);
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int32_t>(i % 5);
  const Source<float> source({x.data(), Samples::Format::float32, kRows, width, example.sample, 0.5, 0.1},
                             {classes.data(), {}});
  std::vector<Index> order(kRows);
  std::iota(order.rbegin(), order.rend(), Index{0});
  const auto steps = [&] {
    const std::span<const Index> rows(order);
    for (int turn = 0; turn < 4; ++turn)
      strategy.step(source, {.rows = rows.first(kBatch),
                             .next = rows.last(turn == 3 ? 0 : kBatch),
                             .keys = Rng(2),
                             .global_rows = kBatch});
  };
  // A thread makes room when it first takes part, which on a busy machine may be late.
  constexpr int kRounds = 5;
  long allocations = 1;
  for (int round = 0; round < kRounds && allocations > 0; ++round) {
    const long before = tests::all_allocations();
    BOOST_REQUIRE(before > 0);
    steps();
    allocations = tests::all_allocations() - before;
  }
  BOOST_TEST(allocations == 0,
             example.name << ", " << threads << " threads, " << pieces << " pieces: " << allocations << " allocations");
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_allocate_nothing) {
  for (const Case& example : cases()) {
    for (const auto& [threads, pieces] : {std::pair{1, 0}, {2, 0}, {2, 3}}) {
      check(example, threads, pieces, kernels::Sgd{0.9});
      check(example, threads, pieces, kernels::Adam{0.9, 0.999, 1e-8, false});
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
