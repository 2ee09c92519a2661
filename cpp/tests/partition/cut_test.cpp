// Cuts are as good as the best of all, and costs are measured for every kind of layer.
#include "pdnn/partition/cut.hpp"

#include <boost/test/unit_test.hpp>
#include <functional>

#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/conv2d.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/layers/pool2d.hpp"

using namespace pdnn;
using namespace pdnn::partition;

BOOST_AUTO_TEST_SUITE(partition_cut)

namespace {

double slowest(std::span<const double> costs, std::span<const Index> cut) {
  double most = 0;
  for (const Range& stage : stages_of(std::ssize(costs), cut)) {
    double sum = 0;
    for (Index i = stage.begin; i < stage.end; ++i) sum += costs[static_cast<std::size_t>(i)];
    most = std::max(most, sum);
  }
  return most;
}

/// Of all cuts.
double best(std::span<const double> costs, int stages) {
  double least = 1e9;
  std::vector<Index> cut;
  const std::function<void()> longer = [&] {
    if (std::ssize(cut) == stages - 1) {
      least = std::min(least, slowest(costs, cut));
      return;
    }
    for (Index at = cut.empty() ? 1 : cut.back() + 1; at < std::ssize(costs); ++at) {
      if (std::ssize(costs) - at < stages - 1 - std::ssize(cut)) break;
      cut.push_back(at);
      longer();
      cut.pop_back();
    }
  };
  longer();
  return least;
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_other_cut_has_a_faster_slowest_stage) {
  for (const std::size_t layers : {1, 2, 5, 9})
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<double> costs(layers);
      for (std::size_t i = 0; i < layers; ++i) costs[i] = Rng(seed).uniform(i) < 0.2 ? 0 : Rng(seed + 99).uniform(i);
      for (int stages = 1; stages <= static_cast<int>(layers); ++stages) {
        const std::vector<Index> cut = cut_by_cost(costs, stages);
        BOOST_TEST_REQUIRE(std::ssize(cut) == stages - 1);
        BOOST_TEST(slowest(costs, cut) == best(costs, stages), boost::test_tools::tolerance(1e-12));
      }
    }
}

BOOST_AUTO_TEST_CASE(cuts_that_leave_a_stage_empty_are_refused) {
  BOOST_CHECK_THROW(cut_by_cost(std::vector<double>{1, 2}, 3), ValueError);
  BOOST_CHECK_THROW(cut_by_cost(std::vector<double>{1, -2}, 1), ValueError);
  for (const std::vector<Index>& cut : std::vector<std::vector<Index>>{{0}, {4}, {5}, {2, 2}, {3, 1}, {-1}})
    BOOST_CHECK_THROW(stages_of(4, cut), ValueError);
  const std::vector<Range> stages = stages_of(4, std::vector<Index>{1, 3});
  BOOST_TEST((stages == std::vector<Range>{{0, 1}, {1, 3}, {3, 4}}));
}

BOOST_AUTO_TEST_CASE(a_wider_layer_takes_longer, *boost::unit_test::label("serial")) {
  constexpr nn::Init init{nn::Init::Kind::uniform, 0.1};
  const nn::Network<float> network(
      {std::make_shared<nn::Conv2d<float>>(1, 4, nn::WindowOptions{3, 1, 1}, true, init, init),
       std::make_shared<nn::BatchNorm<float>>(nn::BatchNorm<float>::Options{.channels = 4, .images = true}),
       std::make_shared<nn::Flatten<float>>(), std::make_shared<nn::Linear<float>>(256, 512, true, init, init),
       std::make_shared<nn::ActivationLayer<float>>(kernels::Activation::relu),
       std::make_shared<nn::Dropout<float>>(0.1), std::make_shared<nn::Linear<float>>(512, 2, true, init, init)});
  std::vector<Range> each, two{{0, 4}, {4, 7}};
  for (Index layer = 0; layer < 7; ++layer) each.push_back({layer, layer + 1});
  const std::vector<PassSeconds> costs = stage_seconds(network, {1, 8, 8}, each, 64);
  BOOST_TEST_REQUIRE(costs.size() == 7U);
  for (const PassSeconds& pass : costs) BOOST_TEST((pass.forward > 0 && pass.backward > 0));
  BOOST_TEST(costs[3].forward > costs[6].forward);
  BOOST_TEST(costs[3].backward > costs[6].backward);
  const std::vector<PassSeconds> stages = stage_seconds(network, {1, 8, 8}, two, 64);
  BOOST_TEST_REQUIRE(stages.size() == 2U);
  BOOST_TEST(stages[0].forward > stages[1].forward);  // with the widest layer
  BOOST_TEST(measured_cut(network, {1, 8, 8}, 2, 64).size() == 1U);
  BOOST_CHECK_THROW(measured_cut(network, {1, 8, 8}, 8, 64), ValueError);
}

BOOST_AUTO_TEST_CASE(layers_that_are_computed_as_one_are_cut_where_stages_would_be_empty) {
  const nn::WindowOptions window{3, 1, 1};
  const nn::Network<float> network({std::make_shared<nn::Conv2d<float>>(2, 4, window, true, nn::Init{}, nn::Init{}),
                                    std::make_shared<nn::MaxPool2d<float>>(nn::WindowOptions{2, 2})});
  BOOST_TEST_REQUIRE(network.bound({2, 4, 4})->inseparable().size() == 1);
  BOOST_TEST(measured_cut(network, {2, 4, 4}, 2, 3) == std::vector<Index>{1}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
