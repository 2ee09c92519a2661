#pragma once
/// Locked: what remembers something, for several threads.
#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>

#include "gil.hpp"
#include "pdnn/threads/mutex.hpp"

namespace pdnn::bindings {

namespace py = pybind11;

/// The calls of several threads to this object come one after another.
template <class Object>
struct Locked {
  explicit Locked(std::unique_ptr<Object> made) : object(std::move(made)) {}

  template <class Call>
  auto without_gil(Call call) {
    const NoGil release;
    const std::lock_guard lock(mutex);
    return call(*object);
  }

  std::unique_ptr<Object> object;
  threads::Mutex mutex;
};

}  // namespace pdnn::bindings
