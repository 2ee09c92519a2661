/// Optimizers.
#include <pybind11/stl.h>

#include <mutex>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/core/subnormals.hpp"
#include "pdnn/optim/inverse_hessian.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "source.hpp"

namespace pdnn::bindings {

namespace {

/// A class of the rule's name whose constructor takes the rule's fields, by name.
template <class Rule>
void bind_rule(py::module_& m, const char* name) {
  const auto with_fields = [&]<class... Number>(const kernels::Field<Rule, Number>&... field) {
    static_assert(requires { Rule{Number()...}; } && !requires { Rule{Number()..., 0}; }, "fields() has all numbers");
    const auto make = [field...](Number... numbers) {
      Rule rule{};
      ((rule.*field.number = numbers), ...);
      return rule;
    };
    py::class_<Rule>(m, name).def(py::init(make), py::kw_only(), py::arg(field.name)...);
  };
  std::apply(with_fields, Rule::fields());
}

template <class... Rule>
void bind_alternatives(py::module_& m, std::type_identity<std::variant<Rule...>>) {
  (bind_rule<Rule>(m, Rule::kName), ...);
}

template <class T>
double dot(const py::array& a, const py::array& b) {
  const std::span<const T> x = read<T>("dot", a), y = read<T>("dot", b);
  require(x.size() == y.size(), "dot: got ", x.size(), " and ", y.size(), " elements");
  return optim::dot(x, y);
}

template <class T>
void times_inverse_hessian(const py::array& steps, const py::array& changes, const py::array& curvatures,
                           const py::array& rows, py::array d) {
  const char* const where = "times_inverse_hessian";
  optim::Differences<T> known{read_matrix<T>(where, steps), read_matrix<T>(where, changes),
                              read<double>(where, curvatures), read_order(rows, steps.shape(0))};
  const std::span<T> out = write<T>(where, d);
  require(known.changes.rows == known.steps.rows && std::ssize(known.curvatures) == known.steps.rows &&
              known.changes.cols == known.steps.cols && std::ssize(out) == known.steps.cols,
          where, ": shapes ", shape_text(steps), ", ", shape_text(changes), ", ", shape_text(curvatures), " and ",
          shape_text(d), " do not fit");
  const NoGil release;
  optim::times_inverse_hessian(known, out);
}

}  // namespace

void bind_rules(py::module_& m) { bind_alternatives(m, std::type_identity<kernels::Rule>{}); }

template <class T>
void bind_optim(py::module_& m) {
  using Optimizer = optim::Optimizer<T>;
  using SegmentTuple = std::tuple<Index, double, double, bool, std::size_t>;
  py::class_<Optimizer, std::shared_ptr<Optimizer>>(m, "Optimizer")
      .def(py::init<Index, const kernels::Rule&>(), py::arg("count"), py::arg("rule"))
      .def(
          "set_segments",
          [](Optimizer& optimizer, const std::vector<SegmentTuple>& tuples) {
            std::vector<optim::Segment> segments;
            for (const auto& [end, lr, decay, frozen, group] : tuples)
              segments.push_back({end, lr, decay, frozen, group});
            const NoGil release;
            const std::lock_guard lock(optimizer.turn);
            optimizer.set_segments(std::move(segments));
          },
          py::arg("segments"),
          "Parameter groups as (end, lr, weight decay, frozen, group), in the order of the flat buffer.")
      .def(
          "set_clip",
          [](Optimizer& optimizer, std::optional<double> norm, std::optional<double> value) {
            using Clip = optim::Clip<T>;
            std::unique_ptr<Clip> clip;
            if (norm) clip = std::make_unique<Clip>(Clip::By::norm, *norm, optimizer.count());
            if (value) clip = std::make_unique<Clip>(Clip::By::value, *value, optimizer.count());
            optimizer.set_clip(std::move(clip));
          },
          py::arg("norm"), py::arg("value"), "Has gradients clipped before an update; at most one is given.")
      .def(
          "apply",
          [](Optimizer& optimizer, py::array params, const py::array& grads) {
            const std::span<T> w = write<T>("step: params", params);
            const std::span<const T> g = read<T>("step: grads", grads);
            require(static_cast<Index>(w.size()) == optimizer.count() && g.size() == w.size(), "step: got ", w.size(),
                    " parameters and ", g.size(), " gradients, expected ", optimizer.count(), " of both");
            const NoGil release;
            const std::lock_guard lock(optimizer.turn);
            const SubnormalsAsZero zero;
            optimizer.begin_step();
            optimizer.apply(0, w.data(), g.data(), optimizer.count());
          },
          py::arg("params"), py::arg("grads"), "One step from gradients made elsewhere.")
      .def(
          "squares",
          [](const Optimizer& optimizer, const py::array& params) {
            return optimizer.squares(read<T>("squares", params));
          },
          py::arg("params"), "The sum of squares of each group's parameters, in double.")
      .def("scale_state", &Optimizer::scale_state, py::arg("factor"), "Multiplies the rule's state.")
      .def_property("steps", &Optimizer::steps, &Optimizer::set_steps)
      .def_property_readonly(
          "state",
          [](Optimizer& optimizer) {  // views of the buffers of now: an epoch may put others in their place
            std::vector<py::array_t<T>> arrays;
            for (AlignedArray<T>& buffer : optimizer.state())
              arrays.push_back(share_buffer(buffer.share(), buffer.size()));
            return arrays;
          },
          "The rule's state, as arrays that share its memory.");
  m.def("dot", &dot<T>, py::arg("a"), py::arg("b"), "In double, in an order that depends on the length alone.");
  m.def("times_inverse_hessian", &times_inverse_hessian<T>, py::arg("steps"), py::arg("changes"), py::arg("curvatures"),
        py::arg("rows"), py::arg("d"), "d becomes H d, H made of these rows of the differences, the oldest first.");
}

template void bind_optim<float>(py::module_&);
template void bind_optim<double>(py::module_&);

}  // namespace pdnn::bindings
