// Every layer's backward pass against finite differences, for batches of any size and teams of any size; and wrong
// layers, which the check must catch.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "layer_check.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/channel_order.hpp"
#include "pdnn/nn/layers/conv2d.hpp"
#include "pdnn/nn/layers/curves.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/layer_norm.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/layers/pool2d.hpp"
#include "pdnn/nn/layers/residual.hpp"
#include "pdnn/nn/layers/softmax.hpp"
#include "pdnn/nn/layers/transpose.hpp"
#include "pdnn/nn/network.hpp"

namespace bdata = boost::unit_test::data;
using namespace pdnn;
using namespace pdnn::nn;
using kernels::Activation;
using tests::LayerRun;

BOOST_AUTO_TEST_SUITE(nn_layers)

namespace {

using Ptr = LayerPtr<double>;
constexpr double kTolerance = 1e-7;

struct Case {
  const char* name;
  Ptr layer;
  Shape in;
};

Ptr linear(Index inputs, Index outputs, bool bias = true) {
  return std::make_shared<Linear<double>>(inputs, outputs, bias, Init{}, Init{});
}
Ptr conv(Index inputs, Index outputs, Index kernel, Index stride = 1, Index padding = 0, bool bias = true) {
  return std::make_shared<Conv2d<double>>(inputs, outputs, WindowOptions{kernel, stride, padding}, bias, Init{},
                                          Init{});
}
Ptr conv_in_groups(Index groups, Index inputs, Index outputs, const WindowOptions& options) {
  return std::make_shared<Conv2d<double>>(inputs, outputs, options, true, Init{}, Init{}, kernels::Precision::full,
                                          groups);
}
/// Windows on lines.
WindowOptions along(Index kernel, Index stride, Index padding = 0, Index dilation = 1) {
  return {{1, kernel}, {1, stride}, {0, padding}, {1, dilation}, true};
}
Ptr max_pool(Index kernel, Index stride) { return std::make_shared<MaxPool2d<double>>(WindowOptions{kernel, stride}); }
Ptr mean_pool(Index kernel, Index stride) { return std::make_shared<AvgPool2d<double>>(WindowOptions{kernel, stride}); }
Ptr flatten() { return std::make_shared<Flatten<double>>(); }
Ptr activation(Activation function) { return std::make_shared<ActivationLayer<double>>(function); }
/// With an eps at which the gradient of a batch of two is not almost 0.
Ptr batch_norm(Index channels, bool images = false, bool sync = false) {
  const BatchNorm<double>::Options options{.channels = channels, .images = images, .eps = 0.5, .sync = sync};
  return std::make_shared<BatchNorm<double>>(options);
}
Ptr residual(Ptr f) { return std::make_shared<Residual<double>>(std::move(f)); }
Ptr network(std::vector<Ptr> layers) { return std::make_shared<Network<double>>(std::move(layers)); }

std::vector<Case> cases() {
  return {
      {"Linear", linear(7, 5), {7}},
      {"Linear without bias", linear(3, 11, false), {3}},
      {"ReLU", activation(Activation::relu), {13}},
      {"Sigmoid", activation(Activation::sigmoid), {2, 3, 4}},
      {"Tanh", activation(Activation::tanh), {13}},
      {"Softmax", std::make_shared<Softmax<double>>(false), {10}},
      {"LogSoftmax", std::make_shared<Softmax<double>>(true), {10}},
      {"Flatten", flatten(), {2, 3, 4}},
      {"Conv2d", conv(2, 3, 3), {2, 5, 4}},
      {"Conv2d with stride and padding", conv(9, 5, 3, 2, 1, false), {9, 4, 3}},
      {"Conv2d of one weight a channel, fewer than members of a team", conv(1, 5, 1), {1, 5, 4}},
      {"Conv2d of one pixel", conv(3, 17, 3, 1, 1), {3, 1, 1}},
      {"Conv2d of unequal windows", conv_in_groups(1, 2, 3, {{3, 2}, {1, 2}, {2, 0}}), {2, 5, 7}},
      {"Conv2d dilated", conv_in_groups(1, 2, 5, {3, {2, 1}, 2, {2, 3}}), {2, 6, 8}},
      {"Conv2d in groups", conv_in_groups(2, 6, 4, {3, 1, 1}), {6, 4, 5}},
      {"Conv2d of each channel", conv_in_groups(19, 19, 19, {{3, 2}, {1, 2}, 1, {1, 2}}), {19, 4, 7}},
      {"Conv1d", conv_in_groups(1, 3, 4, along(3, 2, 1)), {3, 9}},
      {"Conv1d dilated, of each channel", conv_in_groups(5, 5, 5, along(3, 1, 2, 2)), {5, 8}},
      {"fused Conv1d, MaxPool1d and ReLU",
       network({conv_in_groups(1, 2, 5, along(3, 1)), std::make_shared<MaxPool2d<double>>(along(2, 2)),
                activation(Activation::relu), flatten(), linear(15, 2)}),
       {2, 9}},
      {"AvgPool1d", std::make_shared<AvgPool2d<double>>(along(3, 2)), {4, 8}},
      {"AdaptiveAvgPool1d", std::make_shared<GlobalAvgPool2d<double>>(true), {4, 7}},
      {"MaxPool2d of unequal windows", std::make_shared<MaxPool2d<double>>(WindowOptions{{2, 3}, {2, 1}}), {3, 5, 4}},
      {"AvgPool2d of unequal windows", std::make_shared<AvgPool2d<double>>(WindowOptions{{1, 3}, {2, 3}}), {3, 5, 6}},
      {"MaxPool2d", max_pool(2, 2), {3, 5, 4}},
      {"MaxPool2d, overlapping", max_pool(3, 2), {2, 7, 5}},
      {"MaxPool2d, padded", std::make_shared<MaxPool2d<double>>(WindowOptions{3, 2, 1}), {2, 6, 5}},
      {"AvgPool2d, padded", std::make_shared<AvgPool2d<double>>(WindowOptions{{3, 2}, 1, {1, 0}}), {2, 6, 5}},
      {"AvgPool2d", mean_pool(2, 2), {3, 4, 4}},
      {"AvgPool2d, overlapping", mean_pool(3, 2), {2, 6, 7}},
      {"AdaptiveAvgPool2d", std::make_shared<GlobalAvgPool2d<double>>(), {5, 3, 4}},
      {"channels last", std::make_shared<ChannelOrder<double>>(ChannelOrder<double>::To::last), {3, 2, 4}},
      {"channels first", std::make_shared<ChannelOrder<double>>(ChannelOrder<double>::To::first), {3, 2, 4}},
      {"Transpose", std::make_shared<Transpose<double>>(), {3, 8}},
      {"Transpose between layers",
       network({conv_in_groups(1, 3, 4, along(3, 1)), std::make_shared<Transpose<double>>(),
                conv_in_groups(1, 6, 2, along(2, 1)), flatten(), linear(6, 2)}),
       {3, 8}},
      {"fused MaxPool2d and ReLU", network({max_pool(2, 2), activation(Activation::relu)}), {3, 4, 5}},
      {"MaxPool2d as large as its winners' bytes, and ReLU",
       network({max_pool(16, 1), activation(Activation::relu)}),
       {1, 16, 16}},
      {"fused Conv2d, MaxPool2d and ReLU",
       network({conv(2, 3, 3), max_pool(2, 2), activation(Activation::relu)}),
       {2, 6, 5}},
      {"fused Conv2d and MaxPool2d", network({conv(2, 3, 3, 1, 1, false), max_pool(2, 1), flatten()}), {2, 4, 4}},
      {"fused Conv2d and ReLU", network({conv(2, 3, 3), activation(Activation::relu)}), {2, 4, 4}},
      {"a view between layers",
       network({max_pool(1, 1), flatten(), activation(Activation::tanh), flatten(), linear(6, 2)}),
       {1, 2, 3}},
      {"convolutional network",
       network({conv(3, 4, 3, 1, 1), max_pool(2, 2), activation(Activation::relu), conv(4, 5, 2),
                activation(Activation::relu), network({conv(5, 5, 3, 1, 1), activation(Activation::tanh)}), flatten(),
                linear(20, 4)}),
       {3, 6, 6}},
      {"Dropout", std::make_shared<Dropout<double>>(0.4), {17}},
      {"LeakyReLU", std::make_shared<LeakyReLU<double>>(0.2), {13}},
      {"LeakyReLU of a slope that turns around", std::make_shared<LeakyReLU<double>>(-0.5), {13}},
      {"GELU", std::make_shared<CurveLayer<double>>("GELU"), {2, 3, 4}},
      {"SiLU", std::make_shared<CurveLayer<double>>("SiLU"), {2, 3, 4}},
      {"ELU", std::make_shared<CurveLayer<double>>("ELU", 0.7), {2, 3, 4}},
      {"Softplus", std::make_shared<CurveLayer<double>>("Softplus", 1.7, 0.9), {2, 3, 4}},
      {"LayerNorm", std::make_shared<LayerNorm<double>>(11, 0.5), {11}},
      {"Residual of one layer", residual(linear(5, 5)), {5}},
      {"BatchNorm1d", batch_norm(19), {19}},
      {"BatchNorm1d of lines", batch_norm(3), {3, 7}},
      {"BatchNorm2d", batch_norm(3, true), {3, 4, 5}},
      {"synchronized BatchNorm1d, alone", batch_norm(5, false, true), {5}},
      {"fused BatchNorm1d and ReLU", network({batch_norm(7), activation(Activation::relu)}), {7}},
      {"fused Linear and Sigmoid", network({linear(6, 4), activation(Activation::sigmoid)}), {6}},
      {"Linear, Tanh, Linear", network({linear(6, 9), activation(Activation::tanh), linear(9, 3)}), {6}},
      {"Linear, BatchNorm1d, ReLU, Linear",
       network({linear(6, 9), batch_norm(9), activation(Activation::relu), linear(9, 3)}),
       {6}},
      {"residuals that end in a ReLU, one in the other, and a norm each",
       network({linear(6, 7),
                residual(network({batch_norm(7),
                                  residual(network({linear(7, 7), std::make_shared<LayerNorm<double>>(7, 0.5),
                                                    activation(Activation::relu)})),
                                  activation(Activation::relu)})),
                residual(std::make_shared<CurveLayer<double>>("GELU")), linear(7, 3)}),
       {6}},
      {"a network of no layers", network({}), {2, 3, 4}},
      {"a residual of no layers", residual(network({})), {5}},
      {"networks of no layers between others",
       network({network({}), linear(6, 5), network({}), activation(Activation::tanh), residual(network({})),
                linear(5, 3), network({network({})})}),
       {6}},
      {"images, views, dropout and an inner network",
       network({flatten(), linear(12, 8), activation(Activation::relu), std::make_shared<Dropout<double>>(0.3),
                network({linear(8, 8), activation(Activation::tanh)}), activation(Activation::sigmoid),
                linear(8, 4, false), std::make_shared<Softmax<double>>(true)}),
       {1, 3, 4}},
  };
}

class WrongLinear : public Linear<double> {
 public:
  using Linear::Linear;
  void backward(const Pass& pass, Vars<double> vars, Tensor<const double> x, Tensor<const double> y,
                Tensor<const double> dy, Tensor<double> dx, std::span<double> grads) const override {
    Linear::backward(pass, vars, x, y, dy, dx, grads);
    grads[0] *= 1.001;
  }
};

class WrongSigmoid : public ActivationLayer<double> {
 public:
  WrongSigmoid() : ActivationLayer(Activation::sigmoid) {}
  void backward(const Pass&, Vars<double>, Tensor<const double>, Tensor<const double>, Tensor<const double> dy,
                Tensor<double> dx, std::span<double>) const override {
    std::copy_n(dy.data, dy.count(), dx.data);  // forgets the slope
  }
};

class WrongBatchNorm : public BatchNorm<double> {
 public:
  WrongBatchNorm() : BatchNorm({.channels = 4, .images = false}) {}
  void backward(const Pass& pass, Vars<double> vars, Tensor<const double> x, Tensor<const double> y,
                Tensor<const double> dy, Tensor<double> dx, std::span<double> grads) const override {
    Pass constant = pass;
    constant.training = false;  // takes the batch's moments for constants
    const std::span<const double> moments = vars.saved;
    BatchNorm::backward(constant, {vars.params, moments.first(8), vars.saved, vars.scratch}, x, y, dy, dx, grads);
  }
};

class WrongLayerNorm : public LayerNorm<double> {
 public:
  WrongLayerNorm() : LayerNorm(4, 0.5) {}
  void backward(const Pass& pass, Vars<double> vars, Tensor<const double> x, Tensor<const double> y,
                Tensor<const double> dy, Tensor<double> dx, std::span<double> grads) const override {
    for (Index r = 0; r < x.batch; ++r) vars.saved[static_cast<std::size_t>(2 * r)] = 0;  // forgets the means
    LayerNorm::backward(pass, vars, x, y, dy, dx, grads);
  }
};

class WrongGELU : public CurveLayer<double> {
 public:
  WrongGELU() : CurveLayer("GELU") {}
  void backward(const Pass& pass, Vars<double> vars, Tensor<const double>, Tensor<const double> y,
                Tensor<const double> dy, Tensor<double> dx, std::span<double> grads) const override {
    CurveLayer::backward(pass, vars, y, y, dy, dx, grads);  // takes the slope at y
  }
};

/// Whose inner ReLU is shown the sum instead of its own output.
class WrongResidual : public Layer<double> {
 public:
  std::string_view name() const override { return "WrongResidual"; }
  void forward(const Pass& pass, Vars<double> vars, Tensor<const double> x, Tensor<double> y) const override {
    relu_.forward(pass, vars, x, y);
    for (Index i = 0; i < x.count(); ++i) y.data[i] += 3 + x.data[i];
  }
  void backward(const Pass& pass, Vars<double> vars, Tensor<const double> x, Tensor<const double> y,
                Tensor<const double> dy, Tensor<double> dx, std::span<double> grads) const override {
    relu_.backward(pass, vars, x, y, dy, dx, grads);
    for (Index i = 0; i < x.count(); ++i) dx.data[i] += dy.data[i];
  }

 private:
  ActivationLayer<double> relu_{Activation::relu};
};

}  // namespace

BOOST_AUTO_TEST_CASE(backward_matches_finite_differences, *boost::unit_test::label("serial")) {
  for (const Case& test : cases())
    for (const Index rows : {1, 2, 5}) {
      LayerRun run(test.layer, test.in, rows);
      BOOST_TEST(run.gradient_error() <= kTolerance, test.name << ", " << rows << " rows: " << run.gradient_error());
    }
}

BOOST_AUTO_TEST_CASE(backward_matches_finite_differences_when_evaluating, *boost::unit_test::label("serial")) {
  for (const Case& test : cases()) BOOST_TEST(LayerRun(test.layer, test.in, 3, false).gradient_error() <= kTolerance);
}

BOOST_AUTO_TEST_CASE(the_check_catches_wrong_layers) {
  BOOST_TEST(LayerRun(std::make_shared<WrongBatchNorm>(), {4}, 3).gradient_error() > 1e-5);
  BOOST_TEST(LayerRun(std::make_shared<WrongLayerNorm>(), {4}, 3).gradient_error() > 1e-5);
  BOOST_TEST(LayerRun(std::make_shared<WrongGELU>(), {4}, 3).gradient_error() > 1e-5);
  BOOST_TEST(LayerRun(std::make_shared<WrongResidual>(), {4}, 3).gradient_error() > 1e-5);
  BOOST_TEST(LayerRun(std::make_shared<WrongLinear>(4, 3, true, Init{}, Init{}), {4}, 3).gradient_error() > 1e-5);
  BOOST_TEST(LayerRun(std::make_shared<WrongSigmoid>(), {4}, 3).gradient_error() > 1e-5);
}

BOOST_AUTO_TEST_CASE(gradients_are_added_to_on_request) {
  for (const Case& test : cases()) {
    LayerRun run(test.layer, test.in, 4);
    run.forward();
    run.backward();
    tests::Vector twice = run.grads;
    for (double& value : twice) value *= 2;
    run.backward({}, true);
    BOOST_TEST(tests::relative_difference(run.grads, twice) <= 1e-14);
  }
}

BOOST_AUTO_TEST_CASE(gradients_do_not_depend_on_whether_dx_is_wanted) {
  for (const Case& test : cases()) {
    LayerRun run(test.layer, test.in, 4);
    run.forward();
    run.backward();
    const tests::Vector wanted = run.grads;
    run.grads.assign(run.grads.size(), 0);
    run.backward({}, false, false);
    BOOST_TEST(run.grads == wanted, boost::test_tools::per_element());
  }
}

BOOST_DATA_TEST_CASE(the_size_of_a_team_changes_no_bit, bdata::make({2, 3, 4}), size) {
  for (const Case& test : cases())
    for (const Index rows : {0, 1, 5}) {
      LayerRun alone(test.layer, test.in, rows), shared(test.layer, test.in, rows);
      alone.forward();
      alone.backward();
      threads::Team team(size);
      team.run([&](const Member& member) {
        shared.forward(member);
        shared.backward(member);
      });
      BOOST_TEST(shared.y == alone.y, boost::test_tools::per_element());
      BOOST_TEST(shared.dx == alone.dx, boost::test_tools::per_element());
      BOOST_TEST(shared.grads == alone.grads, boost::test_tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE(an_elementwise_layer_makes_each_element_of_the_same_one_and_has_no_parameters) {
  for (const Case& test : cases()) {
    LayerRun run(test.layer, test.in, 2);
    if (!run.traits().elementwise) continue;
    BOOST_TEST(run.params.empty(), test.name);
    run.forward();
    const tests::Vector before = run.y;
    run.x[1] += 3;
    run.forward();
    run.y[1] = before[1];
    BOOST_TEST(run.y == before, test.name);
  }
}

BOOST_AUTO_TEST_CASE(a_part_of_a_batch_is_that_part_of_the_whole_and_leaves_are_added_up_by_their_tree) {
  constexpr Index kRows = 11, kLeaves = 4;
  const auto sum = [](const tests::Vector& a, const tests::Vector& b) {
    tests::Vector both = a;
    for (std::size_t i = 0; i < b.size(); ++i) both[i] += b[i];
    return both;
  };
  for (const Case& test : cases()) {
    LayerRun whole(test.layer, test.in, kRows);
    if (whole.traits().own_statistics || whole.traits().synchronized) continue;  // which see a batch as one
    whole.cut({kLeaves, kRows, {0, kLeaves}});
    whole.forward();
    whole.backward();
    const auto part = [&](Range leaves) {
      const Leaves own{kLeaves, kRows, leaves};
      const Range rows = own.rows();
      LayerRun run(test.layer, test.in, rows.size());
      run.cut(own);
      const auto of_rows = [&](const tests::Vector& all) {
        const auto width = std::ssize(all) / kRows;
        return tests::Vector(all.begin() + rows.begin * width, all.begin() + rows.end * width);
      };
      run.x = of_rows(whole.x);
      run.dy = of_rows(whole.dy);
      run.forward();
      run.backward();
      BOOST_TEST(run.y == of_rows(whole.y), test.name);
      BOOST_TEST(run.dx == of_rows(whole.dx), test.name);
      return std::pair(run.grads, run.more_nodes);
    };
    const auto leaf = [&](Index number) { return part({number, number + 1}).first; };
    const tests::Vector right = sum(leaf(2), leaf(3));
    BOOST_TEST(whole.grads == sum(sum(leaf(0), leaf(1)), right), test.name);
    const auto [first, second] = part({1, kLeaves});
    BOOST_TEST(first == leaf(1), test.name);
    BOOST_TEST(second == right, test.name);
  }
}

// More samples than blocks, fewer, and none.
BOOST_AUTO_TEST_CASE(a_convolution_and_its_pooling_in_blocks_are_the_layers_one_by_one) {
  const Ptr convolution = conv(2, 5, 3, 1, 1), pooling = max_pool(2, 2), relu = activation(Activation::relu);
  for (const Index rows : {0, 3, 16, 37}) {
    LayerRun blocks(network({convolution, pooling, relu}), {2, 6, 6}, rows);
    LayerRun plain(network({network({convolution}), network({pooling}), network({relu})}), {2, 6, 6}, rows);
    for (LayerRun* run : {&blocks, &plain}) {
      run->forward();
      run->backward();
    }
    BOOST_TEST(tests::relative_difference(blocks.y, plain.y) <= 1e-14);
    BOOST_TEST(tests::relative_difference(blocks.dx, plain.dx) <= 1e-14);
    BOOST_TEST(tests::relative_difference(blocks.grads, plain.grads) <= 1e-14);
    for (const int size : {2, 3, 20}) {
      LayerRun shared(network({convolution, pooling, relu}), {2, 6, 6}, rows);
      threads::Team(size).run([&](const Member& member) {
        shared.forward(member);
        shared.backward(member);
      });
      BOOST_TEST(shared.y == blocks.y);
      BOOST_TEST(shared.dx == blocks.dx);
      BOOST_TEST(shared.grads == blocks.grads);
    }
  }
}

BOOST_AUTO_TEST_CASE(fusion_changes_no_value_beyond_rounding) {
  const Ptr first = linear(6, 9), f = activation(Activation::tanh), second = linear(9, 3);
  LayerRun fused(network({first, f, second}), {6}, 5);
  fused.forward();
  fused.backward();
  // An inner network of one layer hides each from the fusion.
  LayerRun plain(network({network({first}), network({f}), network({second})}), {6}, 5);
  plain.forward();
  plain.backward();
  BOOST_TEST(tests::relative_difference(fused.grads, plain.grads) <= 1e-14);
  BOOST_TEST(tests::relative_difference(fused.dx, plain.dx) <= 1e-14);
}

BOOST_AUTO_TEST_CASE(a_relu_fused_into_batch_norm_changes_no_bit) {
  const Ptr norm = batch_norm(7), relu = activation(Activation::relu);
  LayerRun fused(network({norm, relu}), {7}, 9), plain(network({network({norm}), network({relu})}), {7}, 9);
  for (LayerRun* run : {&fused, &plain}) {
    run->forward();
    run->backward();
    run->commit();
  }
  BOOST_TEST(fused.y == plain.y, boost::test_tools::per_element());
  BOOST_TEST(fused.dx == plain.dx, boost::test_tools::per_element());
  BOOST_TEST(fused.grads == plain.grads, boost::test_tools::per_element());
  BOOST_TEST(fused.buffers == plain.buffers, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(each_slice_is_announced_final_once_and_falling) {
  for (const Case& test : cases()) {
    if (!test.layer->bind(test.in)) continue;  // a composite's own business
    struct Record : GradReady {
      std::vector<Range> slices;
      void operator()(const Member&, Range slice) override { slices.push_back(slice); }
    } record;
    LayerRun run(test.layer, test.in, 3);
    run.forward();
    run.backward({}, false, false, &record);
    Index top = static_cast<Index>(run.params.size());
    for (const Range& slice : record.slices) {
      BOOST_TEST(slice.end == top, test.name);
      top = slice.begin;
    }
    BOOST_TEST(top == 0, test.name);
  }
}

BOOST_AUTO_TEST_CASE(dropout_masks_depend_on_the_row_in_the_global_batch_only) {
  const Dropout<double> dropout(0.5);
  const tests::Vector x(40, 1.0);
  const Member alone;
  const auto run = [&](Index first_row, Index rows) {
    tests::Vector y(static_cast<std::size_t>(rows * 5));
    const Pass pass{.team = &alone, .training = true, .key = Rng(9), .first_row = first_row};
    dropout.forward(pass, {}, {x.data(), rows, {5}}, {y.data(), rows, {5}});
    return y;
  };
  const tests::Vector whole = run(0, 8), part = run(3, 5);
  BOOST_TEST(std::vector(whole.begin() + 15, whole.end()) == part, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(dropout_on_some_of_the_columns_has_the_mask_of_all) {
  const Index rows = 6, columns = 11;
  const tests::Vector x(static_cast<std::size_t>(rows * columns), 1.0);
  const Member alone;
  const Pass pass{.team = &alone, .training = true, .key = Rng(9), .first_row = 3};
  tests::Vector whole(x.size()), joined(x.size());
  Dropout<double>(0.4).forward(pass, {}, {x.data(), rows, {columns}}, {whole.data(), rows, {columns}});
  for (const Range& range : {Range{0, 4}, Range{4, 4}, Range{4, 11}}) {
    tests::Vector part(static_cast<std::size_t>(rows * range.size()));
    Dropout<double>(0.4, range.begin, columns)
        .forward(pass, {}, {x.data(), rows, {range.size()}}, {part.data(), rows, {range.size()}});
    for (Index row = 0; row < rows; ++row)
      std::copy_n(part.data() + row * range.size(), range.size(), joined.data() + row * columns + range.begin);
  }
  BOOST_TEST(joined == whole, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(batch_norm_has_its_moments_and_its_running_statistics_move_towards_them) {
  const Index rows = 21, channels = 3, pixels = 4;
  const auto layer = std::make_shared<BatchNorm<double>>(BatchNorm<double>::Options{.channels = 3, .images = true});
  LayerRun run(layer, {channels, 2, 2}, rows);
  const tests::Vector before = run.buffers;
  run.forward();
  run.commit();
  const double count = static_cast<double>(rows * pixels);
  for (Index c = 0; c < channels; ++c) {
    double mean = 0, var = 0;
    const auto x = [&](Index i) { return run.x[static_cast<std::size_t>(i * channels + c)]; };
    for (Index i = 0; i < rows * pixels; ++i) mean += x(i) / count;
    for (Index i = 0; i < rows * pixels; ++i) var += (x(i) - mean) * (x(i) - mean) / count;
    const auto m = static_cast<std::size_t>(c), v = static_cast<std::size_t>(channels + c);
    const auto near = boost::test_tools::tolerance(1e-13);
    BOOST_TEST(run.y[m] == (run.x[m] - mean) / std::sqrt(var + 1e-5) * run.params[m] + run.params[v], near);
    BOOST_TEST(run.buffers[m] == 0.9 * before[m] + 0.1 * mean, near);
    BOOST_TEST(run.buffers[v] == 0.9 * before[v] + 0.1 * var * count / (count - 1), near);
  }
}

BOOST_AUTO_TEST_CASE(batch_norm_of_one_value_or_none_has_no_variance_and_leaves_its_buffers_alone) {
  for (const Index rows : {0, 1}) {
    LayerRun run(batch_norm(3), {3}, rows);
    const tests::Vector before = run.buffers, beta(run.params.begin() + 3, run.params.end());
    run.forward();
    run.backward();
    run.commit();
    BOOST_TEST(run.buffers == before, boost::test_tools::per_element());
    if (rows == 1) BOOST_TEST(run.y == beta, boost::test_tools::per_element());
    for (const double slope : run.dx) BOOST_TEST(slope == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_network_commits_each_layers_buffers_in_their_place) {
  const Ptr first = batch_norm(6), second = batch_norm(4);
  LayerRun whole(network({first, linear(6, 4), network({second, activation(Activation::relu)})}), {6}, 5);
  BOOST_TEST(whole.buffers.size() == 20);
  const tests::Vector before = whole.buffers;
  whole.forward();
  whole.commit();
  LayerRun alone(first, {6}, 5);
  alone.x = whole.x;
  alone.buffers.assign(before.begin(), before.begin() + 12);
  alone.forward();
  alone.commit();
  for (std::size_t i = 0; i < 20; ++i) BOOST_TEST(whole.buffers[i] != before[i]);
  BOOST_TEST(std::vector(whole.buffers.begin(), whole.buffers.begin() + 12) == alone.buffers,
             boost::test_tools::per_element());
}

// What no backward pass will ask for lies in two places, turn by turn: as many elements as forward_sizes() says.
BOOST_AUTO_TEST_CASE(a_pass_that_only_goes_forward_changes_no_bit) {
  for (const Case& test : cases())
    for (const Index rows : {0, 1, 5}) {
      const auto inner = std::dynamic_pointer_cast<const Network<double>>(test.layer);
      const auto whole = Network<double>(inner ? inner->layers() : std::vector<Ptr>{test.layer}).bound(test.in);
      const tests::Vector params = tests::draw(Rng(1), total(whole->parameters()));
      tests::Vector buffers = tests::draw(Rng(5), total(whole->buffers()));
      for (double& value : buffers) value = std::abs(value);  // variances
      const tests::Vector x = tests::draw(Rng(2), rows * test.in.count());
      const Shape out = whole->output_shape(test.in);
      const auto outputs = [&](const Sizes& sizes, bool forward_only, int size) {
        tests::Vector y(static_cast<std::size_t>(rows * out.count()));
        AlignedArray<double> saved(sizes.saved + rows * sizes.saved_row),
            scratch(sizes.scratch + rows * sizes.scratch_row);
        threads::Team team(size);
        team.run([&](const Member& member) {
          whole->forward({.team = &member, .training = false, .forward_only = forward_only},
                         {params, buffers, saved.span(), scratch.span()}, {x.data(), rows, test.in},
                         {y.data(), rows, out});
        });
        return y;
      };
      const tests::Vector want = outputs(whole->sizes(test.in), false, 1);
      BOOST_TEST(outputs(whole->forward_sizes(), true, 1) == want, boost::test_tools::per_element());
      BOOST_TEST(outputs(whole->forward_sizes(), true, 3) == want, boost::test_tools::per_element());
    }
}

// Outside, images have their channels first: whole networks turn them at both ends, and only where that changes memory.
BOOST_AUTO_TEST_CASE(a_whole_network_takes_and_gives_channels_first) {
  const auto forward = [](const Layer<double>& layer, const Shape& in, const tests::Vector& x) {
    const Shape out = layer.output_shape(in);
    const Index rows = static_cast<Index>(x.size()) / in.count();
    tests::Vector y(static_cast<std::size_t>(rows * out.count()));
    const Sizes sizes = layer.sizes(in);
    AlignedArray<double> saved(sizes.saved + rows * sizes.saved_row), scratch(sizes.scratch + rows * sizes.scratch_row);
    const Member alone;
    layer.forward({.team = &alone}, {{}, {}, saved.span(), scratch.span()}, {x.data(), rows, in},
                  {y.data(), rows, out});
    return y;
  };
  const Network<double> pool({max_pool(1, 1), max_pool(1, 1)}), flat({max_pool(1, 1), flatten()}), view({flatten()}),
      inner({network({flatten()})}), nothing({}), nested({network({})});
  const tests::Vector x = tests::draw(Rng(3), 2 * 24);
  for (const Shape& in : {Shape{2, 3, 4}, Shape{1, 6, 4}, Shape{24, 1, 1}})
    for (const Network<double>* whole : {&pool, &flat, &view, &inner, &nothing, &nested})
      BOOST_TEST(forward(*whole->bound(in), in, x) == x, boost::test_tools::per_element());
  const tests::Vector last = forward(*view.bind({2, 3, 4}), {2, 3, 4}, x);  // a part takes channels last
  BOOST_TEST(last[1] == x[2]);
  BOOST_TEST(last[12] == x[1]);
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused_with_both_sides) {
  const auto says = [](const char* text) {
    return [text](const ValueError& error) { return std::string(error.what()).find(text) != std::string::npos; };
  };
  BOOST_CHECK_EXCEPTION(linear(4, 2)->output_shape({3}), ValueError, says("input has 3 features, this layer takes 4"));
  BOOST_CHECK_EXCEPTION(linear(4, 2)->output_shape({1, 2, 2}), ValueError, says("nn.Flatten()"));
  BOOST_CHECK_EXCEPTION(batch_norm(4)->output_shape({3}), ValueError, says("input has 3 features, this layer takes 4"));
  BOOST_CHECK_EXCEPTION(batch_norm(4)->output_shape({4, 2, 2}), ValueError, says("use BatchNorm2d"));
  BOOST_CHECK_EXCEPTION(batch_norm(4, true)->output_shape({4}), ValueError, says("use BatchNorm1d"));
  BOOST_CHECK_EXCEPTION(conv(2, 4, 3)->output_shape({3, 8, 8}), ValueError,
                        says("input 3x8x8 has 3 channels, this layer takes 2"));
  BOOST_CHECK_EXCEPTION(conv(1, 4, 5)->output_shape({1, 3, 3}), ValueError,
                        says("kernel 5 does not fit input 1x3x3 with padding 0"));
  BOOST_CHECK_EXCEPTION(conv(1, 4, 5)->output_shape({9}), ValueError, says("(channels, height, width)"));
  BOOST_CHECK_EXCEPTION(conv_in_groups(1, 1, 4, {{2, 3}, 1, {0, 1}, {4, 1}})->output_shape({1, 4, 4}), ValueError,
                        says("kernel 2x3 does not fit input 1x4x4 with padding 0x1 and dilation 4x1"));
  BOOST_CHECK_EXCEPTION(conv_in_groups(1, 1, 4, along(5, 1))->output_shape({1, 3}), ValueError,
                        says("Conv1d: kernel 5 does not fit input 1x3 with padding 0;"));
  BOOST_CHECK_EXCEPTION(conv_in_groups(1, 1, 4, along(5, 1))->output_shape({9}), ValueError,
                        says("(channels, length)"));
  BOOST_CHECK_EXCEPTION(conv_in_groups(4, 6, 8, {3}), ValueError, says("4 groups do not divide 6 input"));
  BOOST_CHECK_EXCEPTION(max_pool(17, 1), ValueError, says("at most 256 elements"));
  BOOST_CHECK_EXCEPTION(max_pool(2, 0), ValueError, says("stride 0"));
  BOOST_CHECK_EXCEPTION(residual(linear(4, 2))->output_shape({4}), ValueError, says("makes 2 of 4"));
  BOOST_CHECK_EXCEPTION(LayerNorm<double>(4, 1e-5).output_shape({3}), ValueError, says("input has 3 features"));
  BOOST_CHECK_EXCEPTION(Dropout<double>(1.0), ValueError, says("[0, 1)"));
}

BOOST_AUTO_TEST_CASE(initial_values_depend_on_the_place_of_a_layer_only) {
  const Init uniform{Init::Kind::uniform, 1};
  const auto make = [&](Index outputs) { return std::make_shared<Linear<double>>(4, outputs, true, uniform, uniform); };
  const Network<double> small({make(3), make(2)}), large({make(7), make(2)});
  tests::Vector a(static_cast<std::size_t>(total(small.parameters()))),
      b(static_cast<std::size_t>(total(large.parameters())));
  small.initialize(Rng(5), a, {});
  large.initialize(Rng(5), b, {});
  BOOST_TEST(std::vector(a.end() - 10, a.end()) == std::vector(b.end() - 10, b.end()),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
