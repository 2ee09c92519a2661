/// Optimizers.
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/core/subnormals.hpp"
#include "pdnn/optim/optimizer.hpp"

namespace pdnn::bindings {

namespace {

/// A class of the rule's name whose constructor takes the rule's fields.
template <class Rule>
void bind_rule(py::module_& m, const char* name) {
  const auto with_fields = [&]<class... Number>(const kernels::Field<Rule, Number>&... field) {
    py::class_<Rule>(m, name).def(py::init([](Number... numbers) { return Rule{numbers...}; }), py::arg(field.name)...);
  };
  std::apply(with_fields, Rule::fields());
}

template <class... Rule>
void bind_alternatives(py::module_& m, std::type_identity<std::variant<Rule...>>) {
  (bind_rule<Rule>(m, Rule::kName), ...);
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
            const py::gil_scoped_release release;
            const SubnormalsAsZero zero;
            optimizer.begin_step();
            optimizer.apply(0, w.data(), g.data(), optimizer.count());
          },
          py::arg("params"), py::arg("grads"), "One step from gradients made elsewhere.")
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
}

template void bind_optim<float>(py::module_&);
template void bind_optim<double>(py::module_&);

}  // namespace pdnn::bindings
