/// Curvature: quadratic models of losses, for second-order optimizers.
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/curvature/quadratic_model.hpp"
#include "source.hpp"
#include "user_line.hpp"

namespace pdnn::bindings {

namespace {

/// With the source of its batch.
struct QuadraticModel : curvature::QuadraticModel {
  using curvature::QuadraticModel::QuadraticModel;
  py::object source;
};

/// Reads a vector with an element for each parameter.
std::span<const double> read_vector(const char* where, const QuadraticModel& model, const py::array& array) {
  const std::span<const double> values = read<double>(where, array);
  require(std::ssize(values) == model.parameters(), where, ": got ", values.size(), " elements, expected ",
          model.parameters());
  return values;
}

std::optional<py::array_t<double>> solve_normal(QuadraticModel& model, const py::array& diag, const py::array& right) {
  const std::span<const double> added = read_vector("solve: diag", model, diag);
  py::array_t<double> x = copy_of<double>(read_vector("solve: right", model, right));
  const std::span<double> out = write<double>("solve", x);
  const AtUserLine here;
  bool solved = false;
  {
    const NoGil release;
    solved = model.solve_normal(added, out);
  }
  return solved ? std::optional(x) : std::nullopt;
}

std::optional<py::array_t<double>> solve_kernel(QuadraticModel& model, double damping) {
  require(damping > 0, "solve: damping = ", damping, "; expected a number above 0");
  py::array_t<double> x(model.parameters());
  const std::span<double> out = write<double>("solve", x);
  const AtUserLine here;
  bool solved = false;
  {
    const NoGil release;
    solved = model.solve_kernel(damping, out);
  }
  return solved ? std::optional(x) : std::nullopt;
}

py::array_t<double> solve_cg(QuadraticModel& model, const py::array& diag, const py::array& right, double tolerance,
                             Index most) {
  const std::span<const double> added = read_vector("solve: diag", model, diag);
  for (const double each : added) require(each > 0, "solve: diag has ", each, "; expected numbers above 0");
  py::array_t<double> x = copy_of<double>(read_vector("solve: right", model, right));
  const std::span<double> out = write<double>("solve", x);
  const AtUserLine here;
  const NoGil release;
  model.solve_cg(added, tolerance, most, out);
  return x;
}

}  // namespace

void bind_curvature(py::module_& m) {
  py::class_<QuadraticModel>(m, "QuadraticModel")
      .def(py::init([](const std::shared_ptr<nn::Model<double>>& model, const std::shared_ptr<nn::Loss<double>>& loss,
                       const std::vector<Index>& sample, const std::vector<bool>& trained, bool fisher, int threads,
                       std::optional<comm::Communicator*> ranks) {
             const auto kind = fisher ? curvature::Kind::fisher : curvature::Kind::gauss_newton;
             return std::make_unique<QuadraticModel>(model, loss, to_shape(sample), trained, kind, threads,
                                                     ranks.value_or(nullptr));
           }),
           py::arg("model"), py::arg("loss"), py::arg("sample"), py::arg("trained"), py::arg("fisher"),
           py::arg("threads"), py::arg("ranks"), py::keep_alive<1, 8>())
      .def(
          "take",
          [](QuadraticModel& model, const py::object& source, const py::array& rows) {
            const auto& held = source.cast<const HeldSource<double>&>();
            const std::span<const Index> indices = read_order(rows, held.source.count());
            model.source = source;
            const NoGil release;
            model.take(held.source, indices);
          },
          py::arg("source"), py::arg("rows"), "From now on these rows are the batch.")
      .def(
          "loss",
          [](QuadraticModel& model) {
            const NoGil release;
            const nn::LossValue sums = model.loss();
            return std::tuple(sums.value, sums.correct, model.weight());
          },
          "(sum of the rows' losses, that of right predictions, what the rows count), at the parameters as they are.")
      .def(
          "linearize",
          [](QuadraticModel& model) {
            {
              const NoGil release;
              model.linearize();
            }
            return copy_of<double>(model.gradient());
          },
          "Makes the model at the parameters as they are; returns the gradient.")
      .def_property_readonly("rows", &QuadraticModel::rows, "Of the Jacobian.")
      .def(
          "diagonal", [](QuadraticModel& model) { return copy_of<double>(model.diagonal()); }, "Of the matrix B.")
      .def("solve_normal", &solve_normal, py::arg("diag"), py::arg("right"),
           "(B + diag)⁻¹ right by decomposing a matrix of parameters; None if it is singular or not finite.")
      .def("solve_kernel", &solve_kernel, py::arg("damping"),
           "(B + damping)⁻¹ gradient by decomposing a matrix of rows; None if it is singular or not finite.")
      .def("solve_cg", &solve_cg, py::arg("diag"), py::arg("right"), py::arg("tolerance"), py::arg("most"),
           "(B + diag)⁻¹ right by conjugate gradients.");
}

}  // namespace pdnn::bindings
