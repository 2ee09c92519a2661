// Random networks trained by random strategies on random teams and ranks: what one thread makes of them. Small enough
// for the sanitizers, which see here what they would see in no table of cases.
#include <boost/test/unit_test.hpp>

#include "pdnn/data/epoch_order.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/conv2d.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/layer_norm.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/layers/pool2d.hpp"
#include "pdnn/nn/layers/residual.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/strategy/session.hpp"
#include "random_rounds.hpp"
#include "ranks.hpp"

using namespace pdnn;
using tests::Draw;

BOOST_AUTO_TEST_SUITE(random_training)

namespace {

using Layers = std::vector<nn::LayerPtr<double>>;
using Numbers = std::vector<double>;
using kernels::Activation;

/// What BatchNorm may be for: nothing, a rank's own rows, or the rows of all ranks.
enum class Normed { never, alone, together };

/// What is trained, and on what.
struct Problem {
  Layers layers;
  Shape sample;
  Index classes, rows, batch;
  bool adam, clipped;
};

nn::LayerPtr<double> draw_linear(Draw& draw, Index inputs, Index outputs) {
  const nn::Init init{nn::Init::Kind::uniform, 0.2};
  return std::make_shared<nn::Linear<double>>(inputs, outputs, !draw.once_in(4), init, init);
}

/// What keeps the shape: a layer with weights, or a residual network of such blocks.
nn::LayerPtr<double> draw_block(Draw& draw, const Shape& at, Index depth) {
  const nn::Init init{nn::Init::Kind::uniform, 0.2};
  if (depth == 0 || draw.once_in(3)) {
    if (at.rank() == 1) return draw_linear(draw, at[0], at[0]);
    return std::make_shared<nn::Conv2d<double>>(at[0], at[0], nn::WindowOptions{3, 1, 1}, true, init, init);
  }
  Layers inner;
  for (Index count = draw(1, 2); count > 0; --count) {
    inner.push_back(draw_block(draw, at, depth - 1));
    inner.push_back(std::make_shared<nn::ActivationLayer<double>>(Activation::tanh));
  }
  return std::make_shared<nn::Residual<double>>(std::make_shared<nn::Network<double>>(std::move(inner)));
}

/// Null where what was drawn does not fit.
nn::LayerPtr<double> draw_layer(Draw& draw, const Shape& at, Normed normed) {
  const nn::Init init{nn::Init::Kind::uniform, 0.2};
  const bool image = at.rank() == 3;
  const auto convolution = [&](Index outputs, Index kernel, Index stride, Index padding) {
    return std::make_shared<nn::Conv2d<double>>(at[0], outputs, nn::WindowOptions{kernel, stride, padding}, true, init,
                                                init);
  };
  const Index kernel = draw(1, 3), padding = draw(0, 2), least = image ? std::min(at[1], at[2]) : 0;
  switch (draw(0, 7)) {
    case 0:
      return std::make_shared<nn::ActivationLayer<double>>(draw.one_of({Activation::relu, Activation::tanh}));
    case 1:
      return std::make_shared<nn::Dropout<double>>(0.2);
    case 2:
      if (normed == Normed::never) return nullptr;
      return std::make_shared<nn::BatchNorm<double>>(nn::BatchNorm<double>::Options{
          .channels = at[0], .images = image, .eps = 0.1, .sync = normed == Normed::together});
    case 3:
      return draw_block(draw, at, 2);
    case 4:
      if (!image) return std::make_shared<nn::LayerNorm<double>>(at[0], 0.1);
      return least < kernel ? nullptr : std::make_shared<nn::MaxPool2d<double>>(nn::WindowOptions{kernel, draw(1, 2)});
    default:
      if (!image) return draw_linear(draw, at[0], draw.once_in(3) ? draw(33, 200) : draw(1, 20));
      return least + 2 * padding < kernel ? nullptr : convolution(draw(1, 9), kernel, draw(1, 2), padding);
  }
}

Problem draw_problem(Draw& draw, Normed normed) {
  Problem problem;
  Shape at = problem.sample = draw.once_in(2) ? Shape{draw(1, 40)} : Shape{draw(1, 3), draw(3, 8), draw(3, 8)};
  const auto add = [&](nn::LayerPtr<double> layer) {
    if (!layer) return;
    at = layer->output_shape(at);
    problem.layers.push_back(std::move(layer));
  };
  for (Index count = draw(0, 5); count > 0; --count) add(draw_layer(draw, at, normed));
  add(std::make_shared<nn::Flatten<double>>());
  add(draw_linear(draw, at[0], draw(2, 40)));  // a pair to cut among ranks
  add(std::make_shared<nn::ActivationLayer<double>>(Activation::tanh));
  add(draw_linear(draw, at[0], problem.classes = draw(2, 9)));
  problem.rows = draw(1, 40);
  problem.batch = draw(1, std::min<Index>(problem.rows, 20));
  problem.adam = draw.once_in(2);
  problem.clipped = draw.once_in(4);
  return problem;
}

std::shared_ptr<optim::Optimizer<double>> make_optimizer(const Problem& problem, Index count) {
  kernels::Rule rule = kernels::Sgd{0.9};
  if (problem.adam) rule = kernels::Adam{0.9, 0.99, 1e-2, false};
  auto optimizer = std::make_shared<optim::Optimizer<double>>(count, rule);
  optimizer->set_segments({{count, 0.05, 1e-3, false}});
  using Clip = optim::Clip<double>;
  if (problem.clipped) optimizer->set_clip(std::make_unique<Clip>(Clip::By::norm, 0.5, count));
  return optimizer;
}

/// Parameters and buffers after two epochs on one rank of a group.
Numbers train(const Problem& problem, const strategy::StrategyConfig& config,
              const std::shared_ptr<comm::Communicator>& comm) {
  Numbers x(static_cast<std::size_t>(problem.rows * problem.sample.count()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Rng(1).normal(i);
  std::vector<std::int32_t> classes;
  for (Index row = 0; row < problem.rows; ++row) classes.push_back(static_cast<std::int32_t>(row % problem.classes));
  const data::Samples samples{.data = x.data(),
                              .format = data::Samples::Format::float64,
                              .count = problem.rows,
                              .stride = problem.sample.count(),
                              .sample = problem.sample};
  const data::Source<double> source(samples, {classes.data(), {}});
  const auto model = std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(problem.layers), 3);
  strategy::Session<double> session(config,
                                    {model, std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean),
                                     make_optimizer(problem, model->count()), comm, problem.sample, 0, problem.batch});
  const Index steps = (problem.rows + problem.batch - 1) / problem.batch;
  for (const std::int64_t epoch : {0, 1}) {
    const std::vector<Index> order = data::epoch_order(4, static_cast<std::uint64_t>(epoch), problem.rows);
    session.run_epoch(source, {order, problem.batch, 4, epoch * steps, {}},
                      [](const strategy::EpochSums&) { return false; });
  }
  session.finish();
  Numbers trained(model->params->span().begin(), model->params->span().end());
  trained.insert(trained.end(), model->buffers->span().begin(), model->buffers->span().end());
  return trained;
}

strategy::EngineConfig draw_engine(Draw& draw, bool pool = true) {
  if (pool && draw.once_in(4)) return strategy::PoolConfig{static_cast<int>(draw(1, 3)), draw(1, 4)};
  return strategy::TeamConfig{static_cast<int>(draw(1, 3))};
}

reduce::ReducerOptions draw_reducer(Draw& draw) {
  using Memory = reduce::ReducerOptions::Memory;
  reduce::ReducerOptions options;
  options.memory = draw.one_of({Memory::measured, Memory::shared, Memory::messages});
  if (options.memory == Memory::messages) options.bucket_bytes = draw.one_of<Index>({0, 8, 500, 5000});
  return options;
}

/// All ranks must end with the same bits, and those of serial training but for `tolerance`.
void check(const Problem& problem, const strategy::StrategyConfig& config, int ranks, double tolerance) {
  const std::vector<Numbers> trained = tests::on_ranks(
      ranks, [&](const std::shared_ptr<comm::Communicator>& comm) { return train(problem, config, comm); });
  const Numbers want = train(problem, strategy::DataParallelConfig{}, comm::make_self());
  for (const Numbers& own : trained) {
    BOOST_TEST((own == trained[0]), "ranks differ");
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::abs(own[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    BOOST_TEST(difference <= tolerance * largest);
  }
}

constexpr double kRounding = 1e-8;

}  // namespace

BOOST_AUTO_TEST_CASE(a_random_team_changes_no_bit) {
  tests::random_rounds(10, [](Draw& draw) {
    const strategy::DataParallelConfig config{.engine = strategy::TeamConfig{static_cast<int>(draw(2, 12))}};
    check(draw_problem(draw, Normed::alone), config, 1, 0);
  });
}

BOOST_AUTO_TEST_CASE(a_random_pool_trains_as_one_thread_does) {
  tests::random_rounds(5, [](Draw& draw) {
    const strategy::PoolConfig pool{static_cast<int>(draw(1, 4)), draw(1, 6)};
    check(draw_problem(draw, Normed::never), strategy::DataParallelConfig{.engine = pool}, 1, kRounding);
  });
}

BOOST_AUTO_TEST_CASE(random_replicas_train_as_one_thread_does) {
  tests::random_rounds(10, [](Draw& draw) {
    const bool normed = draw.once_in(2);
    const strategy::DataParallelConfig config{.engine = draw_engine(draw, !normed), .reducer = draw_reducer(draw)};
    check(draw_problem(draw, normed ? Normed::together : Normed::never), config, static_cast<int>(draw(2, 4)),
          kRounding);
  });
}

BOOST_AUTO_TEST_CASE(random_ranks_that_are_sent_their_rows_train_as_one_thread_does) {
  tests::random_rounds(5, [](Draw& draw) {
    const strategy::ScatterGatherConfig config{.engine = draw_engine(draw, false)};
    check(draw_problem(draw, Normed::together), config, static_cast<int>(draw(2, 4)), kRounding);
  });
}

BOOST_AUTO_TEST_CASE(random_grids_train_as_one_thread_does) {
  tests::random_rounds(10, [](Draw& draw) {
    strategy::GridConfig config{.stages = static_cast<int>(draw(1, 2)), .tensor = static_cast<int>(draw(1, 2))};
    config.pipeline.micro_batches = draw(1, 4);
    config.reducer.memory = reduce::ReducerOptions::Memory::shared;
    const int replicas = config.stages * config.tensor == 1 ? 2 : static_cast<int>(draw(1, 2));
    check(draw_problem(draw, Normed::never), config, config.stages * config.tensor * replicas, kRounding);
  });
}

// What is trained depends on who comes first: the sanitizers look, and the ranks end with one model.
BOOST_AUTO_TEST_CASE(random_ranks_that_wait_for_nobody_end_with_one_model) {
  tests::random_rounds(5, [](Draw& draw) {
    Problem problem = draw_problem(draw, Normed::never);
    problem.clipped = false;
    const strategy::StrategyConfig configs[] = {
        strategy::ModelAveragingConfig{.engine = draw_engine(draw), .every = draw(0, 3)},
        strategy::HogwildConfig{static_cast<int>(draw(1, 4))}};
    const auto& config = configs[draw(0, 1)];
    const int ranks = static_cast<int>(draw(1, 4));
    const std::vector<Numbers> trained = tests::on_ranks(
        ranks, [&](const std::shared_ptr<comm::Communicator>& comm) { return train(problem, config, comm); });
    for (const Numbers& own : trained) {
      BOOST_TEST((own == trained[0]), "ranks differ");
      BOOST_TEST(std::all_of(own.begin(), own.end(), [](double value) { return std::isfinite(value); }));
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
