// A batch in leaves: the same gradient, losses and buffers, bit for bit, for any team and any cut of the leaves.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <numeric>

#include "pdnn/engine/engine.hpp"
#include "pdnn/kernels/rules.hpp"
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
#include "ranks.hpp"

namespace pdnn::engine::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
using kernels::Activation;
constexpr Index kRows = 137, kClasses = 3;
constexpr nn::Init kInit{nn::Init::Kind::uniform, 0.5};

/// A network of every layer that sums over rows, on features or on images.
template <class T>
struct Problem {
  std::vector<nn::LayerPtr<T>> layers;
  Shape sample;
  std::vector<T> x;
  std::vector<std::int32_t> classes;
  std::vector<Index> rows = std::vector<Index>(kRows);

  Problem(std::vector<nn::LayerPtr<T>> all, const Shape& shape) : layers(std::move(all)), sample(shape) {
    for (Index i = 0; i < kRows * sample.count(); ++i)
      x.push_back(static_cast<T>(Rng(1).uniform(static_cast<std::uint64_t>(i)) - 0.5));
    for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kClasses));
    std::iota(rows.begin(), rows.end(), Index{0});
    std::ranges::reverse(rows);
  }
  data::Source<T> source() const {
    const auto format = sizeof(T) == 4 ? data::Samples::Format::float32 : data::Samples::Format::float64;
    return {{x.data(), format, kRows, sample.count(), sample, 1, 0}, {classes.data(), {}}};
  }
};

template <class T, class Layer, class... Args>
nn::LayerPtr<T> layer(const Args&... args) {
  return std::make_shared<Layer>(args...);
}
template <class T>
nn::LayerPtr<T> linear(Index inputs, Index outputs) {
  return std::make_shared<nn::Linear<T>>(inputs, outputs, true, kInit, kInit);
}
template <class T>
nn::LayerPtr<T> conv(Index inputs, Index outputs) {
  return std::make_shared<nn::Conv2d<T>>(inputs, outputs, nn::WindowOptions{3, 1, 1}, true, kInit, kInit);
}
template <class T>
nn::LayerPtr<T> norm(Index channels, bool images, bool sync = true) {
  return std::make_shared<nn::BatchNorm<T>>(
      typename nn::BatchNorm<T>::Options{.channels = channels, .images = images, .sync = sync});
}

template <class T>
Problem<T> features(bool sync = true) {
  const auto f = [](Activation activation) { return layer<T, nn::ActivationLayer<T>>(activation); };
  const auto inner = std::make_shared<nn::Network<T>>(
      std::vector<nn::LayerPtr<T>>{linear<T>(80, 80), norm<T>(80, false, sync), f(Activation::relu)});
  return {{linear<T>(6, 80), f(Activation::tanh), layer<T, nn::Residual<T>>(inner),
           layer<T, nn::LayerNorm<T>>(80, 1e-5), layer<T, nn::Dropout<T>>(0.3), linear<T>(80, kClasses)},
          {6}};
}
template <class T>
Problem<T> images() {
  return {{conv<T>(2, 4), layer<T, nn::MaxPool2d<T>>(nn::WindowOptions{2, 2}),
           layer<T, nn::ActivationLayer<T>>(Activation::relu), conv<T>(4, 3), norm<T>(3, true),
           layer<T, nn::ActivationLayer<T>>(Activation::relu), layer<T, nn::Flatten<T>>(),
           layer<T, nn::Dropout<T>>(0.2), linear<T>(12, kClasses)},
          {2, 4, 4}};
}

struct Cut {
  Index leaves, rows;
  int ranks, threads;
};

/// What one step makes of a new model, on all ranks together.
template <class T>
struct Outcome {
  std::vector<T> grads, buffers;
  nn::LossValue sums;
  bool operator==(const Outcome& other) const {
    return std::memcmp(grads.data(), other.grads.data(), grads.size() * sizeof(T)) == 0 && buffers == other.buffers &&
           sums.value == other.sums.value && sums.correct == other.sums.correct;
  }
};

struct SumOfRanks : nn::BatchSum {
  explicit SumOfRanks(comm::Communicator& communicator) : ranks(communicator) {}
  void sum(std::span<double> values) override { ranks.all_reduce(values); }
  comm::Communicator& ranks;
};

data::Step step_of(std::span<const Index> rows, Index leaves) {
  const Index count = std::ssize(rows);
  data::Step step{.rows = rows, .keys = Rng(3), .global_rows = count, .scale = 1 / static_cast<double>(count)};
  if (leaves > 0) step.leaves = {leaves, count, {0, leaves}};
  return step;
}

/// The gradients of one rank's nodes, and everything else that it has.
template <class T>
struct OwnOutcome {
  std::vector<Range> nodes;
  std::vector<std::vector<T>> grads;
  std::vector<nn::LossValue> leaf_sums;
  nn::LossValue sums;
  std::vector<T> buffers;
};

template <class T>
OwnOutcome<T> run_rank(const Problem<T>& problem, const Cut& cut, comm::Communicator& ranks) {
  nn::Model<T> model(std::make_shared<nn::Network<T>>(problem.layers), 5);
  const auto network = model.bound(problem.sample);
  const nn::CrossEntropyLoss<T> loss(nn::Reduction::mean);
  TeamEngine<T> engine({model, *network, loss, problem.sample}, cut.threads, cut.rows);
  const auto rows = std::span(problem.rows).first(static_cast<std::size_t>(cut.rows));
  const data::Step step = step_of(rows, cut.leaves).shard({ranks.rank(), ranks.size()});

  OwnOutcome<T> own;
  own.nodes = nodes_of(step.leaves.run, cut.leaves);
  own.leaf_sums.resize(static_cast<std::size_t>(cut.leaves));
  const Index more = std::max<Index>(0, std::ssize(own.nodes) - 1);
  std::vector<T> more_nodes(static_cast<std::size_t>(more * model.count()), T(9));
  SumOfRanks batch_sum(ranks);
  own.sums = engine.gradient(problem.source(), step,
                             {.batch_sum = &batch_sum, .more_nodes = more_nodes, .leaf_sums = own.leaf_sums});
  own.grads.emplace_back(model.grads->data(), model.grads->data() + model.count());
  for (Index i = 0; i < more; ++i)
    own.grads.emplace_back(more_nodes.begin() + i * model.count(), more_nodes.begin() + (i + 1) * model.count());
  own.buffers.assign(model.buffers->data(), model.buffers->data() + model.buffers->size());
  return own;
}

template <class T>
Outcome<T> run(const Problem<T>& problem, const Cut& cut) {
  auto all = tests::on_ranks(
      cut.ranks, [&](const std::shared_ptr<comm::Communicator>& ranks) { return run_rank(problem, cut, *ranks); });
  if (cut.leaves == 0) return {all[0].grads[0], all[0].buffers, all[0].sums};
  std::vector<Range> nodes;
  std::vector<std::vector<T>> grads;
  std::vector<nn::LossValue> leaf_sums(static_cast<std::size_t>(cut.leaves));
  for (OwnOutcome<T>& own : all) {
    BOOST_TEST(own.buffers == all[0].buffers, boost::test_tools::per_element());
    nodes.insert(nodes.end(), own.nodes.begin(), own.nodes.end());
    grads.insert(grads.end(), own.grads.begin(), own.grads.end());
    for (std::size_t leaf = 0; leaf < leaf_sums.size(); ++leaf) {
      leaf_sums[leaf].value += own.leaf_sums[leaf].value;
      leaf_sums[leaf].correct += own.leaf_sums[leaf].correct;
    }
  }
  join_nodes(nodes, cut.leaves, [&](std::size_t left, std::size_t right) {
    std::ranges::transform(grads[left], grads[right], grads[left].begin(), std::plus());
  });
  return {grads[0], all[0].buffers, sum_of_leaves(leaf_sums)};
}

template <class T>
void check_cuts(const Problem<T>& problem) {
  const std::vector<T> plain = run(problem, {0, 101, 1, 1}).grads;
  for (const Index rows : {101, 137, 5}) {
    for (const Index leaves : {1, 2, 3, 8, 20}) {
      const Outcome<T> serial = run(problem, {leaves, rows, 1, 1});
      for (const int threads : {1, 3}) {
        for (const int ranks : {1, 2, 3, 5}) {
          if (ranks > leaves) continue;
          BOOST_TEST((run(problem, {leaves, rows, ranks, threads}) == serial),
                     rows << " rows, " << leaves << " leaves on " << ranks << " ranks of " << threads << " threads");
        }
      }
      if (rows != 101) continue;
      double apart = 0;
      for (std::size_t i = 0; i < plain.size(); ++i)
        apart = std::max(apart, std::abs(static_cast<double>(serial.grads[i] - plain[i])));
      BOOST_TEST(apart < (sizeof(T) == 4 ? 1e-5 : 1e-13));
    }
  }
}

BOOST_AUTO_TEST_SUITE(team_engine)

BOOST_AUTO_TEST_CASE_TEMPLATE(any_cut_of_leaves_gives_the_same_bits, T, Elements) { check_cuts(features<T>()); }
BOOST_AUTO_TEST_CASE_TEMPLATE(any_cut_of_leaves_of_images_gives_the_same_bits, T, Elements) { check_cuts(images<T>()); }

// An update applies the same rule to the same finished sums, wherever it does.
BOOST_AUTO_TEST_CASE_TEMPLATE(updates_in_the_backward_pass_change_no_bit, T, Elements) {
  const Problem<T> problem = features<T>();
  const auto train = [&](bool fused, int threads) {
    nn::Model<T> model(std::make_shared<nn::Network<T>>(problem.layers), 5);
    const auto network = model.bound(problem.sample);
    const nn::CrossEntropyLoss<T> loss(nn::Reduction::mean);
    TeamEngine<T> engine({model, *network, loss, problem.sample}, threads, kRows);
    optim::Optimizer<T> optimizer(model.count(), kernels::Adam{0.9, 0.99, 1e-8, false});
    optimizer.set_segments({{model.count(), 0.01, 0.1, false}});
    UpdateInBackward<T> update(model, optimizer);
    std::vector<nn::LossValue> leaf_sums(8);
    for (const Index rows : {137, 100, 37}) {
      optimizer.begin_step();
      const data::Step step = step_of(std::span(problem.rows).first(static_cast<std::size_t>(rows)), 8);
      if (fused) {
        engine.gradient(problem.source(), step,
                        {.grad_ready = &update, .fused_update = &update, .leaf_sums = leaf_sums});
      } else {
        engine.gradient(problem.source(), step, {.leaf_sums = leaf_sums});
        engine.update(optimizer, {0, model.count()});
      }
    }
    return std::vector<T>(model.params->data(), model.params->data() + model.count());
  };
  const std::vector<T> apart = train(false, 1);
  for (const int threads : {1, 3}) BOOST_TEST(train(true, threads) == apart, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(batch_norm_of_leaves_needs_all_of_them) {
  const Problem<float> problem = features<float>(false);
  BOOST_CHECK_THROW(run(problem, {8, 20, 1, 1}), ValueError);
  const Problem<float> synchronized = features<float>();
  nn::Model<float> model(std::make_shared<nn::Network<float>>(synchronized.layers), 5);
  const auto network = model.bound(synchronized.sample);
  const nn::CrossEntropyLoss<float> loss(nn::Reduction::mean);
  TeamEngine<float> engine({model, *network, loss, synchronized.sample}, 1, kRows);
  std::vector<nn::LossValue> leaf_sums(8);
  const data::Step half = step_of(synchronized.rows, 8).shard({0, 2});
  BOOST_CHECK_THROW(engine.gradient(synchronized.source(), half, {.leaf_sums = leaf_sums}), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::engine::testing
