// Hogwild: one worker is serial; several lose no row and no error, and what they miss of each other is counted.
#include "pdnn/strategy/hogwild.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <thread>

#include "pdnn/core/errors.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/partition/network_part.hpp"
#include "pdnn/strategy/data_parallel.hpp"
#include "ranks.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::reduce;
using namespace pdnn::strategy;

BOOST_AUTO_TEST_SUITE(strategy_hogwild)

namespace {

using Vector = std::vector<double>;
constexpr Index kRows = 23, kInputs = 6, kOutputs = 3, kBatch = 4;

/// The squared error, which shows each batch's targets to somebody before it is computed.
class WatchedLoss : public nn::MSELoss<double> {
 public:
  using Watch = std::function<void(const Matrix<const double>&)>;
  explicit WatchedLoss(Watch watch) : nn::MSELoss<double>(nn::Reduction::mean), watch_(std::move(watch)) {}

 protected:
  void compute(const Member& member, const Tensor<const double>& y, const nn::Target<double>& target, double scale,
               const Tensor<double>& dy, double* rows) const override {
    watch_({target.values.data, y.batch, kOutputs, target.values.stride});
    nn::MSELoss<double>::compute(member, y, target, scale, dy, rows);
  }

 private:
  Watch watch_;
};

struct Plan {
  int workers = 1;
  bool serial = false;
  bool norm = false, synchronized = false, adam = false;
  double clip_norm = 0;
  Index hidden = 8, first_row = 0, rows = kRows;
  bool panels = false, rates = false;
  int epochs = 2;
  WatchedLoss::Watch watch = [](const Matrix<const double>&) {};
  Poll poll = [](const EpochSums&) { return false; };
};

struct Outcome {
  Vector params;  // and behind them the buffers
  EpochSums sums;
};

/// The first target of row r is r / 64.
Index row_of(double target) { return static_cast<Index>(target * 64); }

Outcome train(const Plan& plan, const std::shared_ptr<comm::Communicator>& comm) {
  Vector x(kRows * kInputs), t(kRows * kOutputs);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Rng(1).uniform(i) - 0.5;
  for (std::size_t i = 0; i < t.size(); ++i) t[i] = Rng(2).uniform(i);
  for (Index row = 0; row < kRows; ++row) t[static_cast<std::size_t>(row * kOutputs)] = static_cast<double>(row) / 64;
  const Source<double> source({x.data(), Samples::Format::float64, kRows, kInputs, {kInputs}, 2, 0},
                              {nullptr, {t.data(), kRows, kOutputs}});
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const Index hidden = plan.hidden;
  std::vector<nn::LayerPtr<double>> layers{std::make_shared<nn::Linear<double>>(kInputs, hidden, true, init, init)};
  if (plan.norm)
    layers.push_back(std::make_shared<nn::BatchNorm<double>>(
        nn::BatchNorm<double>::Options{.channels = hidden, .images = false, .eps = 0.1, .sync = plan.synchronized}));
  else
    layers.push_back(std::make_shared<nn::Dropout<double>>(0.2));
  layers.push_back(std::make_shared<nn::Linear<double>>(hidden, kOutputs, true, init, init));
  const auto whole = std::make_shared<nn::Model<double>>(std::make_shared<nn::Network<double>>(layers), 3);
  const auto bound = whole->bound({kInputs}), network = plan.panels ? bound->with_panels() : bound;
  const WatchedLoss loss(plan.watch);
  const kernels::Rule rule =
      plan.adam ? kernels::Rule(kernels::Adam{0.9, 0.999, 1e-8, false}) : kernels::Rule(kernels::Sgd{0.5});
  const auto optimizer = std::make_shared<optim::Optimizer<double>>(whole->count(), rule);
  optimizer->set_segments({{whole->count(), plan.adam ? 0.01 : 0.05, 1e-3, false}});
  if (plan.clip_norm > 0) {
    using Clip = optim::Clip<double>;
    optimizer->set_clip(std::make_unique<Clip>(Clip::By::norm, plan.clip_norm, whole->count()));
  }
  partition::PartialModel<double> copy(whole, optimizer, network->layout());
  nn::Model<double>& model = copy.model();
  const Job<double> job{model, *network, loss, {kInputs}};
  std::unique_ptr<Strategy<double>> strategy;
  if (plan.serial)
    strategy = std::make_unique<DataParallel<double>>(job, copy.optimizer(),
                                                      std::make_unique<TeamEngine<double>>(job, 1, kBatch), comm);
  else
    strategy = std::make_unique<Hogwild<double>>(job, copy.optimizer(), comm, plan.workers, kBatch);
  Outcome outcome;
  std::int64_t steps = 0;
  const Vector rates{0.05, 0.02, 0.1, 0.03, 0.01, 0.08};
  for (int epoch = 0; epoch < plan.epochs; ++epoch) {
    copy.take();
    std::vector<Index> order = epoch_order(4, static_cast<std::uint64_t>(epoch), kRows);
    order.erase(order.begin(), order.begin() + plan.first_row);
    order.resize(static_cast<std::size_t>(plan.rows), 0);
    const Matrix<const double> schedule =
        plan.rates ? Matrix<const double>(rates.data(), 6, 1) : Matrix<const double>();
    outcome.sums = strategy->run_epoch(source, {order, kBatch, 4, steps, schedule}, plan.poll);
    steps += outcome.sums.steps;
    copy.gather();
  }
  outcome.params.assign(whole->params->data(), whole->params->data() + whole->count());
  outcome.params.insert(outcome.params.end(), whole->buffers->data(), whole->buffers->data() + whole->buffers->size());
  return outcome;
}

Outcome alone(const Plan& plan) { return train(plan, comm::make_self()); }

/// One worker on each rank.
std::vector<Outcome> on_ranks(const Plan& plan, int ranks) {
  return tests::on_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& comm) { return train(plan, comm); });
}

/// Waits in the first `count` calls until there were as many: so many workers are at work at the same time.
WatchedLoss::Watch meeting_of(int count, std::atomic<int>& arrived) {
  return [count, &arrived](const Matrix<const double>&) {
    ++arrived;
    while (arrived < count) std::this_thread::yield();
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_worker_is_serial_bit_for_bit) {
  for (const Plan& plan : {Plan{}, Plan{.norm = true, .adam = true}, Plan{.clip_norm = 0.1}, Plan{.rates = true},
                           Plan{.hidden = 70, .panels = true}}) {
    Plan reference = plan;
    reference.serial = true;
    const Outcome want = alone(reference), got = alone(plan);
    BOOST_TEST(got.params == want.params, boost::test_tools::per_element());
    BOOST_TEST(got.sums.loss == want.sums.loss);
    BOOST_TEST(got.sums.staleness.sum == 0);
    BOOST_TEST(got.sums.staleness.most == 0);
    BOOST_TEST(on_ranks(plan, 1)[0].params == want.params, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(every_row_is_taken_once_an_epoch_and_every_update_is_counted) {
  std::vector<std::atomic<int>> seen(kRows);
  Plan plan{.watch = [&](const Matrix<const double>& targets) {
    for (Index r = 0; r < targets.rows; ++r) ++seen[static_cast<std::size_t>(row_of(*targets.row(r)))];
  }};
  const auto check = [&](const Outcome& outcome) {
    BOOST_TEST(outcome.sums.rows == kRows);
    BOOST_TEST(outcome.sums.updates == 6);
    BOOST_TEST(outcome.sums.steps == 6);
  };
  int times = 0;
  for (const int workers : {1, 2, 3, 8}) {  // more than there are batches, too
    plan.workers = workers;
    check(alone(plan));
    times += plan.epochs;
    for (const std::atomic<int>& count : seen) BOOST_TEST(count == times);
  }
  plan.workers = 1;
  for (const int ranks : {2, 4}) {
    const std::vector<Outcome> outcomes = on_ranks(plan, ranks);
    times += plan.epochs;
    for (const std::atomic<int>& count : seen) BOOST_TEST(count == times);
    for (const Outcome& outcome : outcomes) {
      check(outcome);
      BOOST_TEST(outcome.params == outcomes[0].params, boost::test_tools::per_element());
      BOOST_TEST(outcome.sums.loss == outcomes[0].sums.loss);
      BOOST_TEST(outcome.sums.staleness.sum == outcomes[0].sums.staleness.sum);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_update_from_an_older_copy_is_counted_as_stale) {
  const auto check = [](const EpochSums& sums, int workers) {  // all have copied before the first update
    BOOST_TEST(sums.staleness.sum == workers * (workers - 1) / 2);
    BOOST_TEST(sums.staleness.most == workers - 1);
  };
  for (const int workers : {2, 3}) {
    std::atomic<int> threads{0}, ranks{0};
    check(
        alone({.workers = workers, .rows = workers * kBatch, .epochs = 1, .watch = meeting_of(workers, threads)}).sums,
        workers);
    const Plan plan{.rows = workers * kBatch, .epochs = 1, .watch = meeting_of(workers, ranks)};
    for (const Outcome& outcome : on_ranks(plan, workers)) check(outcome.sums, workers);
  }
}

BOOST_AUTO_TEST_CASE(buffers_are_averaged_by_rows) {
  // Two workers with a batch each, of 4 and of 2 rows, which begin together.
  const auto buffers = [](const Outcome& outcome) { return Vector(outcome.params.end() - 16, outcome.params.end()); };
  const Vector four = buffers(alone({.serial = true, .norm = true, .rows = 4, .epochs = 1}));
  const Vector two = buffers(alone({.serial = true, .norm = true, .first_row = 4, .rows = 2, .epochs = 1}));
  std::atomic<int> threads{0}, ranks{0};
  const Plan plan{.norm = true, .rows = 6, .epochs = 1, .watch = meeting_of(2, ranks)};
  std::vector<Outcome> outcomes = on_ranks(plan, 2);
  outcomes.push_back(alone({.workers = 2, .norm = true, .rows = 6, .epochs = 1, .watch = meeting_of(2, threads)}));
  for (const Outcome& outcome : outcomes)
    for (std::size_t i = 0; i < four.size(); ++i)
      BOOST_TEST(std::abs(buffers(outcome)[i] - (4 * four[i] + 2 * two[i]) / 6) <= 1e-15);
}

BOOST_AUTO_TEST_CASE(workers_keep_their_optimizer_state_until_the_callers_is_changed) {
  std::atomic<int> arrived{0};
  const WatchedLoss loss([&](const Matrix<const double>&) {  // each of two takes a batch an epoch
    const int pairs = (arrived++ / 2) + 1;
    while (arrived < 2 * pairs) std::this_thread::yield();
  });
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  const std::vector<nn::LayerPtr<double>> layers{std::make_shared<nn::Linear<double>>(1, kOutputs, false, init, init)};
  nn::Model<double> model(std::make_shared<nn::Network<double>>(layers), 3);
  const auto network = model.bound({1});
  optim::Optimizer<double> optimizer(model.count(), kernels::Sgd{0.5});
  optimizer.set_segments({{model.count(), 0.1, 0, false}});
  Hogwild<double> hogwild({model, *network, loss, {1}}, optimizer, comm::make_self(), 2, 1);
  const Vector first(model.params->data(), model.params->data() + model.count()), x{1, 1, 0, 0};
  Vector t(4 * kOutputs);
  for (std::size_t i = 0; i < kOutputs; ++i) {  // the velocities of the two are opposites
    t[i] = first[i] - 1;
    t[kOutputs + i] = first[i] + 1;
  }
  const Source<double> source({x.data(), Samples::Format::float64, 4, 1, {1}}, {nullptr, {t.data(), 4, kOutputs}});
  const auto params_after = [&](const std::vector<Index>& order) {
    hogwild.run_epoch(source, {order, 1, 4, 0, {}}, [](const EpochSums&) { return false; });
    return Vector(model.params->data(), model.params->data() + model.count());
  };
  const Vector moved = params_after({0, 1}),
               velocity(optimizer.state()[0].data(), optimizer.state()[0].data() + kOutputs);
  const Vector coasted = params_after({2, 3});  // the gradients are 0: half of each velocity, or of one, if both meet
  for (std::size_t i = 0; i < first.size(); ++i) {
    BOOST_TEST(velocity[i] != 0);
    BOOST_TEST(std::abs(coasted[i] - moved[i]) <= std::abs(velocity[i]) / 2 + 1e-15);
  }
  optimizer.scale_state(0);
  BOOST_TEST(params_after({2, 3}) == coasted, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(several_workers_learn_as_one_does) {
  for (Plan plan : {Plan{}, Plan{.adam = true}, Plan{.clip_norm = 2, .hidden = 70, .panels = true}}) {
    plan.serial = true;
    plan.epochs = 1;
    const double begin = alone(plan).sums.loss;
    plan.epochs = 60;
    const double serial = alone(plan).sums.loss;
    BOOST_TEST(serial < 0.5 * begin);
    plan.serial = false;
    const double half_way = (begin + serial) / 2;  // who meets whom is chance
    BOOST_TEST(on_ranks(plan, 3)[0].sums.loss < half_way);
    plan.workers = 4;
    BOOST_TEST(alone(plan).sums.loss < half_way);
  }
}

BOOST_AUTO_TEST_CASE(a_worker_that_fails_ends_all_of_them) {
  for (const int failing : {0, 5}) {
    std::atomic<int> calls{0};
    const Plan plan{.workers = 3, .watch = [&](const Matrix<const double>&) {
                      if (calls++ == failing) throw std::domain_error("enough");
                    }};
    BOOST_CHECK_THROW(alone(plan), std::domain_error);
    calls = 0;
    BOOST_CHECK_THROW(on_ranks({.watch = plan.watch}, 3), std::domain_error);
  }
}

BOOST_AUTO_TEST_CASE(a_wish_to_stop_ends_all_of_them) {
  const auto slow = [](const Matrix<const double>&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  const Plan plan{.rows = 4000 * kBatch, .epochs = 1, .watch = slow, .poll = [](const EpochSums& sums) {
                    return sums.rows > 0 && sums.seconds > 0 && sums.steps > 0;
                  }};
  Plan threads = plan;
  threads.workers = 3;
  std::vector<Outcome> outcomes = on_ranks(plan, 2);
  outcomes.push_back(alone(threads));
  for (const Outcome& outcome : outcomes) {
    BOOST_TEST(outcome.sums.stopped);
    BOOST_TEST(outcome.sums.updates < 4000);
    BOOST_TEST(outcome.sums.rows == outcome.sums.updates * kBatch);
  }
  Plan failing = threads;
  failing.poll = [](const EpochSums&) -> bool { throw std::domain_error("interrupted"); };
  BOOST_CHECK_THROW(alone(failing), std::domain_error);
}

BOOST_AUTO_TEST_CASE(a_wish_to_stop_concerns_its_own_epoch) {
  const auto slow = [](const Matrix<const double>&) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  std::atomic<bool> asked = false;
  const Plan plan{.workers = 2, .rows = 50 * kBatch, .epochs = 2, .watch = slow, .poll = [&](const EpochSums&) {
                    return !asked.exchange(true);
                  }};
  const Outcome second = alone(plan);
  BOOST_TEST(asked);
  BOOST_TEST(!second.sums.stopped);
  BOOST_TEST(second.sums.rows == plan.rows);
}

BOOST_AUTO_TEST_CASE(ranks_hear_at_the_next_look_that_one_has_failed) {
  const auto slow = [](const Matrix<const double>&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  const auto looks = tests::on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
    int seen = 0;
    const Plan plan{.rows = 4000 * kBatch, .epochs = 1, .watch = slow, .poll = [&](const EpochSums&) {
                      if (++seen == 1) comm->notify(comm::Notice::failed);
                      return false;
                    }};
    try {
      train(plan, comm);
    } catch (const Aborted&) {
      return seen;
    }
    return -1;
  });
  for (const int seen : looks) BOOST_TEST((seen == 0 || seen == 1));
}

BOOST_AUTO_TEST_CASE(layers_that_synchronize_are_refused) {
  BOOST_CHECK_THROW(alone({.workers = 2, .norm = true, .synchronized = true}), ValueError);
  BOOST_CHECK_THROW(on_ranks({.norm = true, .synchronized = true}, 2), ValueError);
}

BOOST_AUTO_TEST_CASE(a_shared_vector_gives_back_what_it_got) {
  const auto self = comm::make_self();
  for (const Index count : {0, 1, 2, 7, 64, 4097}) {
    SharedVector<float> shared(*self, count);
    std::vector<float> values(static_cast<std::size_t>(count)), got(values.size() + 1, -1);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(Rng(1).uniform(i));
    shared.store({0, count}, values.data());
    const Index middle = count / 2 / SharedVector<float>::kAlign * SharedVector<float>::kAlign;
    shared.load({middle, count}, got.data() + middle);
    shared.load({0, middle}, got.data());
    BOOST_TEST(got.back() == -1);
    got.pop_back();
    BOOST_TEST(got == values, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()
