// A part of a model is copied out of the whole and gathered into it again, with what the optimizer knows of it.
#include "pdnn/partition/network_part.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/optim/optimizer.hpp"

using namespace pdnn;
using namespace pdnn::partition;

BOOST_AUTO_TEST_SUITE(partition_part)

namespace {

constexpr nn::Init kInit{nn::Init::Kind::uniform, 0.5};

/// 5-4-3: parameters 20 + 4, 4 + 4, 12 + 3; buffers 4 + 4.
std::shared_ptr<nn::Network<double>> make_network() {
  return std::make_shared<nn::Network<double>>(std::vector<nn::LayerPtr<double>>{
      std::make_shared<nn::Linear<double>>(5, 4, true, kInit, kInit),
      std::make_shared<nn::BatchNorm<double>>(nn::BatchNorm<double>::Options{.channels = 4, .images = false}),
      std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh),
      std::make_shared<nn::Linear<double>>(4, 3, true, kInit, kInit)});
}

struct Whole {
  Whole() {
    std::iota(model->params->span().begin(), model->params->span().end(), 0.0);
    std::iota(model->buffers->span().begin(), model->buffers->span().end(), 100.0);
    std::iota(sgd->state()[0].span().begin(), sgd->state()[0].span().end(), 1000.0);
    sgd->set_steps(7);
    sgd->set_segments({{24, 0.1, 0, false, 0}, {47, 0.2, 1e-3, true, 1}});
  }
  std::shared_ptr<nn::Network<double>> network = make_network();
  std::shared_ptr<nn::Model<double>> model = std::make_shared<nn::Model<double>>(network, 1);
  std::shared_ptr<optim::Optimizer<double>> sgd =
      std::make_shared<optim::Optimizer<double>>(model->count(), kernels::Sgd{0.9});
};

/// Fails on its rank: Boost.Test's macros are for one thread.
void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(stages_are_taken_trained_and_gathered) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    Whole whole;
    const Range layers = comm.rank() == 0 ? Range{0, 1} : Range{1, 4};
    PartialModel<double> part(whole.model, whole.sgd, layers_of(*whole.network, layers), comm.split(0, comm.rank()));
    const double first = comm.rank() == 0 ? 0 : 24;
    check(part.model().parameters()[0].name == (comm.rank() == 0 ? "0.weight" : "1.weight"), "names are kept");
    for (int epoch = 0; epoch < 2; ++epoch) {
      part.take();
      const double moved = epoch * 0.5;
      check((*part.model().params)[0] == first + moved, "parameters are those of the layers");
      check(part.optimizer().state()[0][1] == 1001 + first + moved, "and so is its state");
      check(part.optimizer().steps() == 7 + epoch, "and the steps");
      if (comm.rank() == 1) check((*part.model().buffers)[3] == 103, "buffers is the stage's");
      part.optimizer().begin_step();
      for (double& value : part.model().params->span()) value += 0.5;
      for (double& value : part.optimizer().state()[0].span()) value += 0.5;
      for (double& value : slice(part.model().grads->span(), 0, part.model().count())) value = 10.0 * comm.rank() + 1;
      part.gather();
    }
    for (Index i = 0; i < whole.model->count(); ++i) {
      check((*whole.model->params)[i] == static_cast<double>(i) + 1, "all parameters came back");
      check(whole.sgd->state()[0][i] == 1001 + static_cast<double>(i), "and all its state");
      check((*whole.model->grads)[i] == (i < 24 ? 1 : 11), "and all gradients");
    }
    check(whole.sgd->steps() == 9, "steps count");
  });
}

BOOST_AUTO_TEST_CASE(columns_are_runs_with_a_stride_and_keep_their_group) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    Whole whole;
    const Index first = 2 * comm.rank();
    const NetworkPart<double> half{
        {std::make_shared<nn::Linear<double>>(5, 2, true, kInit, kInit)}, 0, {{first, 4, 5, 2}, {20 + first, 2, 1, 2}}};
    PartialModel<double> part(whole.model, whole.sgd, half, comm.split(0, comm.rank()));
    part.take();
    const double want[] = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21};
    for (Index i = 0; i < 12; ++i)
      check((*part.model().params)[i] == want[i] + static_cast<double>(first), "columns of the rows");
    for (const optim::Segment& segment : part.optimizer().segments())
      check(segment.lr == 0.1, "the first group's rate");
    check(part.optimizer().segments().back().end == 12, "segments cover the part");
    for (double& value : part.model().params->span()) value = -value;
    part.gather();
    for (Index i = 0; i < 24; ++i) check((*whole.model->params)[i] == -static_cast<double>(i), "columns came back");
  });
}

BOOST_AUTO_TEST_CASE(a_stage_may_hold_several_groups_a_dealt_weight_only_one) {
  Whole whole;
  const auto alone = comm::make_self();
  PartialModel<double> all(whole.model, whole.sgd, layers_of(*whole.network, {0, 4}), alone);
  BOOST_TEST(all.optimizer().segments().size() == 2);
  BOOST_TEST(all.optimizer().segments()[0].end == 24);
  BOOST_TEST(all.optimizer().segments()[1].frozen);
  whole.sgd->set_segments({{10, 0.1, 0, false, 0}, {47, 0.2, 0, false, 1}});
  const NetworkPart<double> half{{std::make_shared<nn::Linear<double>>(5, 2, false, kInit, kInit)}, 0, {{0, 4, 5, 2}}};
  BOOST_CHECK_THROW(PartialModel<double>(whole.model, whole.sgd, half, alone), ValueError);
}

BOOST_AUTO_TEST_CASE(a_part_is_clipped_by_the_norm_of_the_whole) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    Whole whole;
    using Clip = optim::Clip<double>;
    whole.sgd->set_clip(std::make_unique<Clip>(Clip::By::norm, 2.0, whole.model->count()));
    const Index first = 2 * comm.rank();  // half of the first layer's columns; the last layer is on both ranks
    const NetworkPart<double> half{{std::make_shared<nn::Linear<double>>(5, 2, true, kInit, kInit),
                                    std::make_shared<nn::Linear<double>>(4, 3, true, kInit, kInit)},
                                   0,
                                   {{first, 4, 5, 2}, {20 + first, 2, 1, 2}, {32, 15, 1, 15}}};
    PartialModel<double> part(whole.model, whole.sgd, half, comm.split(0, comm.rank()));
    const std::span<double> grads = slice(part.model().grads->span(), 0, part.model().count());
    std::fill_n(grads.begin(), 12, 3.0);
    std::fill(grads.begin() + 12, grads.end(), -1.0);
    (*part.optimizer().clip())(threads::Member(), grads);
    const double factor = 2 / (std::sqrt(24 * 9 + 15) + 1e-6);
    for (Index i = 0; i < part.model().count(); ++i)
      check(std::abs(grads[static_cast<std::size_t>(i)] - factor * (i < 12 ? 3 : -1)) < 1e-15,
            "every element counts once");
  });
}

BOOST_AUTO_TEST_SUITE_END()
