// A layer called by itself gives what the network around it would: the same outputs and slopes, gradients added up,
// each slice of them announced once.
#include "pdnn/nn/layer_call.hpp"

#include <boost/test/unit_test.hpp>

#include "layer_check.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/network.hpp"

using namespace pdnn;
using namespace pdnn::nn;
using tests::Vector;

BOOST_AUTO_TEST_SUITE(nn_layer_call)

namespace {

constexpr Index kRows = 5;

LayerPtr<double> linear(Index inputs, Index outputs) {
  return std::make_shared<Linear<double>>(inputs, outputs, true, Init{}, Init{});
}

struct Slices : GradReady {
  void operator()(const Member&, Range slice) override { seen.push_back(slice); }
  std::vector<Range> seen;
};

/// A call with random parameters, and what its passes give.
struct Run {
  explicit Run(const LayerPtr<double>& layer, const Shape& in)
      : call(layer, in),
        params(tests::draw(Rng(1), call.params())),
        x(tests::draw(Rng(2), kRows * in.count())),
        dy(tests::draw(Rng(3), kRows * call.out().count())),
        y(dy.size()),
        dx(x.size()),
        saved(call.saved(kRows)) {}

  void forward(Rng key) {
    call.forward({.team = &alone, .key = key}, params, {}, saved.span(), {x.data(), kRows, call.in()},
                 {y.data(), kRows, call.out()});
  }
  void backward(Rng key, std::span<double> grads, GradReady* final = nullptr) {
    call.backward({.team = &alone, .key = key, .final = final}, params, {}, saved.span(), {x.data(), kRows, call.in()},
                  {y.data(), kRows, call.out()}, {dy.data(), kRows, call.out()}, {dx.data(), kRows, call.in()}, grads);
  }

  Member alone;
  LayerCall<double> call;
  Vector params, x, dy, y, dx;
  AlignedArray<double> saved;
};

}  // namespace

BOOST_AUTO_TEST_CASE(layers_called_one_by_one_equal_the_network_of_them) {
  const std::vector<LayerPtr<double>> layers{linear(4, 3),
                                             std::make_shared<ActivationLayer<double>>(kernels::Activation::tanh)};
  Run whole(std::make_shared<Network<double>>(layers), {4}), first(layers[0], {4}), second(layers[1], {3});
  Vector whole_grads(whole.params.size()), grads(first.params.size());
  whole.forward(Rng(7));
  whole.backward(Rng(7), whole_grads);
  first.params = whole.params;
  first.x = whole.x;
  first.forward(Rng(7));
  second.x = first.y;
  second.forward(Rng(7));
  second.dy = whole.dy;
  second.backward(Rng(7), {});
  first.dy = second.dx;
  first.backward(Rng(7), grads);
  BOOST_TEST(second.y == whole.y);
  BOOST_TEST(tests::relative_difference(first.dx, whole.dx) < 1e-15);
  BOOST_TEST(tests::relative_difference(grads, whole_grads) < 1e-15);
}

BOOST_AUTO_TEST_CASE(gradients_are_added_and_announced_once_falling) {
  const auto network = std::make_shared<Network<double>>(
      std::vector<LayerPtr<double>>{linear(4, 3), std::make_shared<Dropout<double>>(0.5),
                                    std::make_shared<Network<double>>(std::vector{linear(3, 2)})});
  for (const auto& [layer, slices] :
       {std::pair<LayerPtr<double>, std::vector<Range>>{network, {{15, 23}, {0, 15}}}, {linear(4, 3), {{0, 15}}}}) {
    Run run(layer, {4});
    Vector once(run.params.size()), twice(run.params.size());
    Slices final;
    run.forward(Rng(7));
    run.backward(Rng(7), once, &final);
    run.backward(Rng(7), twice);
    run.backward(Rng(7), twice);
    for (double& value : once) value *= 2;
    BOOST_TEST(tests::relative_difference(once, twice) < 1e-15);
    BOOST_TEST((final.seen == slices));
  }
}

BOOST_AUTO_TEST_CASE(samples_that_do_not_fit_are_refused) {
  BOOST_CHECK_THROW(LayerCall<double>(linear(4, 3), {5}), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
