// Eigen, a library of linear algebra by others, as an oracle: products, backpropagation, batch normalization. It always
// computes in double, and reads our memory through its maps.
#include <Eigen/Core>
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "kernels/support.hpp"
#include "layer_check.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/model.hpp"
#include "random_rounds.hpp"

namespace pdnn::nn {
namespace {

using kernels::Activation;
using kernels::testing::numbers;
using Elements = boost::mpl::list<float, double>;

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Dense = RowMajor<double>;

/// What lies in our memory, in double.
template <class T>
Dense seen(const T* values, Index rows, Index cols) {
  return Eigen::Map<const RowMajor<T>>(values, rows, cols).template cast<double>();
}

/// Whether both are the same to `bound` roundings of numbers as large as the largest expected.
template <class T>
void check_close(const char* what, const Dense& got, const Dense& expected, double bound) {
  BOOST_TEST_REQUIRE(got.size() == expected.size());
  if (expected.size() == 0) return;
  const double error = (got - expected).cwiseAbs().maxCoeff();
  const double unit = std::numeric_limits<T>::epsilon() * std::max(1.0, expected.cwiseAbs().maxCoeff());
  BOOST_TEST(error <= bound * unit, what << " of " << expected.rows() << " x " << expected.cols() << " is off by "
                                         << error / unit << " roundings");
}

template <class T>
void check_products(Index batch, Index inputs, Index outputs) {
  const std::vector<T> x = numbers<T>(batch * inputs, 1), w = numbers<T>(inputs * outputs, 2);
  const std::vector<T> b = numbers<T>(outputs, 3), dy = numbers<T>(batch * outputs, 4);
  const Dense in = seen(x.data(), batch, inputs), weight = seen(w.data(), inputs, outputs);
  const Dense out = seen(dy.data(), batch, outputs), in_turned = in.transpose(), weight_turned = weight.transpose();
  const Dense expected_y = (in * weight).rowwise() + seen(b.data(), 1, outputs).row(0);
  const Dense expected_dx = out * weight_turned, expected_dw = in_turned * out;
  std::vector<T> y(dy.size()), dx(x.size()), dw(w.size());
  kernels::testing::for_each_isa<T>([&](const kernels::Table<T>& table) {
    kernels::testing::as_team(3, [&](Part part) {
      table.product_nn(part, {x.data(), batch, inputs}, {w.data(), inputs, outputs}, b.data(), Activation::identity,
                       {y.data(), batch, outputs});
      table.product_nt(part, {dy.data(), batch, outputs}, {w.data(), inputs, outputs}, Activation::identity,
                       {x.data(), batch, inputs}, {dx.data(), batch, inputs});
      table.product_tn(part, {x.data(), batch, inputs}, {dy.data(), batch, outputs}, {}, false,
                       {dw.data(), inputs, outputs}, nullptr);
    });
    check_close<T>("x w + b", seen(y.data(), batch, outputs), expected_y, static_cast<double>(inputs + 4));
    check_close<T>("dy wT", seen(dx.data(), batch, inputs), expected_dx, static_cast<double>(outputs + 4));
    check_close<T>("xT dy", seen(dw.data(), inputs, outputs), expected_dw, static_cast<double>(batch + 4));
  });
}

/// A Linear's parameters as they lie in a flat array: w [inputs, outputs], then b.
template <class T>
struct LinearSeen {
  LinearSeen(const T*& values, Index inputs, Index outputs)
      : w(seen(values, inputs, outputs)), b(seen(values + inputs * outputs, 1, outputs)) {
    values += (inputs + 1) * outputs;
  }
  Dense w, b;
};

BOOST_AUTO_TEST_SUITE(eigen)

BOOST_AUTO_TEST_CASE_TEMPLATE(its_products_are_ours, T, Elements) {
  check_products<T>(1, 1, 1);
  check_products<T>(105, 129, 257);
  tests::random_rounds(20, [](tests::Draw& draw) {
    check_products<T>(draw(0, draw.once_in(4) ? 200 : 30), draw(0, draw.once_in(4) ? 150 : 30),
                      draw(0, draw.once_in(4) ? 150 : 30));
  });
}

// Linear, sigmoid, Linear, tanh, Linear and cross-entropy, whose layers we fuse, by the formulas of docs/backprop.md.
BOOST_AUTO_TEST_CASE_TEMPLATE(its_backpropagation_is_ours, T, Elements) {
  constexpr Index batch = 23, inputs = 31, first = 17, second = 9, outputs = 5;
  const auto linear = [](Index from, Index to) {
    return std::make_shared<Linear<T>>(from, to, true, Init{Init::Kind::uniform, 0.5}, Init{Init::Kind::uniform, 0.5});
  };
  const std::vector<LayerPtr<T>> layers = {
      linear(inputs, first), std::make_shared<ActivationLayer<T>>(Activation::sigmoid), linear(first, second),
      std::make_shared<ActivationLayer<T>>(Activation::tanh), linear(second, outputs)};
  const Model<T> model(std::make_shared<Network<T>>(layers), 7);
  const std::vector<T> x = numbers<T>(batch * inputs, 1);
  std::vector<std::int32_t> classes(batch);
  for (Index r = 0; r < batch; ++r) classes[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(r % outputs);
  std::vector<T> grads(static_cast<std::size_t>(model.count()));
  const LossValue got = model.gradient({x.data(), batch, {inputs}}, {classes.data(), {}},
                                       CrossEntropyLoss<T>(Reduction::mean), true, Rng(1), grads);

  const T* values = model.params->data();
  const LinearSeen<T> one(values, inputs, first), two(values, first, second), three(values, second, outputs);
  const Dense in = seen(x.data(), batch, inputs);
  const auto affine = [](const Dense& input, const LinearSeen<T>& layer) -> Dense {
    return (input * layer.w).rowwise() + layer.b.row(0);
  };
  const Dense a1 = (1 + (-affine(in, one).array()).exp()).inverse();
  const Dense a2 = affine(a1, two).array().tanh();
  const Dense powers = affine(a2, three).array().exp();
  Dense d3 = powers.array().colwise() / powers.rowwise().sum().array();
  double loss = 0;
  for (Index r = 0; r < batch; ++r) {
    loss -= std::log(d3(r, r % outputs));
    d3(r, r % outputs) -= 1;
  }
  d3 /= static_cast<double>(batch);
  const auto below = [](const Dense& d, const LinearSeen<T>& layer) -> Dense {
    const Dense turned = layer.w.transpose();
    return d * turned;
  };
  const Dense d2 = below(d3, three).array() * (1 - a2.array().square());
  const Dense d1 = below(d2, two).array() * a1.array() * (1 - a1.array());

  BOOST_TEST(std::abs(got.value - loss) <= 50 * double{std::numeric_limits<T>::epsilon()} * loss);
  const T* gradients = grads.data();
  const auto check = [&](const Dense& input, const Dense& d) {
    const LinearSeen<T> layer(gradients, input.cols(), d.cols());
    const Dense turned = input.transpose(), dw = turned * d, db = d.colwise().sum();
    check_close<T>("dw", layer.w, dw, 20);
    check_close<T>("db", layer.b, db, 20);
  };
  check(in, d1);
  check(a1, d2);
  check(a2, d3);
  BOOST_TEST(gradients == grads.data() + grads.size());
}

// A channel is a column of the matrix that lies in memory: a feature of a sample, or a channel of each pixel.
BOOST_AUTO_TEST_CASE(its_batch_normalization_is_ours) {
  constexpr double eps = 1e-3, momentum = 0.3;
  for (const bool images : {false, true}) {
    constexpr Index batch = 13, channels = 7;
    const Shape shape = images ? Shape{channels, 3, 5} : Shape{channels};
    const auto layer = std::make_shared<BatchNorm<double>>(
        BatchNorm<double>::Options{.channels = channels, .images = images, .eps = eps, .momentum = momentum});
    tests::LayerRun run(layer, shape, batch);
    const Index rows = batch * shape.count() / channels;
    const double count = static_cast<double>(rows);
    using View = Eigen::Map<const Dense>;
    const View x(run.x.data(), rows, channels), dy(run.dy.data(), rows, channels);
    const View gamma(run.params.data(), 1, channels), beta(run.params.data() + channels, 1, channels);
    const Dense before = View(run.buffers.data(), 2, channels);
    run.forward();
    run.backward();
    run.commit();

    const Dense mean = x.colwise().mean();
    const Dense centered = x.rowwise() - mean.row(0);
    const Dense variance = centered.array().square().colwise().mean();
    const Dense inverse = (variance.array() + eps).rsqrt();
    const Dense normal = centered.array().rowwise() * inverse.array().row(0);
    const Dense y = (normal.array().rowwise() * gamma.array().row(0)).rowwise() + beta.array().row(0);
    const Dense dbeta = dy.colwise().sum(), dgamma = (dy.array() * normal.array()).colwise().sum();
    // dx = γ / √(var + eps) · (dy − mean(dy) − x̂ mean(dy x̂)): Ioffe and Szegedy, 2015, their chain rule put together.
    const Dense slope = gamma.array() * inverse.array();
    const Dense projected = normal.array().rowwise() * (dgamma.array() / count).row(0);
    const Dense rest = (dy - projected).rowwise() - dbeta.row(0) / count;
    const Dense dx = rest.array().rowwise() * slope.array().row(0);
    Dense after(2, channels);
    after.row(0) = (1 - momentum) * before.row(0) + momentum * mean.row(0);
    after.row(1) = (1 - momentum) * before.row(1) + momentum * count / (count - 1) * variance.row(0);

    check_close<double>("y", View(run.y.data(), rows, channels), y, 100);
    check_close<double>("dx", View(run.dx.data(), rows, channels), dx, 100);
    check_close<double>("dgamma", View(run.grads.data(), 1, channels), dgamma, 100);
    check_close<double>("dbeta", View(run.grads.data() + channels, 1, channels), dbeta, 100);
    check_close<double>("running moments", View(run.buffers.data(), 2, channels), after, 100);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::nn
