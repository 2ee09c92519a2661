// Trainings on ranks that hesitate and die at random: those who are left train again, to the bits of one rank alone.
#include <boost/test/unit_test.hpp>
#include <thread>

#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/comm/thread_group.hpp"
#include "pdnn/data/epoch_order.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/identity.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/strategy/session.hpp"
#include "random_rounds.hpp"

using namespace pdnn;
using tests::Draw;

BOOST_AUTO_TEST_SUITE(strategy_random_deaths)

namespace {

constexpr Index kRows = 29, kInputs = 5, kClasses = 3;

/// Lets a thread pause now and then, as a busy machine does.
class Hesitant final : public nn::Identity<double> {
 public:
  explicit Hesitant(std::uint64_t seed) : rng_(seed) {}
  void forward(const nn::Pass& pass, nn::Vars<double> vars, Tensor<const double> x, Tensor<double> y) const override {
    pause();
    Identity::forward(pass, vars, x, y);
  }
  void backward(const nn::Pass& pass, nn::Vars<double> vars, Tensor<const double> x, Tensor<const double> y,
                Tensor<const double> dy, Tensor<double> dx, std::span<double> grads) const override {
    pause();
    Identity::backward(pass, vars, x, y, dy, dx, grads);
  }

 private:
  void pause() const {
    const std::uint64_t draw = rng_.below(20, calls_.fetch_add(1, std::memory_order_relaxed));
    if (draw < 3) std::this_thread::yield();
    if (draw == 3) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  Rng rng_;
  mutable std::atomic<std::uint64_t> calls_{0};
};

/// What a round draws, the same for all of its ranks.
struct Ordeal {
  Index leaves, batch, hidden;
  bool normed, clipped, adam;
  int workers;
  reduce::ReducerOptions reducer{};
  std::vector<Index> dies;  // at this call of each rank; 0: never
  std::vector<std::uint64_t> delays;

  explicit Ordeal(Draw& draw)
      : leaves(draw(2, 9)),
        batch(draw(1, 17)),
        hidden(draw(2, 70)),
        normed(draw.once_in(2)),
        clipped(draw.once_in(3)),
        adam(draw.once_in(2)),
        workers(static_cast<int>(draw(1, 2))) {
    using Memory = reduce::ReducerOptions::Memory;
    reducer.memory = draw.one_of({Memory::shared, Memory::messages});
    for (Index rank = draw(2, std::min<Index>(leaves, 4)); rank > 0; --rank) {
      dies.push_back(draw.once_in(2) ? draw(1, 60) : 0);
      delays.push_back(static_cast<std::uint64_t>(draw(0, 1 << 30)));
    }
    dies[static_cast<std::size_t>(draw(0, std::ssize(dies) - 1))] = 0;
  }
};

/// Parameters and buffers after two epochs on one rank of a group.
std::vector<double> undergo(const Ordeal& ordeal, std::uint64_t delays,
                            const std::shared_ptr<comm::Communicator>& comm) {
  std::vector<double> x(kRows * kInputs);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Rng(1).normal(i);
  std::vector<std::int32_t> classes;
  for (Index row = 0; row < kRows; ++row) classes.push_back(static_cast<std::int32_t>(row % kClasses));
  const data::Source<double> source({x.data(), data::Samples::Format::float64, kRows, kInputs, {kInputs}},
                                    {classes.data(), {}});

  const nn::Init init{nn::Init::Kind::uniform, 0.3};
  std::vector<nn::LayerPtr<double>> layers{
      std::make_shared<nn::Linear<double>>(kInputs, ordeal.hidden, true, init, init),
      std::make_shared<Hesitant>(delays)};
  if (ordeal.normed)
    layers.push_back(std::make_shared<nn::BatchNorm<double>>(
        nn::BatchNorm<double>::Options{.channels = ordeal.hidden, .images = false, .eps = 0.1, .sync = true}));
  layers.push_back(std::make_shared<nn::ActivationLayer<double>>(kernels::Activation::tanh));
  layers.push_back(std::make_shared<nn::Dropout<double>>(0.2));
  layers.push_back(std::make_shared<Hesitant>(delays + 1));
  layers.push_back(std::make_shared<nn::Linear<double>>(ordeal.hidden, kClasses, true, init, init));
  const auto model = std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(layers), 3);

  kernels::Rule rule = kernels::Sgd{0.9};
  if (ordeal.adam) rule = kernels::Adam{0.9, 0.99, 1e-2, false};
  const auto optimizer = std::make_shared<optim::Optimizer<double>>(model->count(), rule);
  optimizer->set_segments({{model->count(), 0.05, 1e-3, false}});
  using Clip = optim::Clip<double>;
  if (ordeal.clipped) optimizer->set_clip(std::make_unique<Clip>(Clip::By::norm, 0.5, model->count()));

  const strategy::DataParallelConfig config{.engine = strategy::PoolConfig{ordeal.workers, ordeal.leaves},
                                            .reducer = ordeal.reducer,
                                            .leaves = ordeal.leaves};
  strategy::Session<double> session(config, {model,
                                             std::make_shared<nn::CrossEntropyLoss<double>>(nn::Reduction::mean),
                                             optimizer,
                                             comm,
                                             {kInputs},
                                             0,
                                             ordeal.batch});
  const Index steps = (kRows + ordeal.batch - 1) / ordeal.batch;
  for (const std::int64_t epoch : {0, 1}) {
    const std::vector<Index> order = data::epoch_order(4, static_cast<std::uint64_t>(epoch), kRows);
    session.run_epoch(source, {order, ordeal.batch, 4, epoch * steps, {}},
                      [](const strategy::EpochSums&) { return false; });
  }
  std::vector<double> trained(model->params->span().begin(), model->params->span().end());
  trained.insert(trained.end(), model->buffers->span().begin(), model->buffers->span().end());
  return trained;
}

/// On one rank: from the beginning in each group that is left, until all of one have come to the end.
std::vector<double> survive(const Ordeal& ordeal, comm::Communicator& world) {
  const auto rank = static_cast<std::size_t>(world.rank());
  if (ordeal.dies[rank] > 0) comm::Communicator::die_after(ordeal.dies[rank]);
  for (std::shared_ptr<comm::Communicator> group = world.shared_from_this();; group = group->shrink()) {
    std::vector<double> trained;
    try {
      trained = undergo(ordeal, ordeal.delays[rank], group->duplicate());
    } catch (const comm::RankFailed&) {  // NOLINT(bugprone-empty-catch): all of them begin again
    }
    if (group->agree(trained.empty() ? 0 : 1) == 1) return trained;
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(those_who_are_left_train_to_the_bits_of_one_alone) {
  tests::random_rounds(20, [](Draw& draw) {
    const Ordeal ordeal(draw);
    std::vector<std::vector<double>> trained(ordeal.dies.size());
    BOOST_CHECK_NO_THROW(comm::run_ranks(static_cast<int>(trained.size()), [&](comm::Communicator& world) {
      trained[static_cast<std::size_t>(world.rank())] = survive(ordeal, world);
    }));
    const std::vector<double> want = undergo(ordeal, 0, comm::make_self());
    for (std::size_t rank = 0; rank < trained.size(); ++rank)
      BOOST_TEST((trained[rank] == want || (trained[rank].empty() && ordeal.dies[rank] > 0)), "rank " << rank);
  });
}

BOOST_AUTO_TEST_SUITE_END()
