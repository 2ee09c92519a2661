#pragma once
/// Where an array has its first NaN or infinity.
#include <span>

#include "pdnn/core/types.hpp"

namespace pdnn {

/// The place of the first element that is NaN or infinite; their number if all are finite.
template <class T>
Index first_nonfinite(std::span<const T> values);

}  // namespace pdnn
