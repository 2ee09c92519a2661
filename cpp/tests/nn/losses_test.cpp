// Every loss's gradient against finite differences, its sums over any team, and a wrong loss, which the check must
// catch.
#include <boost/test/unit_test.hpp>
#include <tuple>

#include "layer_check.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/nn/losses/nll.hpp"

using namespace pdnn;
using namespace pdnn::nn;
using tests::Vector;

BOOST_AUTO_TEST_SUITE(nn_losses)

namespace {

constexpr Index kRows = 5, kWidth = 4;

struct Case {
  std::shared_ptr<Loss<double>> loss;
  bool classes;        // else values
  bool probabilities;  // whether y must lie in (0, 1)
  bool weighted = false;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::batchmean}) {
    for (const bool classes : {true, false}) {
      all.push_back({std::make_shared<CrossEntropyLoss<double>>(reduction), classes, false});
      all.push_back({std::make_shared<BCELoss<double>>(reduction), classes, true});
      all.push_back({std::make_shared<BCEWithLogitsLoss<double>>(reduction), classes, false});
    }
    all.push_back({std::make_shared<NLLLoss<double>>(reduction), true, false});
    all.push_back({std::make_shared<MSELoss<double>>(reduction), false, false});
    for (const bool classes : {true, false}) {
      const Vector weights{1, 0.5, 0, 3};
      all.push_back({std::make_shared<CrossEntropyLoss<double>>(reduction, weights), classes, false});
      all.push_back({std::make_shared<CrossEntropyLoss<double>>(reduction, Vector{}, 0.3), classes, false});
      all.push_back({std::make_shared<CrossEntropyLoss<double>>(reduction, weights, 0.3), classes, false});
    }
    all.push_back({std::make_shared<L1Loss<double>>(reduction), false, false});
    for (const double size : {0.0, 0.2, 3.0}) {
      all.push_back({std::make_shared<SmoothL1Loss<double>>(reduction, SmoothAbsoluteError{size}), false, false});
      all.push_back({std::make_shared<HuberLoss<double>>(reduction, HuberError{size + 0.1}), false, false});
    }
    all.push_back({std::make_shared<PoissonNLLLoss<double>>(reduction), false, false});
    const PoissonLikelihood rates{.log_input = false, .full = true, .eps = 0.1};
    all.push_back({std::make_shared<PoissonNLLLoss<double>>(reduction, rates), false, true});
    all.push_back({std::make_shared<QuantileLoss<double>>(reduction), false, false});
    const QuantileError quantiles{{0.1, 0.5, 0.8, 0.9}};
    all.push_back({std::make_shared<QuantileLoss<double>>(reduction, quantiles), false, false});
  }
  const std::size_t count = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(all[i]);
    all.back().weighted = true;
  }
  return all;
}

const Vector kWeights{0.5, 2, 0, 1, 3};

class LossRun {
 public:
  explicit LossRun(const Case& test) : loss(*test.loss), y(tests::draw(Rng(6), kRows * kWidth)), dy(y.size()) {
    if (test.probabilities)
      for (double& value : y) value = std::abs(value) * 0.9;
    for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kWidth));
    for (Index i = 0; i < kRows * kWidth; ++i) values.push_back(Rng(7).uniform(static_cast<std::uint64_t>(i)));
    if (test.classes) {
      target.classes = classes.data();
    } else {
      target.values = {values.data(), kRows, kWidth};
    }
    if (test.weighted) target.weights = kWeights.data();
  }

  LossValue operator()(const Member& member = {}) {
    return loss(member, {y.data(), kRows, {kWidth}}, target, loss.scale(loss.weight_of_rows(target, kRows)),
                {dy.data(), kRows, {kWidth}}, rows.data());
  }
  double reduced() { return loss.reduce((*this)().value, loss.weight_of_rows(target, kRows)); }
  double gradient_error() {
    (*this)();
    const Vector analytic = dy;
    return tests::relative_difference(analytic, tests::differences(y, [&] { return reduced(); }));
  }

  const Loss<double>& loss;
  Vector y, dy, rows = Vector(2 * kRows), values;
  std::vector<std::int32_t> classes;
  Target<double> target;
};

class WrongSquare : public Loss<double> {
 public:
  WrongSquare() : Loss(Reduction::mean) {}
  std::string_view name() const override { return "WrongSquare"; }
  void check(const Shape&, Index) const override {}

 protected:
  void compute(const Member&, const Tensor<const double>& y, const Target<double>& target, double scale,
               const Tensor<double>& dy, double* rows) const override {
    for (Index r = 0; r < y.batch; ++r) {
      rows[2 * r] = 0;
      for (Index j = 0; j < y.width(); ++j) {
        const double error = y.row(r)[j] - target.values.row(r)[j];
        rows[2 * r] += error * error;
        dy.row(r)[j] = scale * error;  // forgets the 2
      }
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_match_finite_differences) {
  for (const Case& test : cases()) {
    LossRun run(test);
    BOOST_TEST(run.gradient_error() <= 1e-7, test.loss->name() << ": " << run.gradient_error());
  }
}

BOOST_AUTO_TEST_CASE(weights_of_one_change_no_bit) {
  const Vector ones(kRows, 1.0);
  for (const Case& test : cases()) {
    LossRun plain(test), weighted(test);
    plain.target.weights = nullptr;
    weighted.target.weights = ones.data();
    BOOST_TEST(weighted.reduced() == plain.reduced());
    BOOST_TEST(weighted.dy == plain.dy, boost::test_tools::per_element());
    BOOST_TEST(weighted.rows == plain.rows, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_row_of_weight_0_adds_nothing_whatever_it_is) {
  const Vector y{1, 2, INFINITY, NAN};
  const Vector targets{0, 0, 0, 0}, weights{1, 0};
  Vector rows(4), dy(4);
  const MSELoss<double> loss(Reduction::batchmean);
  const Target<double> target{nullptr, {targets.data(), 2, 2}, weights.data()};
  BOOST_TEST(loss.weight_of_rows(target, 2) == 1);
  const LossValue sums = loss(Member(), {y.data(), 2, {2}}, target, 1, {dy.data(), 2, {2}}, rows.data());
  BOOST_TEST(sums.value == 5);
  const Vector want{2, 4, 0, 0};
  BOOST_TEST(dy == want, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_check_catches_a_wrong_loss) {
  const Case wrong{std::make_shared<WrongSquare>(), false, false};
  LossRun run(wrong);
  BOOST_TEST(run.gradient_error() > 1e-2);
}

BOOST_AUTO_TEST_CASE(the_size_of_a_team_changes_no_bit) {
  for (const Case& test : cases()) {
    LossRun alone(test);
    const LossValue sums = alone();
    for (const int size : {2, 3, 7}) {
      LossRun shared(test);
      threads::Team team(size);
      team.run([&](const Member& member) {
        const LossValue own = shared(member);
        if (member.first()) {
          BOOST_TEST(own.value == sums.value);
          BOOST_TEST(own.correct == sums.correct);
        }
      });
      BOOST_TEST(shared.dy == alone.dy, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_right_prediction_is_counted) {
  const Vector y{3, 1, 0, 2, 9, 0};
  const std::vector<std::int32_t> classes{0, 0};
  Vector rows(4);
  const CrossEntropyLoss<double> loss(Reduction::mean);
  const LossValue sums = loss(Member(), {y.data(), 2, {3}}, {classes.data(), {}}, 1, {nullptr, 2, {3}}, rows.data());
  BOOST_TEST(sums.correct == 1);
}

BOOST_AUTO_TEST_CASE(logits_of_any_size_give_finite_losses) {
  const Vector y{1000, -1000};
  const Vector targets{0, 1};
  Vector rows(2), dy(2);
  const BCEWithLogitsLoss<double> loss(Reduction::sum);
  const LossValue sums =
      loss(Member(), {y.data(), 1, {2}}, {nullptr, {targets.data(), 1, 2}}, 1, {dy.data(), 1, {2}}, rows.data());
  BOOST_TEST(sums.value == 2000);
  BOOST_TEST(dy[0] == 1);
  BOOST_TEST(dy[1] == -1);
}

// In float the logarithms of many outputs are one, of a product: no more is lost than in double, where each is its own,
// be they as large as log 2, as small as 10⁻⁴⁰ or of many sizes.
BOOST_AUTO_TEST_CASE(one_logarithm_of_many_logits_is_the_sum_of_theirs) {
  for (const Index width : {1, 3, 511, 512, 513, 2000}) {
    for (const auto& [least, most] : {std::pair{0.0, 0.01}, {0.0, 200.0}, {30.0, 90.0}, {0.0, 6.0}}) {
      std::vector<float> y, targets;  // what is predicted is right: nothing else is lost
      for (Index j = 0; j < width; ++j) {
        const double size = least + (most - least) * static_cast<double>(j * 7919 % width) / static_cast<double>(width);
        y.push_back(static_cast<float>(j % 2 == 0 ? size : -size));
        targets.push_back(j % 2 == 0 ? 1.0F : 0.0F);
      }
      const Vector same(y.begin(), y.end()), all(targets.begin(), targets.end());
      Vector rows(2);
      const LossValue sum = BCEWithLogitsLoss<float>(Reduction::sum)(Member(), {y.data(), 1, {width}},
                                                                     {nullptr, {targets.data(), 1, width}}, 1,
                                                                     {nullptr, 1, {width}}, rows.data());
      const LossValue want = BCEWithLogitsLoss<double>(Reduction::sum)(Member(), {same.data(), 1, {width}},
                                                                       {nullptr, {all.data(), 1, width}}, 1,
                                                                       {nullptr, 1, {width}}, rows.data());
      BOOST_TEST(sum.value == want.value, boost::test_tools::tolerance(1e-13));
    }
  }
}

BOOST_AUTO_TEST_CASE(targets_that_do_not_fit_are_refused) {
  BOOST_CHECK_THROW(CrossEntropyLoss<double>(Reduction::mean).check({10}, 9), ValueError);
  BOOST_CHECK_THROW(NLLLoss<double>(Reduction::mean).check({10}, 10), ValueError);
  BOOST_CHECK_THROW(MSELoss<double>(Reduction::mean).check({10}, 0), ValueError);
  BOOST_CHECK_NO_THROW(MSELoss<double>(Reduction::mean).check({2, 3}, 6));
  BOOST_CHECK_THROW(CrossEntropyLoss<double>(Reduction::mean, Vector{1, 2}).check({3}, 0), ValueError);
  BOOST_CHECK_THROW(QuantileLoss<double>(Reduction::mean, {{0.1, 0.9}}).check({3}, 3), ValueError);
}

BOOST_AUTO_TEST_CASE(class_weights_of_any_size_count_in_losses_gradients_and_right_answers) {
  const std::vector<float> y{2, -1, 0.5F, -0.5F, 1, 0};
  const std::vector<std::int32_t> classes{0, 1};  // both are right
  for (const double smoothing : {0.0, 0.3}) {
    const auto outcome = [&](double size) {
      const CrossEntropyLoss<float> loss(Reduction::mean, {size, 3 * size, size / 2}, smoothing);
      std::vector<float> dy(y.size());
      std::vector<double> rows(4);
      const Tensor<const float> outputs{y.data(), 2, {3}};
      const LossValue sums =
          loss(threads::Member(), outputs, {classes.data(), {}}, 1 / size, {dy.data(), 2, {3}}, rows.data());
      return std::tuple(sums.value / size, sums.correct / size, dy);
    };
    const auto [value, correct, dy] = outcome(1);
    BOOST_TEST(correct == 1 + 3);
    for (const double size : {1e50, 1e-50}) {
      const auto [its_value, its_correct, its_dy] = outcome(size);
      BOOST_TEST(its_value == value, boost::test_tools::tolerance(1e-6));
      BOOST_TEST(its_correct == correct, boost::test_tools::tolerance(1e-15));
      for (std::size_t i = 0; i < dy.size(); ++i) BOOST_TEST(its_dy[i] == dy[i], boost::test_tools::tolerance(1e-5F));
    }
  }
}

BOOST_AUTO_TEST_CASE(binary_cross_entropy_is_steep_near_0_and_1) {
  const Vector y{1e-9, 1 - 1e-9}, t{1, 0};
  Vector dy(2), rows(4);
  const BCELoss<double> loss(Reduction::sum);
  loss(threads::Member(), {y.data(), 2, {1}}, {nullptr, {t.data(), 2, 1}}, 1, {dy.data(), 2, {1}}, rows.data());
  BOOST_TEST(dy[0] == -1e9, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(dy[1] == 1e9, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_SUITE_END()
