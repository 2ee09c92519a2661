/// Networks that ranks hold parts of: cuts between layers, and Linears cut themselves.
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/nn/model.hpp"
#include "pdnn/partition/column_row_linear.hpp"
#include "pdnn/partition/cut.hpp"
#include "pdnn/partition/split_layers.hpp"

namespace pdnn::bindings {

void bind_partition(py::module_& m) {
  m.def(
      "cut_by_cost", [](const std::vector<double>& costs, int stages) { return partition::cut_by_cost(costs, stages); },
      py::arg("costs"), py::arg("stages"),
      "The layers with which later stages begin, so that the dearest costs least.");
}

namespace {

/// A Linear of which the ranks of a group hold a part each: made from the whole one.
template <class L, class T>
void bind_part_of_linear(py::module_& m, const char* name) {
  py::class_<L, nn::Layer<T>, std::shared_ptr<L>>(m, name).def(
      py::init<const nn::Linear<T>&, std::shared_ptr<comm::Communicator>>(), py::arg("whole"), py::arg("group"));
}

}  // namespace

template <class T>
void bind_partition(py::module_& m) {
  constexpr auto release = py::call_guard<NoGil>();
  bind_part_of_linear<partition::ColumnParallelLinear<T>, T>(m, "ColumnParallelLinear");
  bind_part_of_linear<partition::RowParallelLinear<T>, T>(m, "RowParallelLinear");
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
      "inseparable",
      [](const nn::Model<T>& model, const std::vector<Index>& sample) {
        std::vector<std::pair<Index, Index>> runs;
        for (const auto [begin, end] : model.network().bound(to_shape(sample))->inseparable())
          runs.emplace_back(begin, end);
        return runs;
      },
      py::arg("model"), py::arg("sample"), "Layers, from one to before another, that have other bits in two stages.");
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
}

template void bind_partition<float>(py::module_&);
template void bind_partition<double>(py::module_&);

}  // namespace pdnn::bindings
