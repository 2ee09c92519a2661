// What every agreement on gradients keeps: losses beyond floats, the number of a step that is refused, and the form
// that was asked for.
#include "pdnn/reduce/gradient_reducer.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

#include "pdnn/nn/layers/embedding.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/reduce/bucketed_reducer.hpp"
#include "ranks.hpp"
#include "reduce/linear_step.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::reduce;

BOOST_AUTO_TEST_SUITE(gradient_reducer)

namespace {

/// Whether what such options make on a rank sends messages.
bool sends(const std::shared_ptr<comm::Communicator>& comm, const ReducerOptions& options, Index leaves) {
  tests::LinearStep step({4, 3});
  const auto reducer = make_gradient_reducer<double>(step.in_leaves(leaves), comm, options);
  return dynamic_cast<BucketedReducer<double>*>(reducer.get()) != nullptr;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_tail_of_floats_has_losses_of_either_sign_beyond_them) {
  nn::Model<float> model(tests::linear<float>({2, 1}), 1);
  const auto told = [&](double loss, bool stop) {
    write_tail(model, {{loss, 2}, 7, stop});
    return read_tail(model.grads->data() + model.count(), 7);
  };
  for (const double loss : {1e50, -1e50, 1e70, 3.0, -0.5, 0.0})
    for (const bool stop : {false, true}) {
      if (stop && std::abs(loss) > 1e38) continue;  // a wish to stop is larger
      const StepSums sums = told(loss, stop);
      BOOST_TEST(sums.loss.value == loss, boost::test_tools::tolerance(1e-6));
      BOOST_TEST(sums.stop == stop);
      BOOST_TEST(!sums.bad);
    }
  for (const bool stop : {false, true}) {
    BOOST_TEST(told(1e100, stop).loss.value == std::numeric_limits<double>::infinity());
    BOOST_TEST(told(-1e100, stop).loss.value == -std::numeric_limits<double>::infinity());
  }
}

BOOST_AUTO_TEST_CASE(a_step_that_a_layer_refuses_is_not_counted) {
  const std::vector<double> x{0, 5}, t{0, 0};  // a table of 3 rows has no row 5
  nn::Model<double> model(
      std::make_shared<nn::Network<double>>(std::vector<nn::LayerPtr<double>>{
          std::make_shared<nn::Embedding<double>>(3, 1, nn::Init{nn::Init::Kind::uniform, 0.5}, std::nullopt)}),
      3);
  const auto network = model.bound({1});
  const nn::MSELoss<double> loss(nn::Reduction::mean);
  optim::Optimizer<double> adam(model.count(), kernels::Adam{0.9, 0.99, 1e-8, false});
  adam.set_segments({{model.count(), 0.1, 0, false}});
  const Job<double> job{model, *network, loss, {1}};
  TeamEngine<double> engine(job, 1, 1);
  PhaseTimer timer;
  const auto reducer = make_gradient_reducer<double>({job, adam, engine, timer}, comm::make_self(), {});
  const Source<double> source({x.data(), Samples::Format::float64, 2, 1, {1}}, {nullptr, {t.data(), 2, 1}});
  const std::array<Index, 2> rows{0, 1};
  const auto step = [&](std::size_t row) {
    const Step one{.rows = std::span(rows).subspan(row, 1), .keys = Rng(1), .global_rows = 1, .scale = 1};
    reducer->step(source, one, nullptr, true);
  };
  step(0);
  BOOST_CHECK_THROW(step(1), ValueError);
  BOOST_TEST(adam.steps() == 1);
}

BOOST_AUTO_TEST_CASE(bytes_of_a_bucket_ask_for_messages) {
  for (int round = 0; round < 5; ++round)  // of two that are measured either may be faster
    for (const bool messages : tests::on_ranks(
             2, [](const std::shared_ptr<comm::Communicator>& comm) { return sends(comm, {.bucket_bytes = 64}, 0); }))
      BOOST_TEST(messages);
}

BOOST_AUTO_TEST_CASE(a_batch_in_leaves_is_shared_by_all_ranks_or_sent) {
  using Memory = ReducerOptions::Memory;
  const auto on_machines = [](int machines, Memory memory) {
    return tests::on_ranks(4, [&](const std::shared_ptr<comm::Communicator>& comm) {
      const auto machine = comm->split(comm->rank() % machines, comm->rank());
      return sends(comm, {.memory = memory, .machine = machine}, 4);
    });
  };
  for (const bool messages : on_machines(1, Memory::shared)) BOOST_TEST(!messages);
  for (const bool messages : on_machines(2, Memory::measured)) BOOST_TEST(messages);
  BOOST_CHECK_THROW(on_machines(2, Memory::shared), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
