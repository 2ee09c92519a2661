// Rows of which most elements are 0 train, and are evaluated, to the bits of the same rows with their zeros.
#include <boost/test/unit_test.hpp>

#include "pdnn/engine/evaluator.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/strategy/session.hpp"
#include "ranks.hpp"

using namespace pdnn;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_sparse_rows)

namespace {

using Floats = std::vector<float>;
constexpr Index kRows = 75, kFeatures = 150, kHidden = 70, kLabels = 3, kBatch = 20;

struct Made {
  Floats params, outputs;
  EpochSums sums;
  bool operator==(const Made& other) const {
    return params == other.params && outputs == other.outputs && sums.loss == other.sums.loss;
  }
};

Made train(const StrategyConfig& config, const std::shared_ptr<comm::Communicator>& comm, bool sparse) {
  Floats x(kRows * kFeatures), values;
  std::vector<Index> starts{0};
  std::vector<std::int32_t> columns, labels;
  for (Index r = 0; r < kRows; ++r) {
    for (Index j = 0; j < kFeatures; ++j) {
      const auto at = static_cast<std::uint64_t>(r * kFeatures + j);
      if (Rng(1).uniform(at) > 0.05) continue;
      columns.push_back(static_cast<std::int32_t>(j));
      values.push_back(static_cast<float>(Rng(2).uniform(at) - 0.5));
      x[at] = values.back();
    }
    starts.push_back(std::ssize(values));
    labels.push_back(static_cast<std::int32_t>(r % kLabels));
  }
  data::Samples samples{.data = x.data(), .count = kRows, .stride = kFeatures, .sample = {kFeatures}};
  if (sparse)
    samples = {.data = values.data(), .count = kRows, .sample = {kFeatures}, .sparse = {starts.data(), columns.data()}};
  nn::Target<float> target;
  target.classes = labels.data();
  const Source<float> source(samples, target);
  const nn::Init init{nn::Init::Kind::uniform, 0.1};
  const auto model =
      std::make_shared<nn::Model<float>>(std::make_shared<nn::Network<float>>(std::vector<nn::LayerPtr<float>>{
                                             std::make_shared<nn::Linear<float>>(kFeatures, kHidden, true, init, init),
                                             std::make_shared<nn::ActivationLayer<float>>(nn::Activation::tanh),
                                             std::make_shared<nn::Linear<float>>(kHidden, kLabels, true, init, init)}),
                                         3);
  const auto optimizer = std::make_shared<optim::Optimizer<float>>(model->count(), kernels::Rule{kernels::Sgd{0.9}});
  optimizer->set_segments({{model->count(), 0.1, 1e-3, false, 0}});
  const auto loss = std::make_shared<nn::CrossEntropyLoss<float>>(nn::Reduction::mean);
  Session<float> session(config, Training<float>(model, loss, optimizer, comm, {kFeatures}, 0, kBatch));
  const std::vector<Index> order = data::epoch_order(4, 0, kRows);
  Made made;
  made.sums = session.run_epoch(source, {.order = order, .batch_size = kBatch, .seed = 4, .first_step = 0, .rates = {}},
                                [](const EpochSums&) { return false; });
  made.params.assign(model->params->data(), model->params->data() + model->count());
  made.outputs.resize(kRows * kLabels);
  engine::Evaluator<float>(*model, 2).predict(source, order, made.outputs.data());
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(they_have_the_bits_of_dense_rows) {
  for (const EngineConfig& engine :
       {EngineConfig{TeamConfig{1}}, EngineConfig{TeamConfig{3}}, EngineConfig{PoolConfig{2, 4}}})
    for (const int ranks : {1, 2}) {
      const auto run = [&](bool sparse) {
        return tests::on_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& comm) {
          DataParallelConfig config{engine};
          config.reducer.memory = reduce::ReducerOptions::Memory::shared;
          return train(config, comm, sparse);
        });
      };
      BOOST_TEST((run(true) == run(false)), engine.index() << ", " << ranks << " ranks");
    }
}

BOOST_AUTO_TEST_SUITE_END()
