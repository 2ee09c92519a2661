/// Evaluation, single steps; and pipeline schedules as lists of tuples: (what, micro, chunk), with (begin, end) behind
/// it where time has passed.
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "pdnn/engine/custom_schedule.hpp"
#include "pdnn/engine/evaluator.hpp"
#include "pdnn/engine/stepper.hpp"
#include "pdnn/reduce/rank_sums.hpp"
#include "schedules.hpp"
#include "source.hpp"

namespace pdnn::bindings {

namespace {

using engine::Event;
using engine::Instruction;

using Words = std::tuple<std::string, Index, int>;

engine::Do parse(const std::string& word) {
  using engine::Do;
  for (const Do what : {Do::recv_x, Do::forward, Do::send_y, Do::recv_dy, Do::backward, Do::send_dx})
    if (word == engine::name(what)) return what;
  throw ValueError(message("schedule: instruction \"", word, "\""));
}

Words to_words(const Instruction& i) { return {engine::name(i.what), i.micro, i.chunk}; }
Instruction from_words(const Words& words) {
  return {parse(std::get<0>(words)), std::get<1>(words), std::get<2>(words)};
}
TimedWords to_words(const Event& event) {
  return std::tuple_cat(to_words(event.instruction), std::tuple(event.begin, event.end));
}
Event from_words(const TimedWords& words) {
  const auto& [what, micro, chunk, begin, end] = words;
  return {{parse(what), micro, chunk}, begin, end};
}

template <class To, class From, class Convert>
std::vector<std::vector<To>> convert(const std::vector<std::vector<From>>& ranks, Convert one) {
  std::vector<std::vector<To>> all;
  for (const std::vector<From>& rank : ranks) {
    all.emplace_back();
    for (const From& item : rank) all.back().push_back(one(item));
  }
  return all;
}

PipelineWords to_words(const std::vector<engine::Program>& programs) {
  return convert<Words>(programs, [](const Instruction& instruction) { return to_words(instruction); });
}

std::vector<engine::Lane> read_lanes(const TimedLanes& lanes) {
  return convert<Event>(lanes, [](const TimedWords& words) { return from_words(words); });
}

/// A model, and the evaluator that looks at it.
template <class T>
class HeldEvaluator {
 public:
  HeldEvaluator(std::shared_ptr<nn::Model<T>> model, int threads)
      : model_(std::move(model)), evaluator_(*model_, threads) {}

  std::tuple<double, double, double, std::optional<py::array_t<T>>> loss(const nn::Loss<T>& loss,
                                                                         const HeldSource<T>& held, Index target_width,
                                                                         const py::array& rows,
                                                                         std::optional<comm::Communicator*> ranks,
                                                                         bool outputs) {
    loss.check(output(held), target_width);
    const std::span<const Index> indices = read_order(rows, held.source.count());
    std::optional<py::array_t<T>> y;
    if (outputs) y = room(held, indices);
    T* const data = y ? y->mutable_data() : nullptr;
    engine::Evaluation all;
    {
      const NoGil release;
      all = evaluator_.loss(loss, held.source, indices, ranks.value_or(nullptr), data);
    }
    return {all.sums.value, all.sums.correct, all.weight, y};
  }

  py::array_t<T> predict(const HeldSource<T>& held, const py::array& rows) {
    const std::span<const Index> indices = read_order(rows, held.source.count());
    py::array_t<T> y = room(held, indices);
    T* const data = y.mutable_data();
    const NoGil release;
    evaluator_.predict(held.source, indices, data);
    return y;
  }

  double gradient(const nn::Loss<T>& loss, const HeldSource<T>& held, Index target_width, const py::array& rows,
                  py::array out) {
    loss.check(output(held), target_width);
    const std::span<const Index> indices = read_order(rows, held.source.count());
    const std::span<T> values = write<T>("gradient: out", out);
    require(std::ssize(values) == model_->count(), "gradient: out has shape ", shape_text(out), ", expected (",
            model_->count(), ",), an element for each parameter");
    const NoGil release;
    const engine::Evaluation all = evaluator_.gradient(loss, held.source, indices, values);
    return loss.reduce(all.sums.value, all.weight);
  }

 private:
  Shape output(const HeldSource<T>& held) const { return model_->network().output_shape(held.source.sample()); }

  /// For the outputs of these rows.
  py::array_t<T> room(const HeldSource<T>& held, std::span<const Index> rows) const {
    std::vector<Index> extents = to_extents(output(held));
    extents.insert(extents.begin(), static_cast<Index>(rows.size()));
    return py::array_t<T>(extents);
  }

  std::shared_ptr<nn::Model<T>> model_;
  engine::Evaluator<T> evaluator_;
};

/// The elements of an array of T in C order; null if it is another.
template <class T>
const T* data_of(const py::array& array) {
  const bool exact = Py_TYPE(array.ptr()) == py::detail::npy_api::get().PyArray_Type_;  // a subclass may have a mask
  const bool fits = exact && py::isinstance<py::array_t<T>>(array) && (array.flags() & py::array::c_style) != 0;
  return fits ? static_cast<const T*>(array.data()) : nullptr;
}

/// A stepper for arrays that it takes as they are; others are left to Python, which converts them or has the words.
template <class T>
class HeldStepper {
 public:
  HeldStepper(std::shared_ptr<nn::Model<T>> model, std::shared_ptr<nn::Loss<T>> loss,
              std::shared_ptr<optim::Optimizer<T>> optimizer, const std::vector<Index>& sample, bool takes_classes)
      : stepper_(std::move(model), std::move(loss), std::move(optimizer), to_shape(sample)),
        takes_classes_(takes_classes) {}

  std::optional<double> step(const py::object& its_x, const py::object& its_y, bool training, std::uint64_t seed,
                             std::uint64_t number, std::optional<comm::Communicator*> ranks,
                             const std::optional<py::array>& weight) {
    if (!py::isinstance<py::array>(its_x) || !py::isinstance<py::array>(its_y)) return std::nullopt;
    const auto x = py::reinterpret_borrow<py::array>(its_x), y = py::reinterpret_borrow<py::array>(its_y);
    const T* const rows = data_of<T>(x);
    if (!rows || !fits(x)) return std::nullopt;
    const Tensor<const T> batch{rows, x.shape(0), stepper_.sample()};
    std::vector<std::int32_t> classes;
    std::optional<nn::Target<T>> target = read(y, batch.batch, classes);
    if (!target) return std::nullopt;
    if (weight) {
      target->weights = data_of<double>(*weight);
      if (!target->weights || weight->ndim() != 1 || weight->shape(0) != batch.batch) return std::nullopt;
    }
    if (const Index width = target->values.cols; width != checked_) {
      stepper_.loss().check(stepper_.output(), width);
      checked_ = width;
    }
    std::optional<reduce::RankSum> sum;
    if (ranks) sum.emplace(**ranks);
    const NoGil release;
    return stepper_.step(batch, *target, training, Rng(seed).child(number), sum ? &*sum : nullptr);
  }

 private:
  bool fits(const py::array& x) const {
    const Shape& sample = stepper_.sample();
    if (x.ndim() != sample.rank() + 1) return false;
    for (int axis = 0; axis < sample.rank(); ++axis)
      if (x.shape(axis + 1) != sample[axis]) return false;
    return true;
  }

  /// Classes are checked as they are copied.
  std::optional<nn::Target<T>> read(const py::array& y, Index rows, std::vector<std::int32_t>& copy) const {
    if (y.ndim() < 1 || y.shape(0) != rows) return std::nullopt;
    if (y.ndim() == 2 && y.shape(1) == stepper_.output().count()) {
      const T* const values = data_of<T>(y);
      return values ? std::optional(nn::Target<T>{nullptr, {values, rows, y.shape(1)}}) : std::nullopt;
    }
    if (y.ndim() != 1 || !takes_classes_) return std::nullopt;
    const auto* const longs = data_of<std::int64_t>(y);
    const auto* const ints = longs ? nullptr : data_of<std::int32_t>(y);
    if (!longs && !ints) return std::nullopt;
    const std::int64_t most = std::max<std::int64_t>(stepper_.output().count(), 2);
    for (Index row = 0; row < rows; ++row) {
      const std::int64_t each = longs ? longs[row] : ints[row];
      if (each < 0 || each >= most) return std::nullopt;
      copy.push_back(static_cast<std::int32_t>(each));
    }
    return nn::Target<T>{copy.data(), {}};
  }

  engine::Stepper<T> stepper_;
  bool takes_classes_;
  Index checked_ = -1;  // the width of targets that the loss takes
};

}  // namespace

std::vector<engine::Program> read_programs(const PipelineWords& programs) {
  return convert<Instruction>(programs, [](const Words& words) { return from_words(words); });
}

TimedLanes to_words(const std::vector<engine::Lane>& lanes) {
  return convert<TimedWords>(lanes, [](const Event& event) { return to_words(event); });
}

void bind_engine(py::module_& m) {
  m.def(
      "pipeline_programs",
      [](const std::string& schedule, int ranks, Index micro_batches, int chunks) {
        return to_words(engine::make_programs(schedule, ranks, micro_batches, chunks));
      },
      py::arg("schedule"), py::arg("ranks"), py::arg("micro_batches"), py::arg("chunks"),
      "What every rank of a pipeline does: (what, micro, chunk) in order.");
  m.def(
      "pipeline_with_messages",
      [](const PipelineWords& passes) { return to_words(engine::with_messages(read_programs(passes))); },
      py::arg("passes"), "What every rank does whose passes are these, checked.");
  m.def(
      "pipeline_in_flight",
      [](const PipelineWords& programs) {
        std::vector<Index> most;
        for (const engine::Program& program : read_programs(programs)) most.push_back(engine::in_flight(program));
        return most;
      },
      py::arg("programs"), "The most passes that each rank has between forward and backward.");
  m.def(
      "simulate_pipeline",
      [](const PipelineWords& programs, const std::vector<double>& forward, const std::vector<double>& backward,
         double message) { return to_words(engine::simulate(read_programs(programs), {forward, backward, message})); },
      py::arg("programs"), py::arg("forward"), py::arg("backward"), py::arg("message"),
      "The programs against the clock: (what, micro, chunk, begin, end) of every rank.");
  m.def(
      "pipeline_bubble", [](const TimedLanes& lanes) { return engine::bubble(read_lanes(lanes)); }, py::arg("lanes"),
      "The share of all ranks' time in which they compute nothing.");
}

template <class T>
void bind_engine(py::module_& m) {
  py::class_<HeldEvaluator<T>>(m, "Evaluator")
      .def(py::init<std::shared_ptr<nn::Model<T>>, int>(), py::arg("model"), py::arg("threads"))
      .def("loss", &HeldEvaluator<T>::loss, py::arg("loss"), py::arg("source"), py::arg("target_width"),
           py::arg("rows"), py::arg("ranks"), py::arg("outputs"),
           "(sum of the rows' losses, that of right predictions, what the rows count, the outputs or None).")
      .def("predict", &HeldEvaluator<T>::predict, py::arg("source"), py::arg("rows"))
      .def("gradient", &HeldEvaluator<T>::gradient, py::arg("loss"), py::arg("source"), py::arg("target_width"),
           py::arg("rows"), py::arg("out"), "The loss of these rows; their gradient lies in `out` then.");
  py::class_<HeldStepper<T>>(m, "Stepper")
      .def(py::init<std::shared_ptr<nn::Model<T>>, std::shared_ptr<nn::Loss<T>>, std::shared_ptr<optim::Optimizer<T>>,
                    const std::vector<Index>&, bool>(),
           py::arg("model"), py::arg("loss"), py::arg("optimizer"), py::arg("sample"), py::arg("takes_classes"))
      .def("step", &HeldStepper<T>::step, py::arg("x"), py::arg("y"), py::arg("training"), py::arg("seed"),
           py::arg("number"), py::arg("ranks"), py::arg("weight") = py::none(),
           "The loss of the rows before an update by its gradient; None, and nothing done, if the arrays are not as it "
           "takes them in place.");
}

template void bind_engine<float>(py::module_&);
template void bind_engine<double>(py::module_&);

}  // namespace pdnn::bindings
