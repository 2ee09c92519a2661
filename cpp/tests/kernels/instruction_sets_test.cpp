// AVX2 and AVX-512 against each other: every kernel of theirs has the same bits, at random sizes.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "pdnn/core/leaves.hpp"
#include "random_rounds.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
using tests::Draw;

boost::test_tools::assertion_result with_both(boost::unit_test::test_unit_id) {
  return supported(Isa::v3) && supported(Isa::v4);
}

/// work(table, out) must leave the same `count` elements with both tables.
template <class T, class Out = T, class Work>
void check_both(const char* kernel, Index count, Work work) {
  std::vector<Out> avx2 = numbers<Out>(count, 99), avx512 = avx2;
  work(tables(Isa::v3).of<T>(), avx2.data());
  work(tables(Isa::v4).of<T>(), avx512.data());
  BOOST_TEST(same_bits(avx2.data(), avx512.data(), count), kernel << " of " << count << " elements differs");
}

/// Numbers of a random size: exponents too.
template <class T>
std::vector<T> some_numbers(Draw& draw, Index count) {
  std::vector<T> values = numbers<T>(count, static_cast<std::uint64_t>(draw(0, 1 << 20)));
  const T size = draw.one_of<T>({T(0.01), T(1), T(8), T(60)});
  for (T& value : values) value *= size;
  return values;
}

/// A few leaves of some rows, and room for sums of `size` elements.
template <class T>
struct SomeLeaves {
  std::vector<Index> ends;
  std::vector<T> room;
  SomeLeaves(Draw& draw, Index rows, Index size) {
    const Index count = draw(1, 9);
    for (Index leaf = 0; leaf < count; ++leaf) ends.push_back((leaf + 1) * rows / count);
    room.resize(static_cast<std::size_t>(tree_levels(count) * size));
  }
  LeafSums<T> sums() { return {ends.data(), std::ssize(ends), room.data()}; }
};

std::vector<RuleStep> some_rules(Draw& draw) {
  const bool yes = draw.once_in(2);
  return {Sgd::Step{.lr = 0.1, .momentum = 0, .l2 = 0.01, .nesterov = false},
          Sgd::Step{.lr = 0.1, .momentum = 0.9, .l2 = 0.01, .nesterov = yes},
          Adam::Step{.rate = 1e-2, .root = 0.3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .l2 = 0.1, .shrink = 0.97},
          RmsProp::Step{.lr = 0.1, .alpha = 0.9, .eps = 1e-8, .momentum = 0.7, .l2 = 0.1, .centered = yes},
          Lion::Step{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.98, .shrink = 0.97}};
}
/// An update of the n parameters at w by the rule, its state behind them.
template <class T>
Update<T> update_of(const RuleStep& rule, T* w, Index n) {
  for (Index i = n; i < 4 * n; ++i) w[i] = std::abs(w[i]);  // of squares
  const bool keeps = rule.kind != RuleStep::Kind::sgd || rule.sgd.momentum != 0;
  if (!keeps) return {rule, w, {}};
  return {rule, w, {w + n, w + 2 * n, w + 3 * n}};
}

BOOST_AUTO_TEST_SUITE(both_instruction_sets, *boost::unit_test::precondition(with_both))

BOOST_AUTO_TEST_CASE_TEMPLATE(element_by_element, T, Elements) {
  tests::random_rounds(60, [](Draw& draw) {
    const Index n = draw(1, 700);
    const std::vector<T> x = some_numbers<T>(draw, n), dy = some_numbers<T>(draw, n);
    for (const Activation f : {Activation::relu, Activation::sigmoid, Activation::tanh}) {
      check_both<T>("activate", n, [&](const Table<T>& table, T* out) { table.activate({}, f, n, x.data(), out); });
      check_both<T>("activate_backward", n, [&](const Table<T>& table, T* out) {
        table.activate_backward({}, f, n, x.data(), dy.data(), out);
      });
    }
    for (const Curve f :
         {Curve(Curve::gelu), Curve(Curve::silu), Curve(Curve::elu, 0.7), Curve(Curve::softplus, 1.7, 0.9)}) {
      check_both<T>("curve", n, [&](const Table<T>& table, T* out) { table.curve({}, f, n, x.data(), out); });
      check_both<T>("curve_backward", n,
                    [&](const Table<T>& table, T* out) { table.curve_backward({}, f, n, x.data(), dy.data(), out); });
    }
    check_both<T>("leaky_relu", n,
                  [&](const Table<T>& table, T* out) { table.leaky_relu({}, T(0.1), n, x.data(), dy.data(), out); });
    check_both<T>("exp", n, [&](const Table<T>& table, T* out) { table.exp({}, n, x.data(), out); });
    check_both<T>("log", n, [&](const Table<T>& table, T* out) { table.log({}, n, x.data(), out); });
    check_both<T>("add", n, [&](const Table<T>& table, T* out) { table.add({}, n, x.data(), dy.data(), out); });
    check_both<T>("scale", n, [&](const Table<T>& table, T* out) { table.scale({}, n, T(0.3), out); });
    check_both<T>("clamp", n, [&](const Table<T>& table, T* out) { table.clamp({}, n, T(0.3), out); });
    check_both<T>("dropout", n, [&](const Table<T>& table, T* out) {
      table.dropout({}, 5, 3, n, 0.3, Matrix<const T>(x.data(), 1, n), Matrix<T>(out, 1, n));
    });
    const Index row = 0;
    check_both<T>("gather_bytes", n, [&](const Table<T>& table, T* out) {
      std::vector<std::uint8_t> from(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(37 * i);
      table.gather_bytes({}, from.data(), n, &row, 1, n, 1 / 255., 0.1, out);
    });
    const std::vector<T> samples = numbers<T>(6 * n, 4);
    check_both<T>("transpose_samples", 6 * n,
                  [&](const Table<T>& table, T* out) { table.transpose_samples({}, 2, 3, n, samples.data(), out); });
    check_both<T>("gather_floats", n, [&](const Table<T>& table, T* out) {
      const std::vector<float> from = numbers<float>(n, 4);
      table.gather_floats({}, from.data(), n, &row, 1, n, 1 / 255., 0.1, out);
    });
    check_both<T>("gather_doubles", n, [&](const Table<T>& table, T* out) {
      const std::vector<double> from = numbers<double>(n, 4);
      table.gather_doubles({}, from.data(), n, &row, 1, n, 1 / 255., 0.1, out);
    });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rules_and_norms, T, Elements) {
  tests::random_rounds(60, [](Draw& draw) {
    const Index n = draw(1, draw.once_in(9) ? 9000 : 700);
    const std::vector<T> g = some_numbers<T>(draw, n);
    for (const RuleStep& rule : some_rules(draw))
      check_both<T>("update", 4 * n,
                    [&](const Table<T>& table, T* w) { table.update({}, update_of(rule, w, n), n, g.data()); });
    check_both<T, double>("square_sums", square_chunks(n),
                          [&](const Table<T>& table, double* out) { table.square_sums({}, n, g.data(), out); });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(products, T, Elements) {
  tests::random_rounds(60, [](Draw& draw) {
    const Index rows = draw(1, draw.once_in(5) ? 400 : 40), in = draw(1, draw.once_in(5) ? 300 : 50);
    const Index out = draw(1, draw.once_in(5) ? 200 : 40), panel = draw.once_in(2) ? kPanel<T> : out;
    const std::vector<T> x = some_numbers<T>(draw, rows * in), w = numbers<T>(in * out, 2), b = numbers<T>(out, 3);
    const std::vector<T> dy = some_numbers<T>(draw, rows * out);
    const Matrix<const T> xs(x.data(), rows, in), dys(dy.data(), rows, out);
    const PanelMatrix<const T> weights{w.data(), in, out, panel};
    for (const Activation f : {Activation::identity, Activation::relu, Activation::sigmoid, Activation::tanh}) {
      check_both<T>("product_nn", rows * out, [&](const Table<T>& table, T* y) {
        table.product_nn({}, xs, weights, b.data(), f, Matrix<T>(y, rows, out));
      });
      check_both<T>("product_nt", rows * in, [&](const Table<T>& table, T* dx) {
        table.product_nt({}, dys, weights, f, xs, Matrix<T>(dx, rows, in));
      });
    }
    SomeLeaves<T> leaves(draw, rows, in * out);
    check_both<T>("product_tn", in * out, [&](const Table<T>& table, T* dw) {
      table.product_tn({}, xs, dys, leaves.sums(), false, {dw, in, out, panel}, nullptr);
    });
    check_both<T>("product_tn", in * out, [&](const Table<T>& table, T* dw) {
      table.product_tn({}, xs, dys, {}, true, {dw, in, out, panel}, nullptr);
    });
    check_both<T>("column_sums", out,
                  [&](const Table<T>& table, T* sums) { table.column_sums({}, dys, leaves.sums(), false, sums); });
    for (const RuleStep& rule : some_rules(draw))
      check_both<T>("product_tn_update", 4 * in * out, [&](const Table<T>& table, T* parameters) {
        std::vector<T> sums(w.size());
        table.product_tn_update({}, xs, dys, leaves.sums(), update_of(rule, parameters, in * out), nullptr,
                                {sums.data(), in, out, panel}, nullptr);
      });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_and_columns, T, Elements) {
  tests::random_rounds(60, [](Draw& draw) {
    const Index rows = draw(1, draw.once_in(5) ? 300 : 20), cols = draw(1, 150), n = rows * cols;
    const std::vector<T> x = some_numbers<T>(draw, n), y = numbers<T>(n, 2), dy = some_numbers<T>(draw, n);
    const std::vector<T> gamma = numbers<T>(cols, 3), beta = numbers<T>(cols, 4), mean = numbers<T>(cols, 5);
    const Matrix<const T> xs(x.data(), rows, cols), ys(y.data(), rows, cols), dys(dy.data(), rows, cols);
    const auto matrix = [&](T* data) { return Matrix<T>(data, rows, cols); };
    std::vector<T> var = numbers<T>(cols, 6), targets = numbers<T>(n, 7), moments = numbers<T>(2 * rows, 8);
    for (std::vector<T>* const positive : {&var, &targets, &moments})
      for (T& value : *positive) value = std::abs(value);
    std::vector<std::int32_t> classes(static_cast<std::size_t>(rows));
    for (std::int32_t& each : classes) each = static_cast<std::int32_t>(draw(0, cols - 1));

    check_both<T>("softmax", n, [&](const Table<T>& table, T* out) { table.softmax({}, xs, matrix(out)); });
    check_both<T>("softmax_backward", n,
                  [&](const Table<T>& table, T* out) { table.softmax_backward({}, ys, dys, matrix(out)); });
    check_both<T>("log_softmax", n, [&](const Table<T>& table, T* out) { table.log_softmax({}, xs, matrix(out)); });
    check_both<T>("log_softmax_backward", n,
                  [&](const Table<T>& table, T* out) { table.log_softmax_backward({}, ys, dys, matrix(out)); });
    check_both<T, double>("cross_entropy_of_classes", 2 * rows, [&](const Table<T>& table, double* out) {
      table.cross_entropy_of_classes({}, xs, classes.data(), 0.1, {}, out);
    });
    check_both<T>("cross_entropy_of_classes, dy", n, [&](const Table<T>& table, T* out) {
      std::vector<double> losses(2 * classes.size());
      table.cross_entropy_of_classes({}, xs, classes.data(), 0.1, matrix(out), losses.data());
    });
    const Matrix<const T> wanted(targets.data(), rows, cols);
    check_both<T, double>("cross_entropy_of_targets", 2 * rows, [&](const Table<T>& table, double* out) {
      table.cross_entropy_of_targets({}, xs, wanted, 0.1, {}, out);
    });
    check_both<T>("cross_entropy_of_targets, dy", n, [&](const Table<T>& table, T* out) {
      std::vector<double> losses(2 * classes.size());
      table.cross_entropy_of_targets({}, xs, wanted, 0.1, matrix(out), losses.data());
    });

    SomeLeaves<T> leaves(draw, rows, 2 * cols);
    check_both<T>("layer_norm", n + 2 * rows, [&](const Table<T>& table, T* out) {
      table.layer_norm({}, xs, gamma.data(), beta.data(), 1e-5, matrix(out), out + n);
    });
    check_both<T>("layer_norm_backward", n, [&](const Table<T>& table, T* out) {
      table.layer_norm_backward({}, xs, dys, gamma.data(), moments.data(), matrix(out));
    });
    check_both<T>("layer_norm_sums", 2 * cols, [&](const Table<T>& table, T* out) {
      table.layer_norm_sums({}, xs, dys, moments.data(), leaves.sums(), false, out, out + cols);
    });

    Chunks chunks;
    if (draw.once_in(2)) chunks = {leaves.ends.data(), std::ssize(leaves.ends), 1};
    const NormParams<T> normal{mean.data(), var.data(), gamma.data(), beta.data(), 1e-5};
    check_both<T>("column_moments", 2 * chunks.count() * cols,
                  [&](const Table<T>& table, T* out) { table.column_moments({}, xs, chunks, out); });
    for (const bool relu : {false, true}) {
      check_both<T>("normalize", n,
                    [&](const Table<T>& table, T* out) { table.normalize({}, xs, normal, relu, matrix(out)); });
      check_both<T>("normalize_sums", 2 * chunks.count() * cols, [&](const Table<T>& table, T* out) {
        table.normalize_sums({}, xs, ys, dys, mean.data(), relu, chunks, out);
      });
      check_both<T>("normalize_backward", n, [&](const Table<T>& table, T* out) {
        table.normalize_backward({}, xs, ys, dys, normal, beta.data(), gamma.data(), relu, matrix(out));
      });
    }
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(images, T, Elements) {
  tests::random_rounds(60, [](Draw& draw) {
    const Index batch = draw(1, 9), inputs = draw(1, 20), outputs = draw(1, draw.once_in(5) ? 80 : 20);
    const auto axis = [&](Index padding, Index dilation) {
      return axis_of(draw(6, 12), draw(1, 3), draw(1, 2), padding, dilation);
    };
    Windows v{axis(draw(0, 1), draw(1, 2)), axis(draw(0, 1), draw(1, 2))};
    const Convolution shape = draw.once_in(3)   ? Convolution{v, inputs, inputs, inputs}
                              : draw.once_in(3) ? Convolution{v, 3 * inputs, 3 * outputs, 3}
                                                : Convolution{v, inputs, outputs};
    const Index x_size = batch * v.y.extent * v.x.extent * shape.inputs;
    const Index y_size = batch * v.y.places * v.x.places * shape.outputs;
    const Index w_size = v.y.kernel * v.x.kernel * shape.inputs / shape.groups * shape.outputs;
    const std::vector<T> x = some_numbers<T>(draw, x_size), dy = some_numbers<T>(draw, y_size),
                         w = numbers<T>(w_size, 3);
    const std::vector<T> b = numbers<T>(shape.outputs, 4);
    check_both<T>("convolution", y_size, [&](const Table<T>& table, T* out) {
      table.convolution({}, shape, batch, x.data(), w.data(), b.data(), true, out);
    });
    check_both<T>("convolution_dx", x_size, [&](const Table<T>& table, T* out) {
      std::vector<T> flipped(w.size());
      table.flip_taps({}, shape, w.data(), flipped.data());
      table.convolution_dx({}, shape, batch, dy.data(), flipped.data(), out);
    });
    SomeLeaves<T> leaves(draw, batch, w_size + shape.outputs);
    check_both<T>("convolution_dw", w_size + shape.outputs, [&](const Table<T>& table, T* out) {
      table.convolution_dw({}, shape, batch, x.data(), dy.data(), dy.data(), leaves.sums(), false, out, out + w_size);
    });

    v = {axis(0, 1), axis(0, 1)};
    const Index in = batch * v.y.extent * v.x.extent * inputs, pooled = batch * v.y.places * v.x.places * inputs;
    const std::vector<T> image = some_numbers<T>(draw, in), gradient = some_numbers<T>(draw, pooled);
    std::vector<std::uint8_t> winners(gradient.size());
    check_both<T>("max_pool", pooled + in, [&](const Table<T>& table, T* out) {
      table.max_pool({}, v, inputs, batch, false, image.data(), out, winners.data());
      table.max_pool_backward({}, v, inputs, batch, winners.data(), gradient.data(), out + pooled);
    });
    check_both<T>("mean_pool", pooled + in, [&](const Table<T>& table, T* out) {
      table.mean_pool({}, v, inputs, batch, image.data(), out);
      table.mean_pool_backward({}, v, inputs, batch, gradient.data(), out + pooled);
    });
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
