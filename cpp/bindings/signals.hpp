#pragma once
/// Ctrl-C while C++ waits: a hook that runs Python's signal handlers.
#include <pybind11/pybind11.h>

#include "gil.hpp"

namespace pdnn::bindings {

/// Throws what a Python signal handler raises, KeyboardInterrupt for one. For waits that released the GIL.
inline void run_signal_handlers() {
  const Gil gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace pdnn::bindings
