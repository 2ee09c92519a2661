#pragma once
/// A layer of your own as a Python object, which pdnn.nn.CustomLayer takes. Include it before other headers, as
/// Python.h wants.
#include <Python.h>

#include <string_view>

#include "pdnn/custom/layer.hpp"

namespace pdnn::custom {

/// A capsule with L<float> or L<double> of these arguments, for the dtype "float32" or "float64". Null, with a Python
/// exception, if there is no such dtype or the constructor throws.
template <template <class> class L, class... Arguments>
PyObject* layer_capsule(std::string_view dtype, const Arguments&... arguments) {
  abi::Layer* layer = nullptr;
  abi::Outcome outcome;
  abi::guarded(&outcome, [&] {
    if (dtype == "float32")
      layer = abi::wrap<float>(std::make_unique<L<float>>(arguments...));
    else if (dtype == "float64")
      layer = abi::wrap<double>(std::make_unique<L<double>>(arguments...));
    else
      throw std::invalid_argument("dtype \"" + std::string(dtype) + "\"; expected \"float32\" or \"float64\"");
  });
  if (!layer) {
    const bool invalid = outcome.end == abi::End::invalid_argument;
    PyErr_SetString(invalid ? PyExc_ValueError : PyExc_RuntimeError, outcome.words);
    return nullptr;
  }
  PyObject* const capsule = PyCapsule_New(layer, abi::kCapsule, [](PyObject* unused) {
    auto* const left = static_cast<abi::Layer*>(PyCapsule_GetPointer(unused, abi::kCapsule));
    left->destroy(left);
  });
  if (!capsule) layer->destroy(layer);
  return capsule;
}

}  // namespace pdnn::custom
