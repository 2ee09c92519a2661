#pragma once
/// The line of the user's code that calls into pdnn, for the record of its calls.
#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

#include "pdnn/comm/recorder.hpp"

namespace pdnn::bindings {

namespace py = pybind11;

/// The folder of pdnn's own modules, with the separator behind it.
inline std::string& own_folder() {
  static std::string folder;
  return folder;
}

/// As a guard or in a scope, with the GIL: the calls of this thread come from the innermost line that is not pdnn's
/// own.
struct AtUserLine {
  AtUserLine() {
    py::object best;
    auto frame = py::reinterpret_steal<py::object>(as_object(PyThreadState_GetFrame(PyThreadState_Get())));
    while (frame) {
      const std::string_view file = file_of(frame);
      const bool frozen = file.empty() || file.starts_with("<frozen");  // empty: its name is not UTF-8
      if (!frozen) best = frame;
      if (!frozen && !file.starts_with(own_folder())) break;
      frame = py::reinterpret_steal<py::object>(as_object(PyFrame_GetBack(as_frame(frame))));
    }
    if (best) comm::at_line(file_of(best), PyFrame_GetLineNumber(as_frame(best)));
  }

 private:
  static PyObject* as_object(PyFrameObject* frame) { return reinterpret_cast<PyObject*>(frame); }
  static PyFrameObject* as_frame(const py::object& frame) { return reinterpret_cast<PyFrameObject*>(frame.ptr()); }
  /// Stays as long as the frame does.
  static const char* file_of(const py::object& frame) {
    PyCodeObject* const code = PyFrame_GetCode(as_frame(frame));
    const char* const file = PyUnicode_AsUTF8(code->co_filename);
    Py_DECREF(code);
    if (!file) PyErr_Clear();
    return file ? file : "";
  }
};

}  // namespace pdnn::bindings
