#pragma once
/// Lanes of a pipeline as Python has them: lists of (what, micro, chunk, begin, end).
#include <tuple>

#include "pdnn/parallel/schedule.hpp"

namespace pdnn::bindings {

using TimedWords = std::tuple<std::string, Index, int, double, double>;
using TimedLanes = std::vector<std::vector<TimedWords>>;
TimedLanes to_words(const std::vector<parallel::Lane>& lanes);

}  // namespace pdnn::bindings
