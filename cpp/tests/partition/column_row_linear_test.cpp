// Linears cut by columns and by rows: passes, training and what is sent equal those of the whole network.
#include "pdnn/partition/column_row_linear.hpp"

#include <boost/test/unit_test.hpp>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/curves.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/partition/split_layers.hpp"
#include "pdnn/strategy/data_parallel.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::partition;
using namespace pdnn::reduce;
using namespace pdnn::strategy;
using kernels::Activation;

BOOST_AUTO_TEST_SUITE(partition_tensor)

namespace {

using Vector = std::vector<double>;
using Layers = std::vector<nn::LayerPtr<double>>;
using Network = nn::Network<double>;
constexpr Index kRows = 23, kInputs = 6, kClasses = 3, kBatch = 7;  // batches of 7, 7, 7 and 2

nn::LayerPtr<double> linear(Index inputs, Index outputs, bool bias = true) {
  const nn::Init init{nn::Init::Kind::uniform, 0.4};
  return std::make_shared<nn::Linear<double>>(inputs, outputs, bias, init, init);
}
nn::LayerPtr<double> activation(Activation function) { return std::make_shared<nn::ActivationLayer<double>>(function); }
nn::LayerPtr<double> dropout(double p) { return std::make_shared<nn::Dropout<double>>(p); }
nn::LayerPtr<double> batch_norm(Index channels) {
  return std::make_shared<nn::BatchNorm<double>>(
      nn::BatchNorm<double>::Options{.channels = channels, .images = false, .eps = 0.1});
}

struct Case {
  const char* name;
  Layers layers;
};

/// From 6 inputs to 3 classes: every way in which layers are cut or stay whole.
std::vector<Case> cases() {
  return {
      {"one pair", {linear(6, 8), activation(Activation::sigmoid), linear(8, 3)}},
      {"odd widths, no biases", {linear(6, 7, false), activation(Activation::tanh), linear(7, 3, false)}},
      {"fewer columns than ranks", {linear(6, 2), activation(Activation::relu), linear(2, 3)}},
      {"a mask between", {linear(6, 9), activation(Activation::relu), dropout(0.4), linear(9, 3)}},
      {"two pairs",
       {linear(6, 7), activation(Activation::tanh), linear(7, 5), activation(Activation::relu), linear(5, 9, false),
        std::make_shared<nn::CurveLayer<double>>("GELU"), std::make_shared<nn::Flatten<double>>(), dropout(0.3),
        linear(9, 3)}},
      {"nothing between, an odd one behind, activation at the end",
       {dropout(0.2), linear(6, 5), linear(5, 7), activation(Activation::sigmoid), linear(7, 3),
        std::make_shared<nn::LeakyReLU<double>>(0.1)}},
      {"a norm keeps its Linear whole",
       {linear(6, 5), batch_norm(5), activation(Activation::relu), linear(5, 8),
        std::make_shared<nn::LeakyReLU<double>>(0.1), linear(8, 3)}},
      {"panels",
       {linear(6, 131), activation(Activation::tanh), linear(131, 70), activation(Activation::tanh), linear(70, 67),
        linear(67, 3)}},
  };
}

/// Fails on its rank: Boost.Test's macros are for one thread.
void check(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

void check_close(std::span<const double> got, std::span<const double> want, double tolerance, const std::string& what) {
  check(got.size() == want.size(), what + ": another length");
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference = std::max(difference, std::abs(got[i] - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  check(difference <= tolerance * largest, message(what, ": differs by ", difference, " of ", largest));
}

Vector values(std::uint64_t seed, Index count) {
  Vector numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = Rng(seed).normal(i);
  return numbers;
}

NetworkPart<double> part_of_network(const Network& network, const std::shared_ptr<comm::Communicator>& group) {
  return split_layers(layers_of(network, {0, std::ssize(network.layers())}), group);
}

/// The elements of a flat buffer that the blocks name.
Vector taken(std::span<const double> whole, const std::vector<Block>& blocks) {
  Vector part;
  for (const Block& block : blocks)
    for (Index row = 0; row < block.rows; ++row) {
      const auto from = whole.begin() + block.whole + row * block.stride;
      part.insert(part.end(), from, from + block.cols);
    }
  return part;
}

/// One training pass over a batch, forward and back.
struct Passed {
  Passed(const std::shared_ptr<Network>& network, Vector parameters, bool dx_wanted)
      : bound(network->bound({kInputs})),
        params(std::move(parameters)),
        buffers(1, 0.0),
        x(values(1, kBatch * kInputs)),
        y(static_cast<std::size_t>(kBatch * kClasses)),
        dy(values(2, kBatch * kClasses)),
        dx(x.size()),
        grads(params.size()) {
    const nn::Sizes sizes = bound->sizes({kInputs});
    AlignedArray<double> saved(sizes.saved + kBatch * sizes.saved_row),
        scratch(sizes.scratch + kBatch * sizes.scratch_row);
    buffers.resize(static_cast<std::size_t>(nn::total(bound->buffers())));
    const nn::Vars<double> vars{params, buffers, saved.span(), scratch.span()};
    const nn::Member alone;
    const nn::Pass pass{.team = &alone, .key = Rng(5), .first_row = 3};
    bound->forward(pass, vars, {x.data(), kBatch, {kInputs}}, {y.data(), kBatch, {kClasses}});
    bound->backward(pass, vars, {x.data(), kBatch, {kInputs}}, {y.data(), kBatch, {kClasses}},
                    {dy.data(), kBatch, {kClasses}}, {dx_wanted ? dx.data() : nullptr, kBatch, {kInputs}}, grads);
  }
  std::shared_ptr<const Network> bound;
  Vector params, buffers, x, y, dy, dx, grads;
};

/// How ranks train: every `tensor` of them hold a model together.
struct Plan {
  int tensor = 1;
  int threads = 1;
  bool adam = false;
  ReducerOptions reducer{};
};

struct Outcome {
  Vector params, grads, buffers, memory;
  double loss, correct;
};

/// Two epochs.
Outcome train(const Layers& layers, const Plan& plan, comm::Communicator& comm) {
  const Vector x = values(3, kRows * kInputs);
  std::vector<std::int32_t> classes;
  for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kClasses));
  const Source<double> source{{x.data(), Samples::Format::float64, kRows, kInputs, {kInputs}}, {classes.data(), {}}};
  const auto network = std::make_shared<Network>(layers);
  const auto whole = std::make_shared<nn::Model<double>>(network, 3);
  const kernels::Rule rule = plan.adam ? kernels::Rule(kernels::Adam{}) : kernels::Rule(kernels::Sgd{0.9});
  const auto optimizer = std::make_shared<optim::Optimizer<double>>(whole->count(), rule);
  optimizer->set_segments({{whole->count(), plan.adam ? 1e-2 : 0.1, 1e-3, false}});

  const auto replica = comm.split(comm.rank() / plan.tensor, comm.rank());
  const auto data = comm.split(comm.rank() % plan.tensor, comm.rank());
  const bool split = replica->size() > 1;
  const NetworkPart<double> own =
      split ? part_of_network(*network, replica) : layers_of(*network, {0, std::ssize(network->layers())});
  const auto bound = Network(own.layers).bound({kInputs})->with_panels();
  PartialModel<double> part(whole, optimizer, own, replica, bound->layout());
  nn::Model<double>& model = part.model();
  const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
  const Job<double> job{model, *bound, loss, {kInputs}};
  DataParallel<double> strategy(
      job, part.optimizer(), std::make_unique<TeamEngine<double>>(job, plan.threads, kBatch), data,
      {.reducer = plan.reducer, .replica = split ? replica : nullptr, .counts = replica->rank() == 0});
  EpochSums sums;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    part.take();
    const std::vector<Index> order = epoch_order(4, epoch, kRows);
    sums = strategy.run_epoch(source, {order, kBatch, 4, static_cast<std::int64_t>(epoch) * 4, {}},
                              [](const EpochSums&) { return false; });
    part.gather();
  }
  const auto copy = [](std::span<const double> from) { return Vector(from.begin(), from.end()); };
  return {copy(whole->params->span()),
          copy(whole->grads->span().first(static_cast<std::size_t>(whole->count()))),
          copy(whole->buffers->span()),
          copy(optimizer->state()[0].span()),
          sums.loss,
          sums.correct};
}

std::vector<Outcome> train_on_ranks(const Layers& layers, const Plan& plan, int ranks) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    outcomes[static_cast<std::size_t>(comm.rank())] = train(layers, plan, comm);
  });
  return outcomes;
}

Outcome train_alone(const Layers& layers, bool adam = false) {
  return train(layers, {.adam = adam}, *comm::make_self());
}

void check_equal(const Outcome& got, const Outcome& want, double tolerance, const std::string& what) {
  check_close(got.params, want.params, tolerance, what + ", parameters");
  check_close(got.grads, want.grads, tolerance, what + ", gradients");
  check_close(got.buffers, want.buffers, tolerance, what + ", buffers");
  check_close(got.memory, want.memory, tolerance, what + ", the optimizer's state");
  check(std::abs(got.loss - want.loss) <= tolerance * std::abs(want.loss), what + ", loss");
  check(got.correct == want.correct, what + ", correct");
}

std::string reason(const Layers& layers) {
  try {
    part_of_network(Network(layers), comm::make_self());
  } catch (const ValueError& error) {
    return error.what();
  }
  return "split";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_pass_over_parts_is_a_pass_over_the_whole) {
  for (const Case& test : cases())
    for (const int ranks : {1, 2, 3, 4}) {
      const auto network = std::make_shared<Network>(test.layers);
      Vector params(static_cast<std::size_t>(nn::total(network->parameters())));
      Vector buffers(static_cast<std::size_t>(nn::total(network->buffers())));
      network->initialize(Rng(7), params, buffers);
      const Passed whole(network, params, true);
      BOOST_CHECK_NO_THROW(comm::run_ranks(ranks, [&](comm::Communicator& comm) {
        const auto part = part_of_network(*network, comm.split(0, comm.rank()));
        const Passed own(std::make_shared<Network>(part.layers), taken(params, part.params), true);
        check_close(own.y, whole.y, 1e-14, message(test.name, ", y"));
        check_close(own.dx, whole.dx, 1e-14, message(test.name, ", dx"));
        check_close(own.grads, taken(whole.grads, part.params), 1e-14, message(test.name, ", gradients"));
      }));
    }
}

BOOST_AUTO_TEST_CASE(a_rank_draws_its_part_of_what_the_whole_network_draws) {
  for (const Case& test : cases()) {
    const Network network(test.layers);
    Vector params(static_cast<std::size_t>(nn::total(network.parameters())));
    Vector buffers(static_cast<std::size_t>(nn::total(network.buffers())));
    network.initialize(Rng(7), params, buffers);
    BOOST_CHECK_NO_THROW(comm::run_ranks(3, [&](comm::Communicator& comm) {
      const auto part = part_of_network(network, comm.split(0, comm.rank()));
      Vector own(static_cast<std::size_t>(count(part.params))), own_buffers(buffers.size());
      Network(part.layers).initialize(Rng(7), own, own_buffers);
      check(own == taken(params, part.params), test.name);
    }));
  }
}

BOOST_AUTO_TEST_CASE(ranks_together_train_as_one_alone_and_all_hold_the_whole_with_the_same_bits) {
  for (const Case& test : cases()) {
    const Outcome serial = train_alone(test.layers);
    for (const Plan& plan : {Plan{.tensor = 2}, Plan{.tensor = 3}, Plan{.tensor = 2, .threads = 2}}) {
      const std::string what = message(test.name, ", tp:", plan.tensor, "+team:", plan.threads);
      const std::vector<Outcome> outcomes = train_on_ranks(test.layers, plan, plan.tensor);
      for (const Outcome& outcome : outcomes) {
        BOOST_CHECK_NO_THROW(check_equal(outcome, serial, 1e-12, what));
        BOOST_CHECK_NO_THROW(check_equal(outcome, outcomes[0], 0, what));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(replicas_of_split_models_train_as_one_alone) {
  using Memory = ReducerOptions::Memory;
  for (const Case& test : cases()) {
    if (nn::total(Network(test.layers).buffers()) > 0) continue;  // each rank normalizes its own rows
    const Outcome serial = train_alone(test.layers, true);
    for (const ReducerOptions& reducer :
         {ReducerOptions{Memory::shared, 0, nullptr}, ReducerOptions{Memory::messages, 512, nullptr}}) {
      const int threads = reducer.memory == Memory::shared ? 1 : 2;
      const Plan plan{.tensor = 2, .threads = threads, .adam = true, .reducer = reducer};
      const std::vector<Outcome> outcomes = train_on_ranks(test.layers, plan, 4);
      for (const Outcome& outcome : outcomes) {
        BOOST_CHECK_NO_THROW(check_equal(outcome, serial, 1e-11, test.name));
        BOOST_CHECK_NO_THROW(check_equal(outcome, outcomes[0], 0, test.name));
      }
    }
    const Plan three{.tensor = 3, .adam = true, .reducer = {Memory::shared, 0, nullptr}};  // one has no column of two
    for (const Outcome& outcome : train_on_ranks(test.layers, three, 6))
      BOOST_CHECK_NO_THROW(check_equal(outcome, serial, 1e-11, test.name));
  }
}

BOOST_AUTO_TEST_CASE(a_pair_sends_its_output_forward_and_its_dx_back_if_somebody_wants_it) {
  const Network network(cases()[0].layers);
  for (const bool dx_wanted : {false, true})
    BOOST_CHECK_NO_THROW(comm::run_ranks(2, [&](comm::Communicator& comm) {
      const std::shared_ptr<comm::Communicator> group = comm.split(0, comm.rank());
      if (comm.rank() == 0) {
        const auto part = part_of_network(network, group);
        const Passed pass(std::make_shared<Network>(part.layers), values(4, count(part.params)), dx_wanted);
      } else {  // any other call, or length, is an error on both
        Vector y(static_cast<std::size_t>(kBatch * kClasses)), dx(static_cast<std::size_t>(kBatch * kInputs));
        group->all_reduce(std::span(y));
        if (dx_wanted) group->all_reduce(std::span(dx));
      }
      group->barrier();
    }));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_split_is_refused_with_the_reason) {
  const auto says = [](const Layers& layers, const char* words) {
    BOOST_TEST(reason(layers).find(words) != std::string::npos, reason(layers));
  };
  says({linear(6, 3)}, "no two Linear layers");
  says({linear(6, 5), batch_norm(5)}, "no two Linear layers");
  says({linear(6, 5), batch_norm(5), linear(5, 3)}, "between layer 0 and the next Linear is BatchNorm");
  says({linear(6, 5), batch_norm(5), linear(5, 3), batch_norm(3)},
       "between layer 0 and the next Linear is BatchNorm1d, layer 1");
  const auto first = std::dynamic_pointer_cast<const nn::Linear<double>>(linear(6, 4));
  says({std::make_shared<ColumnParallelLinear<double>>(*first, comm::make_self()), linear(4, 3)}, "split already");
}

BOOST_AUTO_TEST_CASE(a_pool_is_refused_as_its_pieces_would_meet_in_any_order) {
  nn::Model<double> model(
      std::make_shared<Network>(part_of_network(Network(cases()[0].layers), comm::make_self()).layers), 1);
  const auto bound = model.bound({kInputs});
  const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
  BOOST_CHECK_THROW(PoolEngine<double>({model, *bound, loss, {kInputs}}, 2, 2, kBatch), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
