// Losses and outputs of more rows than are evaluated at a time are those of the rows one by one; gradients of rows,
// dense or sparse, are the model's.
#include "pdnn/engine/evaluator.hpp"

#include <array>
#include <boost/test/unit_test.hpp>

#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"

using namespace pdnn;
using namespace pdnn::engine;

BOOST_AUTO_TEST_SUITE(engine_evaluator)

BOOST_AUTO_TEST_CASE(chunks_of_weighted_rows_add_up) {
  constexpr Index kRows = 700, kInputs = 4, kClasses = 3;
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const nn::Model<double> model(std::make_shared<nn::Network<double>>(std::vector<nn::LayerPtr<double>>{
                                    std::make_shared<nn::Linear<double>>(kInputs, kClasses, true, init, init)}),
                                3);
  std::vector<double> x(kRows * kInputs), weights(kRows);
  std::vector<std::int32_t> classes(kRows);
  std::vector<Index> rows(kRows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Rng(1).normal(i);
  for (std::size_t r = 0; r < weights.size(); ++r) {
    weights[r] = static_cast<double>(r % 4);
    classes[r] = static_cast<std::int32_t>(r % kClasses);
    rows[r] = static_cast<Index>(r);
  }
  const data::Source<double> source({x.data(), data::Samples::Format::float64, kRows, kInputs, {kInputs}},
                                    {classes.data(), {}, weights.data()});
  const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
  for (const int threads : {1, 2}) {
    Evaluator<double> evaluator(model, threads);
    std::vector<double> together(kRows * kClasses), one(kClasses);
    const Evaluation all = evaluator.loss(loss, source, rows, nullptr, together.data());
    Evaluation sum;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Evaluation own = evaluator.loss(loss, source, std::span(rows).subspan(r, 1), nullptr, one.data());
      sum.sums += own.sums;
      sum.weight += own.weight;
      BOOST_TEST_REQUIRE(std::equal(one.begin(), one.end(), together.begin() + std::ssize(one) * rows[r]));
    }
    BOOST_TEST(all.weight == sum.weight);
    BOOST_TEST(all.sums.correct == sum.sums.correct);
    BOOST_TEST(all.sums.value == sum.sums.value, boost::test_tools::tolerance(1e-12));
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_rows_are_those_of_the_batch) {
  constexpr Index kRows = 5, kInputs = 40, kClasses = 3;
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const nn::Model<double> model(std::make_shared<nn::Network<double>>(std::vector<nn::LayerPtr<double>>{
                                    std::make_shared<nn::Linear<double>>(kInputs, kClasses, true, init, init)}),
                                3);
  std::vector<double> x(kRows * kInputs), values;
  std::vector<std::int32_t> columns;
  std::vector<Index> starts{0};
  for (Index r = 0; r < kRows; ++r) {
    for (const Index column : {r, 7 * r + 9}) {
      values.push_back(Rng(1).normal(values.size()));
      columns.push_back(static_cast<std::int32_t>(column));
      x[static_cast<std::size_t>(r * kInputs + column)] = values.back();
    }
    starts.push_back(std::ssize(values));
  }
  const std::array<std::int32_t, kRows> classes{0, 2, 1, 1, 0};
  const std::array<double, kRows> weights{1, 0.5, 2, 0, 3};
  const nn::Target<double> target{classes.data(), {}, weights.data()};
  const data::Source<double> dense({x.data(), data::Samples::Format::float64, kRows, kInputs, {kInputs}}, target);
  const data::Source<double> sparse(
      {.data = values.data(), .count = kRows, .sample = {kInputs}, .sparse = {starts.data(), columns.data()}}, target);
  const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
  const auto count = static_cast<std::size_t>(model.count());
  std::vector<double> want(count);
  const nn::LossValue sums = model.gradient({x.data() + kInputs, 3, {kInputs}},
                                            {classes.data() + 1, {}, weights.data() + 1}, loss, false, Rng(), want);
  const std::array<Index, 3> rows{1, 2, 3};
  Evaluator<double> evaluator(model, 1);
  for (const auto* source : {&dense, &sparse}) {
    std::vector<double> got(count, 9);
    BOOST_TEST(evaluator.gradient(loss, *source, rows, got).sums.value == sums.value);
    BOOST_TEST(got == want, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()
