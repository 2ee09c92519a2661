// A pipeline's gradient is the whole network's over as many pieces, for every schedule and any number of micro-batches.
#include "pdnn/engine/pipeline_engine.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>

#include "allocations.hpp"
#include "pdnn/codec/make_codec.hpp"
#include "pdnn/comm/thread_group.hpp"
#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/conv2d.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/layers/pool2d.hpp"
#include "pdnn/nn/layers/residual.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;

BOOST_AUTO_TEST_SUITE(engine_pipeline)

namespace {

using Vector = std::vector<double>;
using Layers = std::vector<nn::LayerPtr<double>>;
using Network = nn::Network<double>;
using nn::total;
constexpr Index kRows = 30, kClasses = 3, kFirstRow = 4;
constexpr nn::Init kInit{nn::Init::Kind::uniform, 0.5};

nn::LayerPtr<double> linear(Index inputs, Index outputs) {
  return std::make_shared<nn::Linear<double>>(inputs, outputs, true, kInit, kInit);
}
nn::LayerPtr<double> conv(Index inputs, Index outputs) {
  return std::make_shared<nn::Conv2d<double>>(inputs, outputs, nn::WindowOptions{3, 1, 1}, true, kInit, kInit);
}
nn::LayerPtr<double> activation(kernels::Activation f) { return std::make_shared<nn::ActivationLayer<double>>(f); }
nn::LayerPtr<double> dropout() { return std::make_shared<nn::Dropout<double>>(0.3); }
nn::LayerPtr<double> norm(Index channels, bool sync = false) {
  return std::make_shared<nn::BatchNorm<double>>(
      nn::BatchNorm<double>::Options{.channels = channels, .images = false, .eps = 0.1, .sync = sync});
}
nn::LayerPtr<double> residual(Layers layers) {
  return std::make_shared<nn::Residual<double>>(std::make_shared<Network>(std::move(layers)));
}

struct Problem {
  Layers layers;
  Shape sample;
};
Problem features() {
  using enum kernels::Activation;
  return {{linear(6, 8), activation(tanh), residual({linear(8, 8), activation(relu), dropout()}), linear(8, 9), norm(9),
           activation(relu), dropout(), linear(9, 8), activation(sigmoid), linear(8, kClasses)},
          {6}};
}
/// Borders lie between images, and before and after a Flatten.
Problem images() {
  return {{conv(2, 4), std::make_shared<nn::MaxPool2d<double>>(nn::WindowOptions{2, 2}),
           activation(kernels::Activation::relu), conv(4, 3), std::make_shared<nn::Flatten<double>>(), dropout(),
           linear(12, 5), linear(5, kClasses)},
          {2, 4, 4}};
}

struct Data {
  explicit Data(const Shape& sample) : shape(sample), x(static_cast<std::size_t>(kRows * sample.count())) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Rng(1).uniform(i) - 0.5;
    for (Index r = 0; r < kRows; ++r) classes.push_back(static_cast<std::int32_t>(r % kClasses));
    indices.resize(kRows);
    std::iota(indices.begin(), indices.end(), Index{0});
    std::reverse(indices.begin() + 3, indices.end());  // the first rows are used in place
  }
  Source<double> source() const {
    return {{x.data(), Samples::Format::float64, kRows, shape.count(), shape, 1, 0}, {classes.data(), {}}};
  }
  Shape shape;
  Vector x;
  std::vector<std::int32_t> classes;
  std::vector<Index> indices;
};

struct Case {
  std::string schedule;
  int ranks;
  Index micro_batches, rows;
  int threads;
  std::string codec{};
  int chunks() const { return schedule == "interleaved" ? 2 : 1; }
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.schedule << ", " << c.ranks << " ranks, " << c.micro_batches << " micro-batches of " << c.rows
             << " rows, " << c.threads << " threads, codec \"" << c.codec << '"';
}

std::vector<Case> cases(const std::vector<int>& ranks) {
  std::vector<Case> all;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
    for (const int p : ranks)
      for (const Index micro_batches : {1, 2, 4, 7})
        for (const Index rows : {23, 5})  // fewer rows than micro-batches, too
          all.push_back({schedule, p, micro_batches, rows, micro_batches == 4 ? 2 : 1});
  return all;
}

Range elements(const Layers& layers, Range range, std::vector<nn::Parameter> (nn::Layer<double>::*arrays)() const) {
  Index at = 0;
  Range found;
  for (Index i = 0; i < range.end; ++i) {
    if (i == range.begin) found.begin = at;
    at += total(((*layers[static_cast<std::size_t>(i)]).*arrays)());
  }
  found.end = at;
  return found;
}

void append(Vector& out, const AlignedArray<double>& from, Range range) {
  out.insert(out.end(), from.data() + range.begin, from.data() + range.end);
}

/// The gradient of two steps, one after another, and what the buffers have become.
struct Outcome {
  Vector grads, buffers;
  nn::LossValue sums;
};

template <class Run>
void two_steps(const Data& data, Index rows, double scale, Run run) {
  const Source<double> source = data.source();
  const std::span<const Index> order(data.indices);
  for (const Index begin : {Index{0}, kRows - rows})
    run(source, Step{.rows = slice(order, begin, rows),
                     .keys = Rng(9).child(static_cast<std::uint64_t>(begin)),
                     .first_row = kFirstRow,
                     .scale = scale});
}

Outcome train_whole(const Problem& problem, const Case& c) {
  const Data data(problem.sample);
  nn::Model<double> model(std::make_shared<Network>(problem.layers), 3);
  const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
  PoolEngine<double> engine({model, *model.bound(problem.sample), loss, problem.sample}, 1, c.micro_batches, c.rows);
  Outcome outcome;
  two_steps(data, c.rows, 0.1, [&](const Source<double>& source, const Step& step) {
    const nn::LossValue own = engine.gradient(source, step, {});
    outcome.sums.value += own.value;
    outcome.sums.correct += own.correct;
    append(outcome.grads, *model.grads, {0, model.count()});
  });
  append(outcome.buffers, *model.buffers, {0, model.buffers->size()});
  return outcome;
}

/// What a rank holds: its stages of the whole network, in a model of their own.
struct Held {
  Held(const Problem& problem, int rank, int ranks, int chunks) {
    const nn::Model<double> whole(std::make_shared<Network>(problem.layers), 3);
    Layers own;
    Shape shape = problem.sample;
    for (int stage = 0; stage < ranks * chunks; ++stage) {
      const Range range = share(std::ssize(problem.layers), stage, ranks * chunks);
      const Layers layers(problem.layers.begin() + range.begin, problem.layers.begin() + range.end);
      const auto network = std::make_shared<Network>(layers, range.begin);
      if (stage % ranks == rank) {
        networks.push_back(network->bound(shape)->with_panels());
        shapes.push_back(shape);
        own.insert(own.end(), layers.begin(), layers.end());
        params.push_back(elements(problem.layers, range, &nn::Layer<double>::parameters));
        buffers.push_back(elements(problem.layers, range, &nn::Layer<double>::buffers));
      }
      shape = network->output_shape(shape);
    }
    model = std::make_unique<nn::Model<double>>(std::make_shared<Network>(own), 0);
    double* at = model->params->data();
    for (const Range& range : params)
      at = std::copy(whole.params->data() + range.begin, whole.params->data() + range.end, at);
    at = model->buffers->data();
    for (const Range& range : buffers)
      at = std::copy(whole.buffers->data() + range.begin, whole.buffers->data() + range.end, at);
  }

  PipelineEngine<double> engine(const nn::Loss<double>& loss, const std::shared_ptr<comm::Communicator>& comm,
                                const Case& c) {
    std::vector<Chunk<double>> chunks;
    for (std::size_t i = 0; i < networks.size(); ++i) chunks.push_back({*networks[i], shapes[i]});
    return {{*model, *networks[0], loss, shapes[0]},
            chunks,
            comm,
            {c.schedule, c.micro_batches, c.threads, c.codec},
            c.rows};
  }

  std::vector<std::shared_ptr<const Network>> networks;
  std::vector<Shape> shapes;
  std::unique_ptr<nn::Model<double>> model;
  std::vector<Range> params, buffers;  // of each chunk, in the whole model
};

/// f(communicator) on threads, each with its own end.
void on_ranks(int ranks, const std::function<void(const std::shared_ptr<comm::Communicator>&)>& f) {
  comm::run_ranks(ranks, [&](comm::Communicator& comm) { f(comm.split(0, comm.rank())); });
}

Outcome train_pipeline(const Problem& problem, const Case& c) {
  const Data data(problem.sample);
  const Range all{0, std::ssize(problem.layers)};
  const Index params = elements(problem.layers, all, &nn::Layer<double>::parameters).end;
  Outcome outcome{Vector(static_cast<std::size_t>(2 * params)),
                  Vector(static_cast<std::size_t>(elements(problem.layers, all, &nn::Layer<double>::buffers).end)),
                  {}};
  on_ranks(c.ranks, [&](const std::shared_ptr<comm::Communicator>& comm) {
    Held held(problem, comm->rank(), c.ranks, c.chunks());
    const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
    PipelineEngine<double> engine = held.engine(loss, comm, c);
    Index offset = 0;
    two_steps(data, c.rows, 0.1, [&](const Source<double>& source, const Step& step) {
      const nn::LossValue own = engine.gradient(source, step, {});
      if (comm->rank() + 1 == c.ranks) {
        outcome.sums.value += own.value;
        outcome.sums.correct += own.correct;
      } else if (own.value != 0 || own.correct != 0) {
        throw std::logic_error("a rank without the last stage reports a loss");
      }
      const double* from = held.model->grads->data();
      for (const Range& range : held.params) {
        std::copy_n(from, range.size(), outcome.grads.data() + offset + range.begin);
        from += range.size();
      }
      offset += params;
    });
    const double* from = held.model->buffers->data();
    for (const Range& range : held.buffers) {
      std::copy_n(from, range.size(), outcome.buffers.data() + range.begin);
      from += range.size();
    }
  });
  return outcome;
}

void check_close(const Vector& got, const Vector& want) {
  BOOST_TEST_REQUIRE(got.size() == want.size());
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference = std::max(difference, std::abs(got[i] - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  BOOST_TEST(difference <= 1e-13 * largest);
}

void check_equal(const Problem& problem, const Case& c) {
  BOOST_TEST_CONTEXT(c) {
    const Outcome got = train_pipeline(problem, c), want = train_whole(problem, c);
    check_close(got.grads, want.grads);
    check_close(got.buffers, want.buffers);
    BOOST_TEST(got.sums.value == want.sums.value, boost::test_tools::tolerance(1e-13));
    BOOST_TEST(got.sums.correct == want.sums.correct);
  }
}

/// y = x; counts passes that are between forward and backward.
class Probe : public nn::Layer<double> {
 public:
  struct Count {
    int now = 0, most = 0;
  };
  explicit Probe(Count& count) : count_(count) {}
  std::string_view name() const override { return "Probe"; }
  void forward(const nn::Pass& pass, nn::Vars<double>, Tensor<const double> x, Tensor<double> y) const override {
    if (!pass.team->first()) return;
    std::copy_n(x.data, x.count(), y.data);
    count_.most = std::max(count_.most, ++count_.now);
  }
  void backward(const nn::Pass& pass, nn::Vars<double>, Tensor<const double>, Tensor<const double>,
                Tensor<const double> dy, Tensor<double> dx, std::span<double>) const override {
    if (!pass.team->first()) return;
    std::copy_n(dy.data, dy.count(), dx.data);
    --count_.now;
  }

 private:
  Count& count_;
};

/// Passes nothing on.
class Broken : public nn::Layer<double> {
 public:
  std::string_view name() const override { return "Broken"; }
  void forward(const nn::Pass&, nn::Vars<double>, Tensor<const double>, Tensor<double>) const override {
    throw ValueError("Broken: cannot");
  }
  void backward(const nn::Pass&, nn::Vars<double>, Tensor<const double>, Tensor<const double>, Tensor<const double>,
                Tensor<double>, std::span<double>) const override {}
};

/// Keeps the gradient as it is when it is announced.
struct Listener : nn::GradReady {
  explicit Listener(const nn::Model<double>& owner) : model(owner), told(static_cast<std::size_t>(owner.count())) {}
  void operator()(const Member& member, Range slice) override {
    if (!member.first()) return;
    falling = falling && slice.end == lowest;
    lowest = slice.begin;
    std::copy(model.grads->data() + slice.begin, model.grads->data() + slice.end, told.data() + slice.begin);
  }
  const nn::Model<double>& model;
  Vector told;
  Index lowest = model.count();
  bool falling = true;
};

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_and_buffers_are_those_of_the_whole_network_over_as_many_pieces) {
  const Problem problem = features();
  for (const Case& c : cases({1, 2, 3, 4})) check_equal(problem, c);
}

BOOST_AUTO_TEST_CASE(images_may_pass_from_stage_to_stage) {
  const Problem problem = images();
  for (const Case& c : cases({2, 3})) check_equal(problem, c);
}

BOOST_AUTO_TEST_CASE(a_rank_holds_no_more_micro_batches_than_its_schedule_says) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
    for (const int ranks : {1, 2, 3, 4})
      for (const Index micro_batches : {1, 2, 4, 7}) {
        const Case c{schedule, ranks, micro_batches, 10, 1};
        std::vector<Probe::Count> counts(static_cast<std::size_t>(ranks));
        Problem problem{{}, {6}};
        for (int stage = 0; stage < ranks * c.chunks(); ++stage) {
          const bool last = stage + 1 == ranks * c.chunks();
          problem.layers.push_back(linear(6, last ? kClasses : 6));
          problem.layers.push_back(std::make_shared<Probe>(counts[static_cast<std::size_t>(stage % ranks)]));
        }
        train_pipeline(problem, c);
        for (int rank = 0; rank < ranks; ++rank) {
          const Program program = make_program(schedule, {rank, ranks, micro_batches, c.chunks()});
          const Probe::Count& count = counts[static_cast<std::size_t>(rank)];
          BOOST_TEST(count.most == in_flight(program), c << ", rank " << rank);
          BOOST_TEST(count.now == 0);
        }
      }
}

BOOST_AUTO_TEST_CASE(slices_are_announced_once_falling_when_the_last_micro_batch_has_made_them_final) {
  const Problem problem = features();
  const Data data(problem.sample);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
    const Case c{schedule, 2, 4, 11, 1};
    std::array<bool, 2> falling{}, complete{}, equal{};
    on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
      const auto rank = static_cast<std::size_t>(comm->rank());
      Held held(problem, comm->rank(), 2, c.chunks());
      const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
      PipelineEngine<double> engine = held.engine(loss, comm, c);
      Listener listener(*held.model);
      const Source<double> source = data.source();
      engine.gradient(source, {.rows = std::span(data.indices).first(11), .keys = Rng(1)}, {.grad_ready = &listener});
      falling[rank] = listener.falling;
      complete[rank] = listener.lowest == 0;
      equal[rank] = std::equal(listener.told.begin(), listener.told.end(), held.model->grads->data());
    });
    for (std::size_t rank = 0; rank < 2; ++rank) BOOST_TEST((falling[rank] && complete[rank] && equal[rank]), c);
  }
}

BOOST_AUTO_TEST_CASE(a_recorded_step_tells_what_every_rank_did_when) {
  const Problem problem = features();
  const Data data(problem.sample);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
    const Case c{schedule, 3, 4, 11, 1};
    std::vector<Lane> lanes;
    on_ranks(3, [&](const std::shared_ptr<comm::Communicator>& comm) {
      Held held(problem, comm->rank(), 3, c.chunks());
      const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
      PipelineEngine<double> engine = held.engine(loss, comm, c);
      const Source<double> source = data.source();
      const Step step{.rows = std::span(data.indices).first(11), .keys = Rng(1)};
      engine.gradient(source, step, {});
      if (!engine.timeline().empty()) throw std::logic_error("recorded unasked");
      engine.record();
      engine.gradient(source, step, {});
      auto own = engine.timeline();
      engine.gradient(source, step.shard({0, 2}), {});  // a smaller batch is not kept
      if (engine.timeline()[0].back().end != own[0].back().end) throw std::logic_error("another step is kept");
      if (comm->rank() == 0) lanes = std::move(own);
    });
    const std::vector<Program> programs = make_programs(schedule, 3, 4, c.chunks());
    BOOST_TEST_REQUIRE(lanes.size() == programs.size());
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
      BOOST_TEST_REQUIRE(lanes[rank].size() == programs[rank].size());
      double before = 0;
      for (std::size_t i = 0; i < lanes[rank].size(); ++i) {
        const Event& event = lanes[rank][i];
        BOOST_TEST((event.instruction == programs[rank][i]));
        BOOST_TEST((before <= event.begin && event.begin <= event.end));
        before = event.end;
      }
    }
    BOOST_TEST((bubble(lanes) > 0 && bubble(lanes) < 1));
  }
}

BOOST_AUTO_TEST_CASE(steps_of_a_pipeline_allocate_nothing) {
  constexpr int kSteps = 100;
  const Problem problem = features();
  const Data data(problem.sample);
  for (const auto& [schedule, codec] :
       {std::pair{"gpipe", ""}, {"1f1b", "int8"}, {"interleaved", ""}, {"1f1b", "topk:0.3"}}) {
    const Case c{schedule, 2, 4, 23, 1, codec};
    std::array<long, 2> counts{-1, -1};
    on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
      Held held(problem, comm->rank(), 2, c.chunks());
      const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
      PipelineEngine<double> engine = held.engine(loss, comm, c);
      const Source<double> source = data.source();
      const auto step = [&] {
        engine.gradient(source, {.rows = std::span(data.indices).first(23), .keys = Rng(1)}, {});
      };
      for (int warm_up = 0; warm_up < 20; ++warm_up) step();
      const long before = tests::own_allocations();
      for (int i = 0; i < kSteps; ++i) step();
      counts[static_cast<std::size_t>(comm->rank())] = tests::own_allocations() - before;
    });
    for (const long count : counts) BOOST_TEST(count < kSteps / 10, c);  // a mailbox may still open a place
  }
}

BOOST_AUTO_TEST_CASE(the_bytes_that_are_sent_are_those_of_the_codec) {
  const Problem problem = images();  // borders of 16 · 4, 2 · 2 · 4, … values a row
  const Data data(problem.sample);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
    for (const char* spec : {"", "bf16", "int8:16", "1bit", "topk:0.1"})
      for (const Index rows : {11, 3}) {  // fewer rows than micro-batches, too
        const Case c{schedule, 2, 4, rows, 1, spec};
        const auto codec = codec::make_codec<double>(*spec ? spec : "fp16", 0);
        const auto bytes = [&](Index n) { return *spec ? codec->bytes(n) : n * Index{sizeof(double)}; };
        std::vector<Index> widths;  // of the borders
        Shape shape = problem.sample;
        for (int stage = 0; stage < 2 * c.chunks(); ++stage) {
          const Range range = share(std::ssize(problem.layers), stage, 2 * c.chunks());
          for (Index i = range.begin; i < range.end; ++i)
            shape = problem.layers[static_cast<std::size_t>(i)]->output_shape(shape);
          widths.push_back(shape.count());
        }
        std::array<Index, 2> expected{}, plain{};
        for (int border = 0; border + 1 < 2 * c.chunks(); ++border)
          for (Index micro = 0; micro < c.micro_batches; ++micro) {
            const Index n = share(rows, micro, c.micro_batches).size() * widths[static_cast<std::size_t>(border)];
            for (const int sender : {border % 2, (border + 1) % 2}) {  // y up, and dx down
              expected[static_cast<std::size_t>(sender)] += bytes(n);
              plain[static_cast<std::size_t>(sender)] += n * Index{sizeof(double)};
            }
          }
        std::array<CompressionStats, 2> stats{};
        on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
          Held held(problem, comm->rank(), 2, c.chunks());
          const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
          PipelineEngine<double> engine = held.engine(loss, comm, c);
          const Source<double> source = data.source();
          engine.gradient(source, {.rows = slice(std::span<const Index>(data.indices), 0, rows), .keys = Rng(1)}, {});
          stats[static_cast<std::size_t>(comm->rank())] = engine.take_stats();
          if (engine.take_stats().bytes != 0) throw std::logic_error("statistics are not taken");
        });
        for (std::size_t rank = 0; rank < 2; ++rank) {
          BOOST_TEST(stats[rank].bytes == expected[rank], c << ", rank " << rank);
          BOOST_TEST(stats[rank].bytes_uncompressed == plain[rank], c << ", rank " << rank);
          BOOST_TEST((stats[rank].encode_seconds > 0) == (*spec != 0), c);
        }
      }
}

BOOST_AUTO_TEST_CASE(what_a_codec_keeps_of_activations_is_what_the_next_stage_gets) {
  const Problem problem = features();
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
    const Case exact{schedule, 2, 4, 23, 2};
    Case coded = exact;
    coded.codec = "topk:1";  // everything, and the places of it
    const Outcome want = train_pipeline(problem, exact), all = train_pipeline(problem, coded);
    BOOST_TEST(all.grads == want.grads, boost::test_tools::per_element());
    coded.codec = "bf16";
    const Outcome near = train_pipeline(problem, coded);
    double off = 0, largest = 0;
    for (std::size_t i = 0; i < near.grads.size(); ++i) {
      off = std::max(off, std::abs(near.grads[i] - want.grads[i]));
      largest = std::max(largest, std::abs(want.grads[i]));
    }
    BOOST_TEST((off > 1e-6 * largest && off < 0.05 * largest), schedule << ": off by " << off / largest);
  }
}

BOOST_AUTO_TEST_CASE(factors_that_want_to_be_added_up_are_refused) {
  BOOST_CHECK_THROW(train_pipeline(features(), {"1f1b", 2, 4, 23, 1, "powersgd:2"}), ValueError);
  BOOST_CHECK_THROW(train_pipeline(features(), {"1f1b", 2, 4, 23, 1, "int9"}), ValueError);
}

BOOST_AUTO_TEST_CASE(a_schedule_beyond_its_micro_batches_chunks_or_ranks_is_refused) {
  const Problem problem = features();
  const Held held(problem, 0, 1, 1);
  const nn::CrossEntropyLoss<double> loss(nn::Reduction::mean);
  const auto make = [&](const std::vector<Program>& programs) {
    const Chunk<double> all{*held.networks[0], held.shapes[0]};
    const PipelineConfig config{"", 2, 1, "", programs};
    PipelineEngine<double>({*held.model, *held.networks[0], loss, held.shapes[0]}, {all}, comm::make_self(), config, 8);
  };
  const Program two{{Do::forward, 0}, {Do::backward, 0}, {Do::forward, 1}, {Do::backward, 1}};
  BOOST_CHECK_NO_THROW(make({two}));
  BOOST_CHECK_THROW(make({two, two}), ValueError);
  BOOST_CHECK_THROW(make({{{Do::forward, 2}, {Do::backward, 2}}}), ValueError);
  BOOST_CHECK_THROW(make({{{Do::forward, 0, 1}, {Do::backward, 0, 1}}}), ValueError);
}

BOOST_AUTO_TEST_CASE(a_stage_that_fails_ends_the_step_of_all) {
  for (std::size_t at : {0, 3, 5}) {
    Problem problem = features();
    problem.layers[at] = std::make_shared<Broken>();
    if (at == 0) problem.layers[at + 1] = linear(6, 8);
    if (at == 3) problem.layers[at] = residual({linear(8, 8), std::make_shared<Broken>()});
    if (at == 3) problem.layers[at + 1] = linear(8, 9);
    for (const int threads : {1, 2})
      BOOST_CHECK_EXCEPTION(train_pipeline(problem, {"1f1b", 3, 4, 23, threads}), ValueError,
                            [](const ValueError& error) { return std::string(error.what()) == "Broken: cannot"; });
  }
}

BOOST_AUTO_TEST_CASE(what_needs_the_whole_batch_at_once_is_refused) {
  Problem problem = features();
  problem.layers[4] = norm(9, true);
  BOOST_CHECK_THROW(train_pipeline(problem, {"1f1b", 2, 4, 23, 1}), ValueError);
  BOOST_CHECK_NO_THROW(train_pipeline(problem, {"1f1b", 2, 1, 23, 1}));
}

BOOST_AUTO_TEST_SUITE_END()
