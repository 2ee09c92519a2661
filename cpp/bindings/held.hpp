#pragma once
/// Python objects that the core keeps.
#include <pybind11/pybind11.h>

#include <memory>

#include "gil.hpp"

namespace pdnn::bindings {

/// Whoever releases it last need not hold the GIL.
inline std::shared_ptr<pybind11::object> hold(pybind11::object made) {
  return {new pybind11::object(std::move(made)), [](pybind11::object* kept) {
            const Gil gil;
            delete kept;
          }};
}

}  // namespace pdnn::bindings
