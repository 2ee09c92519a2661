// A stack of narrow linear layers has the bits of its layers one by one, which a team of two computes, for every number
// of lanes, rows and layers, each way to end, and up to the edge of where it is one.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/nn/model.hpp"

namespace pdnn::nn::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
using kernels::Activation;
constexpr Init kInit{Init::Kind::uniform, 0.5};

template <class T>
struct Case {
  std::vector<Index> widths;
  Activation activation, last;
  bool bias;
  kernels::Precision precision = kernels::Precision::full;
};

template <class T>
std::shared_ptr<Network<T>> network_of(const Case<T>& which) {
  std::vector<LayerPtr<T>> layers{std::make_shared<Flatten<T>>()};
  for (std::size_t i = 1; i < which.widths.size(); ++i) {
    layers.push_back(
        std::make_shared<Linear<T>>(which.widths[i - 1], which.widths[i], which.bias, kInit, kInit, which.precision));
    const Activation after = i + 1 < which.widths.size() ? which.activation : which.last;
    if (after != Activation::identity) layers.push_back(std::make_shared<ActivationLayer<T>>(after));
  }
  return std::make_shared<Network<T>>(layers);
}

template <class T>
std::vector<T> values(Index count, std::uint64_t seed) {
  std::vector<T> all;
  for (Index i = 0; i < count; ++i)
    all.push_back(static_cast<T>(Rng(seed).uniform(static_cast<std::uint64_t>(i)) - 0.5));
  return all;
}

/// The slices that a pass announces, each of which ends where the last one began, as one.
struct Announced : GradReady {
  Range all{-1, -1};
  void operator()(const Member& member, Range slice) override {
    if (!member.first()) return;
    BOOST_TEST((all.end == -1 || slice.end == all.begin));
    all = {slice.begin, all.end == -1 ? slice.end : all.end};
  }
};

template <class T>
struct Outcome {
  std::vector<T> y, grads;
  LossValue loss;
  Announced announced;
};

template <class T>
Outcome<T> run(const Case<T>& which, Index rows, int threads) {
  const Model<T> model(network_of(which), 7);
  const Shape sample{which.widths.front()};
  const auto network = model.bound(sample)->with_panels();
  Workspace<T> workspace(*network, sample, rows);
  const std::vector<T> x = values<T>(rows * sample.count(), 1), target = values<T>(rows * which.widths.back(), 2);
  const MSELoss<T> loss(Reduction::mean);
  Outcome<T> outcome;
  outcome.grads.resize(static_cast<std::size_t>(model.count()), T(9));
  threads::Team team(threads);
  team.run([&](const Member& member) {
    const Pass pass{.team = &member, .final = &outcome.announced};
    const LossValue sums = run_pass<T>(*network, model, workspace, loss, pass, {x.data(), rows, sample},
                                       {nullptr, {target.data(), rows, which.widths.back()}}, 0.25, outcome.grads);
    if (member.first()) outcome.loss = sums;
  });
  outcome.y.assign(workspace.y(rows).data, workspace.y(rows).data + rows * which.widths.back());
  return outcome;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(stack)

BOOST_AUTO_TEST_CASE_TEMPLATE(it_has_the_bits_of_its_layers, T, Elements) {
  std::vector<Case<T>> cases;
  for (Index width = 1; width <= 66; ++width)
    cases.push_back({{width, 67 - width, 1 + width % 5}, Activation::tanh, Activation::identity, width % 2 == 0});
  for (const Activation f : {Activation::identity, Activation::relu, Activation::sigmoid, Activation::tanh})
    for (const Activation last : {Activation::identity, Activation::sigmoid, Activation::tanh})
      cases.push_back({{5, 33, 17, 64, 3}, f, last, true});
  cases.push_back({{64, 64}, Activation::relu, Activation::relu, true});
  if constexpr (std::is_same_v<T, float>) {
    const std::vector<Case<T>> exact = cases;
    for (Case<T> which : exact) {
      which.precision = kernels::Precision::bfloat16;
      cases.push_back(which);
    }
  }
  for (const Case<T>& which : cases)
    for (const Index rows : {1, 2, 3, 7, 16, 17}) {
      const Outcome<T> one = run(which, rows, 1), two = run(which, rows, 2);
      BOOST_TEST_CONTEXT("widths from " << which.widths[0] << ", " << which.widths[1] << ", rows " << rows) {
        BOOST_TEST(same_bits(one.y, two.y));
        BOOST_TEST(same_bits(one.grads, two.grads));
        BOOST_TEST(one.loss.value == two.loss.value);
        BOOST_TEST((one.announced.all == two.announced.all));
        BOOST_TEST((one.announced.all == Range{0, std::ssize(one.grads)}));
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace pdnn::nn::testing
