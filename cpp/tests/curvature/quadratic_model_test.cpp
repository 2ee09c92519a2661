// Quadratic models against finite differences of outputs and gradients of single rows; ways to solve against each
// other; ranks and threads bit for bit.
#include "pdnn/curvature/quadratic_model.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/curves.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "ranks.hpp"

namespace pdnn::curvature {
namespace {

BOOST_AUTO_TEST_SUITE(curvature_quadratic_model)

using Numbers = std::vector<double>;
using Layer = nn::LayerPtr<double>;

Numbers draw(Index count, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  Numbers numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = normal(bits);
  return numbers;
}

Layer linear(Index inputs, Index outputs, bool bias = true) {
  const nn::Init init{nn::Init::Kind::normal, 0.6};
  return std::make_shared<nn::Linear<double>>(inputs, outputs, bias, init, init);
}

/// 2x3 to 3, with a network inside, an activation of y, one of x, and a layer without bias.
std::shared_ptr<nn::Model<double>> make_model() {
  const std::vector<Layer> inner{linear(6, 5), std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh),
                                 linear(5, 4, false)};
  const std::vector<Layer> layers{std::make_shared<nn::Flatten<double>>(), std::make_shared<nn::Network<double>>(inner),
                                  std::make_shared<nn::CurveLayer<double>>("GELU"), linear(4, 3)};
  return std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(layers), 1);
}

constexpr Index kRows = 17;
const Shape kSample{1, 2, 3};

/// A model, and rows of which some count differently or not at all.
struct Problem {
  std::shared_ptr<nn::Model<double>> model = make_model();
  std::shared_ptr<nn::Loss<double>> loss;
  Numbers x = draw(kRows * 6, 2), values = draw(kRows * 3, 3), weights = draw(kRows, 4);
  std::vector<std::int32_t> classes;
  std::vector<Index> rows;

  explicit Problem(std::shared_ptr<nn::Loss<double>> its_loss) : loss(std::move(its_loss)) {
    for (Index i = 0; i < kRows; ++i) {
      weights[static_cast<std::size_t>(i)] = i % 5 == 0 ? 0 : std::abs(weights[static_cast<std::size_t>(i)]);
      classes.push_back(static_cast<std::int32_t>(i % 3));
      rows.push_back(kRows - 1 - i);
    }
  }
  bool classifies() const { return loss->name() == "CrossEntropyLoss"; }
  Target<double> target() const {
    if (classifies()) return {classes.data(), {}, weights.data()};
    return {nullptr, {values.data(), kRows, 3}, weights.data()};
  }
  data::Source<double> source() const {
    return {
        {.data = x.data(), .format = data::Samples::Format::float64, .count = kRows, .stride = 6, .sample = kSample},
        target()};
  }
  Tensor<const double> batch() const { return {x.data(), kRows, kSample}; }
  double scale() const { return loss->scale(loss->weight_of_rows(target(), kRows)); }
  std::unique_ptr<QuadraticModel> quadratic(Kind kind, int threads = 1, comm::Communicator* ranks = nullptr,
                                            const std::vector<bool>& trained = std::vector<bool>(5, true)) const {
    auto made = std::make_unique<QuadraticModel>(model, loss, kSample, trained, kind, threads, ranks);
    made->take(source(), rows);
    made->linearize();
    return made;
  }
  Numbers outputs() const {
    Numbers y(kRows * 3);
    model->forward(batch(), false, Rng(0), {y.data(), kRows, {3}});
    return y;
  }
};

std::vector<std::shared_ptr<nn::Loss<double>>> losses() {
  using nn::Reduction;
  return {std::make_shared<nn::MSELoss<double>>(Reduction::mean), std::make_shared<nn::MSELoss<double>>(Reduction::sum),
          std::make_shared<nn::MSELoss<double>>(Reduction::batchmean),
          std::make_shared<nn::CrossEntropyLoss<double>>(Reduction::mean),
          std::make_shared<nn::CrossEntropyLoss<double>>(Reduction::mean, Numbers{}, 0.1)};
}

double largest_difference(const Numbers& a, const Numbers& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

Numbers full_matrix(QuadraticModel& model) {
  const auto n = static_cast<std::size_t>(model.parameters());
  Numbers b(n * n);
  model.matrix(b);
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t c = r + 1; c < n; ++c) b[r * n + c] = b[c * n + r];
  return b;
}

/// Σ w Jᵀ H J by central differences of the outputs.
Numbers by_differences(Problem& problem) {
  const auto n = static_cast<std::size_t>(problem.model->count());
  const Numbers y = problem.outputs();
  std::vector<Numbers> jacobian;  // of each parameter
  for (double& parameter : problem.model->params->span()) {
    const double kept = parameter, step = 1e-5;
    parameter = kept + step;
    Numbers up = problem.outputs();
    parameter = kept - step;
    const Numbers down = problem.outputs();
    parameter = kept;
    for (std::size_t i = 0; i < up.size(); ++i) up[i] = (up[i] - down[i]) / (2 * step);
    jacobian.push_back(up);
  }
  const double second = problem.loss->reduction() == nn::Reduction::mean ? 2.0 / 3 : 2;
  Numbers b(n * n);
  for (std::size_t i = 0; i < kRows; ++i) {
    const double weight = problem.scale() * problem.weights[i];
    const double sum = std::exp(y[3 * i]) + std::exp(y[3 * i + 1]) + std::exp(y[3 * i + 2]);
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t l = 0; l < 3; ++l) {
        const double p = std::exp(y[3 * i + k]) / sum, q = std::exp(y[3 * i + l]) / sum;
        const double h = problem.classifies() ? (k == l ? p : 0) - p * q : (k == l ? second : 0);
        for (std::size_t r = 0; r < n; ++r)
          for (std::size_t c = 0; c < n; ++c)
            b[r * n + c] += weight * h * jacobian[r][3 * i + k] * jacobian[c][3 * i + l];
      }
  }
  return b;
}

BOOST_AUTO_TEST_CASE(loss_and_gradient_are_the_models) {
  for (const auto& loss : losses())
    for (const Kind kind : {Kind::gauss_newton, Kind::fisher}) {
      const Problem problem(loss);
      const auto quadratic = problem.quadratic(kind, 3);
      Numbers gradient(static_cast<std::size_t>(problem.model->count()));
      const nn::LossValue sums =
          problem.model->gradient(problem.batch(), problem.target(), *loss, false, Rng(0), gradient);
      BOOST_TEST(std::abs(quadratic->loss().value - sums.value) < 1e-12);
      BOOST_TEST(quadratic->loss().correct == sums.correct);
      BOOST_TEST(quadratic->weight() == loss->weight_of_rows(problem.target(), kRows),
                 boost::test_tools::tolerance(1e-15));
      const auto got = quadratic->gradient();
      BOOST_TEST(largest_difference({got.begin(), got.end()}, gradient) < 1e-13);
    }
}

BOOST_AUTO_TEST_CASE(the_matrix_is_that_of_finite_differences) {
  for (const auto& loss : losses()) {
    Problem problem(loss);
    const Numbers b = full_matrix(*problem.quadratic(Kind::gauss_newton)), wanted = by_differences(problem);
    BOOST_TEST(largest_difference(b, wanted) < 1e-7);
    BOOST_TEST(largest_difference(wanted, Numbers(wanted.size())) > 0.05);
  }
}

BOOST_AUTO_TEST_CASE(the_fisher_information_is_that_of_gradients_of_rows) {
  for (const auto& loss : losses()) {
    const Problem problem(loss);
    const auto n = static_cast<std::size_t>(problem.model->count());
    const Target<double> target = problem.target();
    Numbers wanted(n * n), gradient(n);
    for (Index i = 0; i < kRows; ++i) {
      Target<double> alone = target.rows({i, i + 1});
      alone.weights = nullptr;
      problem.model->gradient(problem.batch().rows({i, i + 1}), alone, *loss, false, Rng(0), gradient);
      for (std::size_t r = 0; r < n; ++r)
        for (std::size_t c = 0; c < n; ++c)
          wanted[r * n + c] += problem.scale() * target.weights[i] * gradient[r] * gradient[c];
    }
    BOOST_TEST(largest_difference(full_matrix(*problem.quadratic(Kind::fisher)), wanted) < 1e-12);
  }
}

/// (B + diag)⁻¹ g in the three ways, the diagonal of B.
std::vector<Numbers> everything(QuadraticModel& model, double damping) {
  const auto n = static_cast<std::size_t>(model.parameters());
  const Numbers diag(n, damping), gradient(model.gradient().begin(), model.gradient().end());
  Numbers normal = gradient, kernel(n), cg = gradient;
  const std::span<const double> diagonal = model.diagonal();
  BOOST_TEST_REQUIRE(model.solve_normal(diag, normal));
  BOOST_TEST_REQUIRE(model.solve_kernel(damping, kernel));
  BOOST_TEST(model.solve_cg(diag, 1e-13, 1000, cg) > 1);
  return {normal, kernel, cg, {diagonal.begin(), diagonal.end()}, full_matrix(model)};
}

BOOST_AUTO_TEST_CASE(three_ways_solve_the_same_system) {
  const std::vector<std::vector<bool>> which{std::vector<bool>(5, true), {true, false, false, true, true}};
  for (const auto& loss : losses())
    for (const Kind kind : {Kind::gauss_newton, Kind::fisher})
      for (const auto& trained : which) {
        const Problem problem(loss);
        const auto model = problem.quadratic(kind, 1, nullptr, trained);
        const auto n = static_cast<std::size_t>(model->parameters());
        const std::vector<Numbers> all = everything(*model, 0.01);
        const Numbers &x = all[0], &b = all[4];
        for (std::size_t r = 0; r < n; ++r) {
          double sum = 0.01 * x[r] - model->gradient()[r];
          for (std::size_t c = 0; c < n; ++c) sum += b[r * n + c] * x[c];
          BOOST_TEST(std::abs(sum) < 1e-12);
          BOOST_TEST(std::abs(all[3][r] - b[r * n + r]) < 1e-13);
        }
        BOOST_TEST(largest_difference(x, all[1]) < 1e-10);
        BOOST_TEST(largest_difference(x, all[2]) < 1e-9);
        const bool frozen = !trained[1];
        for (std::size_t j = 30; j < 35; ++j) BOOST_TEST((x[j] == 0) == frozen);  // the first bias
      }
}

BOOST_AUTO_TEST_CASE(neither_ranks_nor_threads_change_a_bit) {
  const Problem problem(losses()[0]);
  const std::vector<Numbers> alone = everything(*problem.quadratic(Kind::gauss_newton), 0.01);
  for (const int ranks : {1, 2, 3})
    for (const int threads : {1, 2, 5}) {
      const auto outcomes = tests::on_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& comm) {
        const int own = comm->rank() == 0 ? threads : 1;  // which may differ
        const auto model = problem.quadratic(Kind::gauss_newton, own, comm.get());
        const auto n = static_cast<std::size_t>(model->parameters());
        const Numbers diag(n, 0.01), gradient(model->gradient().begin(), model->gradient().end());
        Numbers normal = gradient, kernel(n), cg = gradient;
        model->solve_normal(diag, normal);
        model->solve_kernel(0.01, kernel);
        model->solve_cg(diag, 1e-13, 1000, cg);
        return std::vector<Numbers>{normal, kernel, cg};
      });
      for (const auto& outcome : outcomes)
        for (std::size_t way = 0; way < 3; ++way) BOOST_TEST((outcome[way] == alone[way]));
    }
}

BOOST_AUTO_TEST_CASE(more_rows_than_a_chunk_and_more_parameters_than_a_panel) {
  const std::vector<Layer> layers{
      linear(3, 40), std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh), linear(40, 2)};
  const auto model = std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(layers), 1);
  const Index rows = 300;
  const Numbers x = draw(rows * 3, 1), y = draw(rows * 2, 2);
  const data::Source<double> source(
      {.data = x.data(), .format = data::Samples::Format::float64, .count = rows, .stride = 3, .sample = {3}},
      {nullptr, {y.data(), rows, 2}});
  std::vector<Index> order(rows);
  for (Index i = 0; i < rows; ++i) order[static_cast<std::size_t>(i)] = i;
  QuadraticModel quadratic(model, std::make_shared<nn::MSELoss<double>>(nn::Reduction::mean), {3},
                           std::vector<bool>(4, true), Kind::gauss_newton, 2, nullptr);
  quadratic.take(source, order);
  quadratic.linearize();
  const std::vector<Numbers> all = everything(quadratic, 0.1);
  BOOST_TEST(largest_difference(all[0], all[1]) < 1e-10);
  BOOST_TEST(largest_difference(all[0], all[2]) < 1e-9);
  const auto first = std::span(order).first(7);  // a smaller batch
  quadratic.take(source, first);
  quadratic.linearize();
  const std::vector<Numbers> few = everything(quadratic, 0.1);
  BOOST_TEST(largest_difference(few[0], few[1]) < 1e-10);
  BOOST_TEST(largest_difference(few[0], all[0]) > 1e-6);
}

BOOST_AUTO_TEST_CASE(what_has_no_such_model_is_refused_by_name) {
  const auto refused = [](const std::vector<Layer>& layers, const std::shared_ptr<nn::Loss<double>>& loss,
                          const std::string& word) {
    const auto model = std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(layers), 1);
    BOOST_CHECK_EXCEPTION(
        QuadraticModel(model, loss, {3}, std::vector<bool>(2, true), Kind::gauss_newton, 1, nullptr), ValueError,
        [&](const ValueError& error) { return std::string(error.what()).find(word) != std::string::npos; });
  };
  refused({linear(3, 2), std::make_shared<nn::Dropout<double>>(0.5)}, losses()[0], "layer 1 is a Dropout");
  refused({std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh)}, losses()[0], "no Linear layer");
  refused({linear(3, 2)}, std::make_shared<nn::L1Loss<double>>(nn::Reduction::mean), "L1Loss has no Gauss-Newton");
  refused({linear(3, 2)}, std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean, Numbers{1, 2}),
          "no weights of classes");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::curvature
