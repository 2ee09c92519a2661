/// Strategies: their configurations, and sessions that train by them.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <map>

#include "bindings.hpp"
#include "pdnn/strategy/session.hpp"
#include "schedules.hpp"
#include "source.hpp"
#include "user_line.hpp"

namespace pdnn::bindings {

using strategy::EpochSums;
using strategy::Session;

namespace {

void bind_configs(py::module_& m) {
  using namespace strategy;
  using reduce::Compression, reduce::ReducerOptions;
  py::class_<TeamConfig>(m, "TeamConfig").def(py::init<int>(), py::arg("threads"));
  py::class_<PoolConfig>(m, "PoolConfig").def(py::init<int, Index>(), py::arg("workers"), py::arg("pieces"));
  py::class_<engine::PipelineConfig>(m, "PipelineConfig")
      .def(py::init([](std::string schedule, Index micro_batches, int threads, codec::Spec codec,
                       const PipelineWords& programs) {
             return engine::PipelineConfig{std::move(schedule), micro_batches, threads, std::move(codec),
                                           read_programs(programs)};
           }),
           py::arg("schedule"), py::arg("micro_batches"), py::arg("threads"), py::arg("codec"),
           py::arg("programs") = PipelineWords());
  py::class_<DataParallelConfig>(m, "DataParallelConfig")
      .def(py::init<EngineConfig, bool, ReducerOptions, Index>(), py::arg("engine"), py::arg("sum_of_means"),
           py::arg("reducer"), py::arg("leaves"));
  py::class_<ModelAveragingConfig>(m, "ModelAveragingConfig")
      .def(py::init<EngineConfig, Index, bool, std::optional<Compression>>(), py::arg("engine"), py::arg("every"),
           py::arg("by_master"), py::arg("compression"));
  py::class_<ElasticAveragingConfig>(m, "ElasticAveragingConfig")
      .def(py::init<EngineConfig, Index, double>(), py::arg("engine"), py::arg("every"), py::arg("moving_rate"));
  py::class_<HogwildConfig>(m, "HogwildConfig").def(py::init<int>(), py::arg("threads"));
  py::class_<ScatterGatherConfig>(m, "ScatterGatherConfig")
      .def(py::init<EngineConfig, bool>(), py::arg("engine"), py::arg("once"));
  py::class_<GridConfig>(m, "GridConfig")
      .def(py::init<int, int, int, engine::PipelineConfig, std::vector<Index>, bool, ReducerOptions, Index>(),
           py::arg("stages"), py::arg("tensor"), py::arg("chunks"), py::arg("pipeline"), py::arg("cut"),
           py::arg("sum_of_means"), py::arg("reducer"), py::arg("leaves"));
}

template <class T>
EpochSums run_epoch(Session<T>& session, const HeldSource<T>& held, const py::array& order, Index batch_size,
                    std::uint64_t seed, std::int64_t first_step, const py::array& rates,
                    strategy::OnNonfinite on_nonfinite, const std::function<bool(const EpochSums&)>& poll,
                    Index first_row, const std::optional<EpochSums>& before, Index most_steps,
                    std::optional<double> pause_after) {
  // Only rows of these steps are read, and ahead those of the next one: all of them for each of many parts would be
  // quadratic in an epoch.
  const bool some = most_steps > 0 && most_steps < order.size() / std::max(batch_size, Index{1});
  const Index end = some ? first_row + (most_steps + 1) * batch_size : order.size();
  const strategy::Epoch epoch{.order = read_order(order, held.source.count(), {first_row, end}),
                              .batch_size = batch_size,
                              .seed = seed,
                              .first_step = first_step,
                              .rates = read_matrix<double>("rates", rates),
                              .on_nonfinite = on_nonfinite,
                              .first_row = first_row,
                              .before = before.value_or(EpochSums()),
                              .most_steps = most_steps,
                              .pause_after = pause_after.value_or(std::numeric_limits<double>::infinity())};
  const auto look = [&](const EpochSums& sums) {
    const Gil acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return poll(sums);
  };
  const AtUserLine here;
  const NoGil release;
  return session.run_epoch(held.source, epoch, look);
}

/// Appends to `made` of each epoch its sums and the squares of each group of parameters after it. They come this way
/// because a Ctrl-C that was waiting ends the call that returned them.
template <class T>
void run_epochs(Session<T>& session, const HeldSource<T>& held, const py::array& orders, Index batch_size,
                std::uint64_t seed, std::int64_t first_step, const py::array& rates, const py::array& scales,
                strategy::OnNonfinite on_nonfinite, bool squares,
                py::typing::List<py::typing::Tuple<EpochSums, py::typing::List<py::float_>>> made) {
  const Matrix<const Index> rows = read_matrix<Index>("orders", orders);
  require(rows.rows > 0, "orders: got none");
  read_order(orders, held.source.count());
  const strategy::EpochsAhead ahead{rows, read_matrix<double>("rates", rates), read<double>("scales", scales), squares};
  const strategy::Epoch epoch{.order = {},
                              .batch_size = batch_size,
                              .seed = seed,
                              .first_step = first_step,
                              .rates = {},
                              .on_nonfinite = on_nonfinite};
  std::vector<strategy::EpochMade> epochs;
  {
    const AtUserLine here;
    const NoGil release;
    epochs = session.run_epochs(held.source, epoch, ahead);
  }
  for (const auto& [sums, of_groups] : epochs) made.append(py::make_tuple(sums, of_groups));
}

/// Calls visit(name, number) for every number of the sums; a file has them by these names.
template <class Sums, class Visit>
void each_number(Sums& sums, Visit visit) {
  visit("loss", sums.loss);
  visit("correct", sums.correct);
  visit("weight", sums.weight);
  visit("rows", sums.rows);
  visit("steps", sums.steps);
  visit("skipped", sums.skipped);
  visit("skipped_rows", sums.skipped_rows);
  visit("updates", sums.updates);
  visit("seconds", sums.seconds);
  visit("staleness", sums.staleness.sum);
  visit("most_staleness", sums.staleness.most);
  visit("phases.broadcast", sums.phases.broadcast);
  visit("phases.scatter", sums.phases.scatter);
  visit("phases.gradient", sums.phases.gradient);
  visit("phases.messages", sums.phases.messages);
  visit("phases.agreement", sums.phases.agreement);
  visit("phases.hidden", sums.phases.hidden);
  visit("phases.update", sums.phases.update);
  visit("traffic.bytes", sums.traffic.bytes);
  visit("traffic.shared_bytes", sums.traffic.shared_bytes);
  visit("traffic.seconds", sums.traffic.seconds);
  visit("compression.sums", sums.compression.sums);
  visit("compression.bytes", sums.compression.bytes);
  visit("compression.bytes_uncompressed", sums.compression.bytes_uncompressed);
  visit("compression.encode_seconds", sums.compression.encode_seconds);
  visit("compression.decode_seconds", sums.compression.decode_seconds);
  visit("compression.lost", sums.compression.lost);
  visit("compression.given", sums.compression.given);
}

std::map<std::string, double> numbers_of(const EpochSums& sums) {
  std::map<std::string, double> numbers;
  each_number(sums, [&](const char* name, auto number) { numbers[name] = static_cast<double>(number); });
  return numbers;
}

/// Numbers that are not there are 0; the weight, which older files lack, is then the number of rows.
EpochSums sums_of(const std::map<std::string, double>& numbers) {
  EpochSums sums;
  each_number(sums, [&](const char* name, auto& number) {
    const auto found = numbers.find(name);
    if (found != numbers.end()) number = static_cast<std::remove_reference_t<decltype(number)>>(found->second);
  });
  if (!numbers.contains("weight")) sums.weight = static_cast<double>(sums.rows);
  return sums;
}

}  // namespace

void bind_strategy(py::module_& m) {
  bind_configs(m);
  using strategy::Nonfinite, strategy::OnNonfinite;
  py::enum_<OnNonfinite>(m, "OnNonfinite")
      .value("ignore", OnNonfinite::ignore)
      .value("skip", OnNonfinite::skip)
      .value("stop", OnNonfinite::stop);
  py::class_<EpochSums>(m, "EpochSums")
      .def(py::init(&sums_of), py::arg("numbers") = std::map<std::string, double>(),
           "From their numbers, as `numbers` names them; those that are left out are 0.")
      .def_property_readonly("numbers", &numbers_of, "All of them, by name.")
      .def_readonly("loss", &EpochSums::loss)
      .def_readonly("correct", &EpochSums::correct)
      .def_readonly("rows", &EpochSums::rows)
      .def_readonly("weight", &EpochSums::weight,
                    "What these rows count in the means: their number, unless they are weighed.")
      .def_readonly("steps", &EpochSums::steps)
      .def_readonly("updates", &EpochSums::updates)
      .def_readonly("skipped", &EpochSums::skipped)
      .def_property_readonly(
          "nonfinite",
          [](const EpochSums& sums) -> std::optional<std::tuple<std::int64_t, Index, int>> {
            const Nonfinite& found = sums.nonfinite;
            if (!found.found()) return std::nullopt;
            return std::tuple(found.step, found.element, found.rank);
          },
          "The step that ended the epoch because it was not finite, and was undone; the first element of the flat "
          "parameters that it would have spoiled, -1 for the loss itself; the rank whose own it was, or -1.")
      .def_property_readonly("mean_staleness",
                             [](const EpochSums& sums) {
                               return sums.updates > 0 ? sums.staleness.sum / static_cast<double>(sums.updates) : 0.0;
                             })
      .def_property_readonly("max_staleness", [](const EpochSums& sums) { return sums.staleness.most; })
      .def_readonly("seconds", &EpochSums::seconds)
      .def_readonly("compression", &EpochSums::compression)
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

template <class T>
void bind_strategy(py::module_& m) {
  constexpr auto release = py::call_guard<AtUserLine, NoGil>();
  py::class_<Session<T>>(m, "Session")
      .def(py::init([](const strategy::StrategyConfig& config, std::shared_ptr<nn::Model<T>> model,
                       std::shared_ptr<nn::Loss<T>> loss, std::shared_ptr<optim::Optimizer<T>> optimizer,
                       const std::shared_ptr<comm::Communicator>& comm, const std::vector<Index>& sample,
                       Index target_width, Index batch_size) {
             const AtUserLine here;
             const NoGil no_gil;  // ranks meet in it
             return std::make_unique<Session<T>>(
                 config, strategy::Training<T>(std::move(model), std::move(loss), std::move(optimizer),
                                               comm->duplicate(), to_shape(sample), target_width, batch_size));
           }),
           py::kw_only(), py::arg("config"), py::arg("model"), py::arg("loss"), py::arg("optimizer"), py::arg("comm"),
           py::arg("sample"), py::arg("target_width"), py::arg("batch_size"))
      .def("run_epoch", &run_epoch<T>, py::arg("source"), py::arg("order"), py::arg("batch_size"), py::arg("seed"),
           py::arg("first_step"), py::arg("rates"), py::arg("on_nonfinite"), py::arg("poll"), py::arg("first_row") = 0,
           py::arg("before") = py::none(), py::arg("most_steps") = 0, py::arg("pause_after") = py::none(),
           "Trains on an epoch, or from `first_row` on; returns early if a rank stops, or for a pause.")
      .def(
          "run_epochs", &run_epochs<T>, py::arg("source"), py::arg("orders"), py::arg("batch_size"), py::arg("seed"),
          py::arg("first_step"), py::arg("rates"), py::arg("scales"), py::arg("on_nonfinite"), py::arg("squares"),
          py::arg("made"),
          "Trains on whole epochs, each with its order, learning rates and what the optimizer's state is multiplied by "
          "before it. Appends to `made` of each its sums, and the squares of each group's parameters after it if "
          "they are wanted, for which the model is looked at after each; ends "
          "after one in which a step was not finite.")
      .def(
          "enter_evaluation", [](Session<T>& session) { session.enter_evaluation(); }, release,
          "Until leave_evaluation() the model is what all ranks would agree on now.")
      .def("leave_evaluation", [](Session<T>& session) { session.leave_evaluation(); })
      .def(
          "finish", [](Session<T>& session) { session.finish(); }, release,
          "After the last epoch: all ranks hold the same model.")
      .def_property_readonly("comm", &Session<T>::comm, "The session's ranks, as a group of its own.")
      .def(
          "leave", [](Session<T>& session) { session.comm()->fail(); }, release,
          "Releases the ranks that wait for this one in the session, now or later, with Aborted.")
      .def(
          "record", [](Session<T>& session) { session.strategy().record(); },
          "From now on the times of a step an epoch are kept.")
      .def(
          "timeline",
          [](Session<T>& session) {
            std::vector<engine::Lane> lanes;
            {
              const NoGil no_gil;
              lanes = session.strategy().timeline();
            }
            return to_words(lanes);
          },
          "What each rank of this rank's pipeline did when, in that step.")
      .def(
          "take_compression", [](Session<T>& session) { return session.strategy().take_stats(); },
          "What was sent by a codec after the last epoch, in finish().")
      .def_property_readonly(
          "memory",
          [](py::object self) {
            std::vector<py::array_t<T>> arrays;
            for (const std::span<T> part : self.cast<Session<T>&>().strategy().memory())
              if (!part.empty()) arrays.emplace_back(static_cast<py::ssize_t>(part.size()), part.data(), self);
            return arrays;
          },
          "What it remembers from step to step, such as what a codec lost: arrays that share its memory.")
      .def_property(
          "rows_apart",
          [](Session<T>& session) {
            const strategy::RowsApart rows = session.strategy().rows_apart();
            return std::pair(rows.own, rows.all);
          },
          [](Session<T>& session, const std::pair<double, double>& rows) {
            session.strategy().set_rows_apart({rows.first, rows.second});
          },
          "What the rows count that were trained on since all ranks last held the same model: by this rank, and by all "
          "together.");
}

template void bind_strategy<float>(py::module_&);
template void bind_strategy<double>(py::module_&);

}  // namespace pdnn::bindings
