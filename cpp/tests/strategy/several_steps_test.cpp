// Several steps of a small network in one call: the bits and the sums of one step after another.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>

#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/strategy/session.hpp"

using namespace pdnn;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_several_steps)

namespace {

using Floats = std::vector<float>;
constexpr Index kSteps = 700, kFeatures = 5, kLabels = 3;

struct Made {
  Floats params, grads, state;
  EpochSums sums;
  std::int64_t steps, of_optimizer;
};

struct Settings {
  Index batch = 1;
  kernels::Rule rule = kernels::Sgd{0.9};
  bool frozen = false, classes = true, rates = false;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  Index spoiled = -1;  // a row with a NaN
  bool one_group = false;
  double clip_norm = 0;  // 0: not clipped
};

/// Two epochs whose last batch may lack a row; one by one: with a pause after each step.
Made train_with(const Settings& settings, bool one_by_one) {
  const Index rows = kSteps * settings.batch - (settings.batch > 1 ? 1 : 0);
  Floats x, targets;
  std::vector<std::int32_t> labels;
  for (Index i = 0; i < rows * kFeatures; ++i)
    x.push_back(static_cast<float>(Rng(1).uniform(static_cast<std::uint64_t>(i))));
  for (Index i = 0; i < rows * kLabels; ++i)
    targets.push_back(static_cast<float>(Rng(2).uniform(static_cast<std::uint64_t>(i))));
  for (Index r = 0; r < rows; ++r) labels.push_back(static_cast<std::int32_t>(r % kLabels));
  if (settings.spoiled >= 0) x[static_cast<std::size_t>(settings.spoiled * kFeatures)] = std::nanf("");
  nn::Target<float> target;
  if (settings.classes)
    target.classes = labels.data();
  else
    target.values = {targets.data(), rows, kLabels};
  const Source<float> source({x.data(), data::Samples::Format::float32, rows, kFeatures, {kFeatures}}, target);
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const auto model =
      std::make_shared<nn::Model<float>>(std::make_shared<nn::Network<float>>(std::vector<nn::LayerPtr<float>>{
                                             std::make_shared<nn::Linear<float>>(kFeatures, 7, true, init, init),
                                             std::make_shared<nn::Linear<float>>(7, kLabels, true, init, init)}),
                                         3);
  const auto optimizer = std::make_shared<optim::Optimizer<float>>(model->count(), settings.rule);
  optimizer->set_segments({{7 * kFeatures, 0.01, 1e-3, settings.frozen, 0}, {model->count(), 0.02, 0, false, 1}});
  if (settings.one_group) optimizer->set_segments({{model->count(), 0.01, 1e-3, false, 0}});
  if (settings.clip_norm > 0) {
    using Clip = optim::Clip<float>;
    optimizer->set_clip(std::make_unique<Clip>(Clip::By::norm, settings.clip_norm, model->count()));
  }
  std::shared_ptr<nn::Loss<float>> loss = std::make_shared<nn::CrossEntropyLoss<float>>(nn::Reduction::mean);
  if (!settings.classes) loss = std::make_shared<nn::MSELoss<float>>(nn::Reduction::mean);
  Session<float> session(DataParallelConfig{TeamConfig{1}},
                         Training<float>(model, loss, optimizer, comm::make_self(), {kFeatures},
                                         settings.classes ? 0 : kLabels, settings.batch));
  std::vector<double> rates;
  for (Index step = 0; settings.rates && step < kSteps; ++step)
    rates.insert(rates.end(), {0.01 / static_cast<double>(step + 1), 0.02});
  Made made{};
  for (std::uint64_t number = 0; number < 2 && !made.sums.nonfinite.found(); ++number) {
    const std::vector<Index> order = data::epoch_order(4, number, rows);
    EpochSums& sums = made.sums;
    sums = {};
    while (!sums.over(rows)) {
      const Index before = sums.steps;
      Epoch epoch{.order = order,
                  .batch_size = settings.batch,
                  .seed = 4,
                  .first_step = made.steps,
                  .rates = {},
                  .on_nonfinite = settings.on_nonfinite,
                  .first_row = before * settings.batch,
                  .before = sums,
                  .most_steps = one_by_one ? 1 : 0};
      if (settings.rates) epoch.rates = {rates.data() + 2 * before, kSteps - before, 2};
      sums = session.run_epoch(source, epoch, [](const EpochSums&) { return false; });
      made.steps += sums.steps - before;
    }
  }
  made.of_optimizer = optimizer->steps();
  made.params.assign(model->params->data(), model->params->data() + model->count());
  made.grads.assign(model->grads->data(), model->grads->data() + model->count());
  for (const AlignedArray<float>& array : optimizer->state())
    made.state.insert(made.state.end(), array.data(), array.data() + array.size());
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(they_have_the_bits_and_sums_of_one_after_another, *boost::unit_test::label("serial")) {
  const kernels::Adam adam{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decoupled = true};
  std::vector<Settings> table;
  for (const Index batch : {1, 3, 32})
    for (const kernels::Rule& rule :
         {kernels::Rule(kernels::Sgd{}), kernels::Rule(kernels::Sgd{0.9}), kernels::Rule(adam)})
      for (const bool frozen : {false, true})
        for (const bool classes : {false, true})
          for (const bool rates : {false, true}) table.push_back({batch, rule, frozen, classes, rates});
  for (const bool rates : {false, true}) table.push_back({.rates = rates, .one_group = true});
  table.push_back({.clip_norm = 0.1});
  for (const OnNonfinite what : {OnNonfinite::ignore, OnNonfinite::skip, OnNonfinite::stop})
    for (Index spoiled = 0; spoiled < kSteps; spoiled += 50)  // which comes anywhere in a window
      table.push_back({.on_nonfinite = what, .spoiled = spoiled});
  for (const Settings& settings : table) {
    const Made got = train_with(settings, false), want = train_with(settings, true);
    const auto same = [](const Floats& a, const Floats& b) {
      return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    BOOST_TEST_CONTEXT("batch " << settings.batch << ", spoiled " << settings.spoiled) {
      BOOST_TEST(same(got.params, want.params));
      BOOST_TEST(same(got.grads, want.grads));
      BOOST_TEST(same(got.state, want.state));
      BOOST_TEST((got.sums.loss == want.sums.loss || (std::isnan(got.sums.loss) && std::isnan(want.sums.loss))));
      BOOST_TEST(got.of_optimizer == want.of_optimizer);
      BOOST_TEST(got.sums.correct == want.sums.correct);
      BOOST_TEST(got.sums.weight == want.sums.weight);
      BOOST_TEST(got.sums.rows == want.sums.rows);
      BOOST_TEST(got.sums.steps == want.sums.steps);
      BOOST_TEST(got.sums.updates == want.sums.updates);
      BOOST_TEST(got.sums.skipped == want.sums.skipped);
      BOOST_TEST(got.sums.skipped_rows == want.sums.skipped_rows);
      BOOST_TEST(got.sums.nonfinite.step == want.sums.nonfinite.step);
      BOOST_TEST(got.sums.nonfinite.element == want.sums.nonfinite.element);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
