/// Sources, training sessions and evaluation.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <map>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/engine/evaluator.hpp"
#include "pdnn/engine/in_panels.hpp"
#include "pdnn/partition/column_row_linear.hpp"
#include "pdnn/partition/cut.hpp"
#include "pdnn/partition/split_layers.hpp"
#include "pdnn/strategy/grid.hpp"
#include "pdnn/strategy/hogwild.hpp"
#include "pdnn/strategy/model_averaging.hpp"
#include "pdnn/strategy/scatter_gather.hpp"
#include "schedules.hpp"
#include "target.hpp"

namespace pdnn::bindings {

namespace {

using data::Samples;
using strategy::EpochSums;

Samples::Format format_of(const py::array& x) {
  if (py::isinstance<py::array_t<std::uint8_t>>(x)) return Samples::Format::uint8;
  if (py::isinstance<py::array_t<float>>(x)) return Samples::Format::float32;
  if (py::isinstance<py::array_t<double>>(x)) return Samples::Format::float64;
  throw py::type_error(
      message("Source: x is ", std::string(py::str(x.dtype())), ", expected uint8, float32 or float64"));
}

/// Throws unless every index names a row.
std::span<const Index> read_order(const py::array& order, Index count) {
  const std::span<const Index> rows = read<Index>("order", order);
  for (const Index row : rows) require(row >= 0 && row < count, "order: row ", row, " of ", count);
  return rows;
}

/// Arrays kept alive, and the view of them that batches are gathered from.
template <class T>
class HeldSource {
 public:
  HeldSource(py::array x, py::array target, double scale, double shift)
      : x_(std::move(x)),
        target_(std::move(target)),
        source(samples(scale, shift), read_target<T>("Source: y", target_, x_.shape(0))) {}

  py::array_t<T> gather(const py::array& rows) const {
    const std::span<const Index> indices = read_order(rows, source.count());
    std::vector<Index> extents(x_.shape(), x_.shape() + x_.ndim());
    extents[0] = static_cast<Index>(indices.size());
    py::array_t<T> out(extents);
    T* const data = out.mutable_data();
    const py::gil_scoped_release release;
    source.gather_samples(Part{}, indices, data);
    return out;
  }

 private:
  Samples samples(double scale, double shift) const {
    require(x_.ndim() >= 2, "Source: x has shape ", shape_text(x_), ", expected one row a sample, (n, features)");
    Samples samples{.data = x_.data(), .format = format_of(x_), .count = x_.shape(0), .scale = scale, .shift = shift};
    py::ssize_t expected = x_.itemsize();
    for (py::ssize_t axis = x_.ndim() - 1; axis >= 1; --axis) {
      require(x_.size() == 0 || x_.shape(axis) == 1 || x_.strides(axis) == expected,
              "Source: the samples of x are not C-contiguous; pass ", "np.ascontiguousarray(x)");
      expected *= x_.shape(axis);
    }
    require(x_.strides(0) % x_.itemsize() == 0, "Source: the rows of x do not start on whole elements");
    samples.stride = x_.strides(0) / x_.itemsize();
    samples.sample = to_shape(std::vector<Index>(x_.shape() + 1, x_.shape() + x_.ndim()));
    return samples;
  }

  py::array x_, target_;

 public:
  data::Source<T> source;
};

/// A strategy and how it is put together, as Python's `parallel.session_options` spells it.
struct Plan {
  explicit Plan(const py::dict& options)
      : engine(value<std::string>(options, "engine")),
        threads(value<int>(options, "threads")),
        pieces(value<Index>(options, "pieces")),
        scheme(value<std::string>(options, "scheme")),
        every(value<Index>(options, "every")) {
    using Memory = reduce::ReducerOptions::Memory;
    const auto shared_memory = value<std::optional<bool>>(options, "shared_memory");
    reducer.bucket_bytes = value<Index>(options, "bucket_bytes");
    const auto codec = value<std::string>(options, "codec");
    if (!codec.empty()) {
      const Index measure_every = scheme == "average" ? 1 : 16;  // which takes next to nothing of an epoch
      reducer.compression = {codec, value<std::optional<bool>>(options, "error_feedback"), reduce::Form::best,
                             measure_every};
    }
    if (shared_memory) reducer.memory = *shared_memory ? Memory::shared : Memory::messages;
    grid.stages = value<int>(options, "stages");
    grid.tensor = value<int>(options, "tensor");
    grid.chunks = value<int>(options, "chunks");
    grid.pipeline.schedule = value<std::string>(options, "schedule");
    grid.pipeline.micro_batches = value<Index>(options, "micros");
    grid.pipeline.codec = value<std::string>(options, "pipeline_codec");
    grid.cut = value<std::vector<Index>>(options, "cut");
    grid.threads = threads;
    grid.reducer = reducer;
    grid.sum_of_means = scheme == "grid-sum";
  }

  std::string engine;  // "team" or "pool"
  int threads;
  Index pieces;        // of a pool
  std::string scheme;  // "replicated", "replicated-sum", "scatter", "scatter-once", "average", "average-by-master",
                       // "hogwild", "grid" or "grid-sum"
  Index every;         // steps from one average to the next
  reduce::ReducerOptions reducer{};
  strategy::GridPlan grid{};

 private:
  template <class V>
  static V value(const py::dict& options, const char* name) {
    return options[name].cast<V>();
  }
};

/// A strategy and everything that it works on.
template <class T>
class Session {
 public:
  Session(std::shared_ptr<nn::Model<T>> model, std::shared_ptr<nn::Loss<T>> loss,
          std::shared_ptr<optim::Optimizer<T>> optimizer, std::shared_ptr<comm::Communicator> comm,
          const std::vector<Index>& sample, Index target_width, Index batch_size, Plan plan)
      : model_(std::move(model)),
        loss_(std::move(loss)),
        optimizer_(std::move(optimizer)),
        comm_(std::move(comm)),
        network_(model_->bound(to_shape(sample))->with_panels()) {
    loss_->check(network_->output_shape(to_shape(sample)), target_width);
    const engine::Job<T> job{*model_, *network_, *loss_, to_shape(sample)};
    if (plan.scheme.starts_with("grid")) {
      plan.grid.batch_size = batch_size;
      strategy_ =
          std::make_unique<strategy::GridStrategy<T>>(model_, optimizer_, *loss_, to_shape(sample), *comm_, plan.grid);
      holds_part_ = true;
      return;
    }
    if (plan.scheme == "hogwild") {
      strategy_ = std::make_unique<strategy::Hogwild<T>>(job, *optimizer_, comm_, plan.threads, batch_size);
      return;
    }
    const Index capacity = (batch_size + comm_->size() - 1) / comm_->size();
    std::unique_ptr<engine::Engine<T>> engine;
    if (plan.engine == "pool") {
      engine = std::make_unique<engine::PoolEngine<T>>(job, plan.threads, plan.pieces, capacity);
    } else {
      engine = std::make_unique<engine::TeamEngine<T>>(job, plan.threads, capacity);
    }
    if (plan.scheme.starts_with("replicated")) {
      using Sum = typename strategy::DataParallel<T>::Sum;
      strategy_ = std::make_unique<strategy::DataParallel<T>>(
          job, *optimizer_, std::move(engine), comm_,
          typename strategy::DataParallel<T>::Options{
              .reducer = plan.reducer, .sum = plan.scheme == "replicated-sum" ? Sum::of_means : Sum::of_rows});
    } else if (plan.scheme == "average" || plan.scheme == "average-by-master") {
      using By = typename strategy::ModelAveraging<T>::By;
      strategy_ = std::make_unique<strategy::ModelAveraging<T>>(
          job, *optimizer_, std::move(engine), comm_,
          typename strategy::ModelAveraging<T>::Options{.every = plan.every,
                                                        .by = plan.scheme == "average" ? By::all_reduce : By::master,
                                                        .compression = plan.reducer.compression});
    } else {
      strategy_ = std::make_unique<strategy::ScatterGather<T>>(job, *optimizer_, std::move(engine), comm_, target_width,
                                                               batch_size, plan.scheme == "scatter-once");
    }
  }

  EpochSums run_epoch(const HeldSource<T>& held, const py::array& order, Index batch_size, std::uint64_t seed,
                      std::int64_t first_step, const py::array& rates,
                      const std::function<bool(const EpochSums&)>& poll) {
    const strategy::Epoch epoch{read_order(order, held.source.count()), batch_size, seed, first_step,
                                read_matrix<double>("rates", rates)};
    const Index steps = (static_cast<Index>(epoch.order.size()) + batch_size - 1) / batch_size;
    require(epoch.rates.rows == 0 || epoch.rates.rows == steps, "rates: got ", epoch.rates.rows, " rows, expected ",
            steps, ", one a step");
    const auto look = [&](const EpochSums& sums) {
      const py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      return poll(sums);
    };
    const py::gil_scoped_release release;
    std::optional<engine::InPanels<T>> panels;
    if (!holds_part_) panels.emplace(*network_, *model_, *optimizer_);
    const comm::Traffic before = comm::traffic_of_this_thread();
    EpochSums sums = strategy_->run_epoch(held.source, epoch, look);
    sums.traffic = comm::traffic_of_this_thread() - before;
    return sums;
  }

  strategy::Strategy<T>& strategy() { return *strategy_; }

 private:
  std::shared_ptr<nn::Model<T>> model_;
  std::shared_ptr<nn::Loss<T>> loss_;
  std::shared_ptr<optim::Optimizer<T>> optimizer_;
  std::shared_ptr<comm::Communicator> comm_;
  std::shared_ptr<const nn::Network<T>> network_;
  std::unique_ptr<strategy::Strategy<T>> strategy_;
  bool holds_part_ = false;  // of the network, which the strategy then copies out of the model and back
};

template <class T>
class HeldEvaluator {
 public:
  HeldEvaluator(std::shared_ptr<nn::Model<T>> model, const std::vector<Index>& sample, int threads)
      : model_(std::move(model)),
        sample_(to_shape(sample)),
        evaluator_(*model_, model_->bound(sample_), sample_, threads) {}

  std::pair<double, double> loss(const nn::Loss<T>& loss, const HeldSource<T>& held, Index target_width,
                                 const py::array& rows) {
    loss.check(output(), target_width);
    const std::span<const Index> indices = read_order(rows, held.source.count());
    const py::gil_scoped_release release;
    const nn::LossValue sums = evaluator_.loss(loss, held.source, indices);
    return {sums.value, sums.correct};
  }

  py::array_t<T> predict(const HeldSource<T>& held, const py::array& rows) {
    const std::span<const Index> indices = read_order(rows, held.source.count());
    const Shape out = output();
    std::vector<Index> extents{static_cast<Index>(indices.size())};
    for (int axis = 0; axis < out.rank(); ++axis) extents.push_back(out[axis]);
    py::array_t<T> y(extents);
    T* const data = y.mutable_data();
    const py::gil_scoped_release release;
    evaluator_.predict(held.source, indices, data);
    return y;
  }

 private:
  Shape output() const { return model_->bound(sample_)->output_shape(sample_); }

  std::shared_ptr<nn::Model<T>> model_;
  Shape sample_;
  engine::Evaluator<T> evaluator_;
};

py::array_t<Index> to_array(const std::vector<Index>& rows) {
  return py::array_t<Index>(static_cast<py::ssize_t>(rows.size()), rows.data());
}

}  // namespace

void bind_epoch(py::module_& m) {
  m.def(
      "epoch_order",
      [](std::uint64_t seed, std::uint64_t epoch, Index count) {
        return to_array(data::epoch_order(seed, epoch, count));
      },
      py::arg("seed"), py::arg("epoch"), py::arg("count"), "The order in which an epoch takes its rows.");
  m.def(
      "draw_rows",
      [](std::uint64_t seed, std::uint64_t epoch, Index count, Index rows) {
        return to_array(data::draw_rows(seed, epoch, count, rows));
      },
      py::arg("seed"), py::arg("epoch"), py::arg("count"), py::arg("rows"), "Rows drawn with replacement.");
  m.def(
      "cut_by_cost", [](const std::vector<double>& costs, int stages) { return partition::cut_by_cost(costs, stages); },
      py::arg("costs"), py::arg("stages"),
      "The layers with which later stages begin, so that the dearest costs least.");
  py::class_<EpochSums>(m, "EpochSums")
      .def_readonly("loss", &EpochSums::loss)
      .def_readonly("correct", &EpochSums::correct)
      .def_readonly("rows", &EpochSums::rows)
      .def_readonly("steps", &EpochSums::steps)
      .def_readonly("updates", &EpochSums::updates)
      .def_property_readonly("mean_staleness",
                             [](const EpochSums& sums) {
                               return sums.updates > 0 ? sums.staleness.sum / static_cast<double>(sums.updates) : 0.0;
                             })
      .def_property_readonly("max_staleness", [](const EpochSums& sums) { return sums.staleness.most; })
      .def_readonly("seconds", &EpochSums::seconds)
      .def_readonly("books", &EpochSums::books)
      .def_readonly("stopped", &EpochSums::stopped)
      .def_property_readonly("bytes", [](const EpochSums& sums) { return sums.traffic.bytes; })
      .def_property_readonly("shared_bytes", [](const EpochSums& sums) { return sums.traffic.shared_bytes; })
      .def_property_readonly("phases", [](const EpochSums& sums) {
        const data::Phases& phases = sums.phases;
        return std::map<std::string, double>{{"broadcast", phases.broadcast}, {"scatter", phases.scatter},
                                             {"gradient", phases.gradient},   {"messages", phases.messages},
                                             {"agreement", phases.agreement}, {"hidden", phases.hidden},
                                             {"update", phases.update}};
      });
}

/// A Linear of which the ranks of a group hold a part each: made from the whole one.
template <class L, class T>
void bind_part_of_linear(py::module_& m, const char* name) {
  py::class_<L, nn::Layer<T>, std::shared_ptr<L>>(m, name).def(
      py::init<const nn::Linear<T>&, std::shared_ptr<comm::Communicator>>(), py::arg("whole"), py::arg("group"));
}

template <class T>
void bind_parallel(py::module_& m) {
  constexpr auto release = py::call_guard<py::gil_scoped_release>();
  bind_part_of_linear<partition::ColumnParallelLinear<T>, T>(m, "ColumnParallelLinear");
  bind_part_of_linear<partition::RowParallelLinear<T>, T>(m, "RowParallelLinear");
  py::class_<HeldSource<T>>(m, "Source")
      .def(py::init<py::array, py::array, double, double>(), py::arg("x"), py::arg("target"), py::arg("scale") = 1.0,
           py::arg("shift") = 0.0)
      .def(
          "augment",
          [](HeldSource<T>& held, Index padding, bool flip, std::uint64_t seed, std::uint64_t epoch) {
            held.source.augment({padding, flip, data::augmentation_key(seed, epoch)});
          },
          py::arg("padding"), py::arg("flip"), py::arg("seed"), py::arg("epoch"),
          "From now on images are padded, cut and mirrored as they are gathered.")
      .def("gather", &HeldSource<T>::gather, py::arg("rows"), "The samples of these rows, as an array.");
  py::class_<Session<T>>(m, "Session")
      .def(py::init([](std::shared_ptr<nn::Model<T>> model, std::shared_ptr<nn::Loss<T>> loss,
                       std::shared_ptr<optim::Optimizer<T>> optimizer, std::shared_ptr<comm::Communicator> comm,
                       const std::vector<Index>& sample, Index target_width, Index batch_size,
                       const py::typing::Dict<py::str, py::object>& plan) {
             Plan parsed(plan);
             const py::gil_scoped_release no_gil;  // ranks meet in it
             return std::make_unique<Session<T>>(std::move(model), std::move(loss), std::move(optimizer),
                                                 std::move(comm), sample, target_width, batch_size, std::move(parsed));
           }),
           py::kw_only(), py::arg("model"), py::arg("loss"), py::arg("optimizer"), py::arg("comm"), py::arg("sample"),
           py::arg("target_width"), py::arg("batch_size"), py::arg("plan"))
      .def("run_epoch", &Session<T>::run_epoch, py::arg("source"), py::arg("order"), py::arg("batch_size"),
           py::arg("seed"), py::arg("first_step"), py::arg("rates"), py::arg("poll"))
      .def(
          "enter_evaluation", [](Session<T>& session) { session.strategy().enter_evaluation(); }, release,
          "Until leave_evaluation() the model is what all ranks would agree on now.")
      .def("leave_evaluation", [](Session<T>& session) { session.strategy().leave_evaluation(); })
      .def(
          "finish", [](Session<T>& session) { session.strategy().finish(); }, release,
          "After the last epoch: all ranks hold the same model.")
      .def(
          "record", [](Session<T>& session) { session.strategy().record(); },
          "From now on the times of a step an epoch are kept.")
      .def(
          "timeline",
          [](Session<T>& session) {
            std::vector<engine::Lane> lanes;
            {
              const py::gil_scoped_release no_gil;
              lanes = session.strategy().timeline();
            }
            return to_words(lanes);
          },
          "What each rank of this rank's pipeline did when, in that step.")
      .def(
          "take_books", [](Session<T>& session) { return session.strategy().take_stats(); },
          "What was sent by a codec after the last epoch, in finish().")
      .def_property_readonly(
          "memory",
          [](py::object self) {
            std::vector<py::array_t<T>> arrays;
            for (const std::span<T> part : self.cast<Session<T>&>().strategy().memory())
              if (!part.empty()) arrays.emplace_back(static_cast<py::ssize_t>(part.size()), part.data(), self);
            return arrays;
          },
          "What sums by a codec remember from step to step: arrays that share its memory.")
      .def_property(
          "rows_apart",
          [](Session<T>& session) {
            const strategy::RowsApart rows = session.strategy().rows_apart();
            return std::pair(rows.own, rows.all);
          },
          [](Session<T>& session, const std::pair<Index, Index>& rows) {
            session.strategy().set_rows_apart({rows.first, rows.second});
          },
          "Rows trained on since all ranks last held the same model: by this rank, and by all together.");
  m.def(
      "linear_pairs",
      [](const nn::Model<T>& model) {
        std::vector<std::pair<std::size_t, std::size_t>> pairs;
        for (const auto [first, second] : partition::linear_pairs(model.network().layers()))
          pairs.emplace_back(first, second);
        return pairs;
      },
      py::arg("model"), "Numbers of the Linears that tensor parallel cuts together.");
  m.def(
      "measured_cut",
      [](const nn::Model<T>& model, const std::vector<Index>& sample, int stages, Index rows) {
        return partition::measured_cut(model.network(), to_shape(sample), stages, rows);
      },
      py::arg("model"), py::arg("sample"), py::arg("stages"), py::arg("rows"), release,
      "The layers with which the later stages of a pipeline begin, so that the slowest takes least for so many rows.");
  m.def(
      "stage_seconds",
      [](const nn::Model<T>& model, const std::vector<Index>& sample, const std::vector<Index>& cut, Index rows) {
        const std::vector<Range> stages = partition::stages_of(std::ssize(model.network().layers()), cut);
        std::vector<std::pair<double, double>> seconds;
        for (const auto& [forward, backward] :
             partition::stage_seconds(model.network(), to_shape(sample), stages, rows))
          seconds.emplace_back(forward, backward);
        return seconds;
      },
      py::arg("model"), py::arg("sample"), py::arg("cut"), py::arg("rows"), release,
      "Seconds forward and backward of each stage, measured now on one thread.");
  py::class_<HeldEvaluator<T>>(m, "Evaluator")
      .def(py::init<std::shared_ptr<nn::Model<T>>, const std::vector<Index>&, int>(), py::arg("model"),
           py::arg("sample"), py::arg("threads"))
      .def("loss", &HeldEvaluator<T>::loss, py::arg("loss"), py::arg("source"), py::arg("target_width"),
           py::arg("rows"), "(sum of the rows' losses, number of right predictions).")
      .def("predict", &HeldEvaluator<T>::predict, py::arg("source"), py::arg("rows"));
}

template void bind_parallel<float>(py::module_&);
template void bind_parallel<double>(py::module_&);

}  // namespace pdnn::bindings
