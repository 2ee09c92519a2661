#pragma once
/// Python's lock, taken and let go by threads that may outlive Python: a daemon thread in a call of the core. When
/// Python ends, and before 3.14, such a thread that takes the lock ends by pthread_exit
/// (https://docs.python.org/3/c-api/init.html, PyEval_RestoreThread), which unwinds its stack with glibc. In the middle
/// of the core that would end the process, so it stays here, until the process is over.
#include <pybind11/pybind11.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <cxxabi.h>
#endif

namespace pdnn::bindings {

#ifdef __GLIBC__
using EndOfThread = abi::__forced_unwind;
#else
struct EndOfThread {};  // nothing is unwound
#endif

[[noreturn]] inline void stay() {
  for (;;) pause();
}

/// Later, when Python has ended, it knows no thread, and would make this one a state out of nothing. The thread that
/// ends Python is known to the last, and its finalizers may call the core.
struct StayIfPythonHasEnded {
  StayIfPythonHasEnded() {
    if (!Py_IsInitialized() && !PyGILState_GetThisThreadState()) stay();
  }
};

/// While it lives, this thread has the lock.
class Gil : StayIfPythonHasEnded {
 public:
  Gil() try {
  } catch (EndOfThread&) {
    stay();
  }

 private:
  pybind11::gil_scoped_acquire gil_;
};

/// While it lives, this thread, which had the lock, has let go of it.
class NoGil {
 public:
  NoGil() = default;
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;
  ~NoGil() {
    const StayIfPythonHasEnded check;
    try {
      PyEval_RestoreThread(state_);
    } catch (EndOfThread&) {
      stay();
    }
  }

 private:
  PyThreadState* state_ = PyEval_SaveThread();
};

}  // namespace pdnn::bindings
