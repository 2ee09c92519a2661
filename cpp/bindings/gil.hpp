#pragma once
/// Python's lock, taken and let go by threads that may outlive Python: a daemon thread in a call of the core.
#include <pybind11/pybind11.h>
#include <unistd.h>

namespace pdnn::bindings {

/// Never returns if Python is ending: to take the lock then ends the thread in the middle of the core, which ends the
/// process (https://docs.python.org/3/c-api/init.html, on PyEval_RestoreThread before 3.14).
inline void stay_if_python_ends() {
#if PY_VERSION_HEX >= 0x030D0000
  while (Py_IsFinalizing()) pause();
#else
  while (_Py_IsFinalizing()) pause();
#endif
}

/// While it lives, this thread has the lock.
class Gil {
  struct Stay {
    Stay() { stay_if_python_ends(); }
  };
  [[no_unique_address]] Stay before_;
  pybind11::gil_scoped_acquire gil_;
};

/// While it lives, this thread, which had the lock, has let go of it.
class NoGil {
  struct Stay {
    ~Stay() { stay_if_python_ends(); }
  };
  pybind11::gil_scoped_release released_;
  [[no_unique_address]] Stay before_;
};

}  // namespace pdnn::bindings
