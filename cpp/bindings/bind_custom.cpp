/// Layers that extensions bring.
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "pdnn/nn/layers/custom.hpp"

namespace pdnn::bindings {

namespace {

constexpr const char* kTaken = "pdnn.custom.layer, taken";

/// Takes the layer out of what pdnn::custom::layer_capsule returned.
template <class T>
std::shared_ptr<nn::Custom<T>> take_layer(const std::string& name, const py::object& given) {
  PyObject* const capsule = given.ptr();
  if (PyCapsule_IsValid(capsule, kTaken) != 0)
    throw ValueError(name + ": this layer is in use already; make a new one each time");
  if (PyCapsule_IsValid(capsule, custom::abi::kCapsule) == 0)
    throw py::type_error(message(name, ": got ", Py_TYPE(capsule)->tp_name,
                                 ", expected what pdnn::custom::layer_capsule returns (pdnn/custom/python.hpp)"));
  void* const layer = PyCapsule_GetPointer(capsule, custom::abi::kCapsule);
  auto taken = std::make_shared<nn::Custom<T>>(name, static_cast<custom::abi::Layer*>(layer));
  PyCapsule_SetDestructor(capsule, nullptr);
  PyCapsule_SetName(capsule, kTaken);
  return taken;
}

}  // namespace

template <class T>
void bind_custom(py::module_& m) {
  py::class_<nn::Custom<T>, nn::Layer<T>, std::shared_ptr<nn::Custom<T>>>(m, "Custom")
      .def(py::init(&take_layer<T>), py::arg("name"), py::arg("layer"))
      .def(
          "parameters",
          [](const nn::Custom<T>& layer) {
            std::vector<std::pair<std::string, std::vector<Index>>> all;
            for (const nn::Parameter& parameter : layer.parameters()) all.emplace_back(parameter.name, parameter.shape);
            return all;
          },
          "Name and shape of each parameter.");
}

template void bind_custom<float>(py::module_&);
template void bind_custom<double>(py::module_&);

}  // namespace pdnn::bindings
