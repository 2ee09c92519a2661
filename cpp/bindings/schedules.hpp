#pragma once
/// Programs and lanes of a pipeline as Python has them: lists of (what, micro, chunk), and of (what, micro, chunk,
/// begin, end).
#include <tuple>

#include "pdnn/engine/schedule.hpp"

namespace pdnn::bindings {

/// Of every rank.
using PipelineWords = std::vector<std::vector<std::tuple<std::string, Index, int>>>;
std::vector<engine::Program> read_programs(const PipelineWords& programs);

using TimedWords = std::tuple<std::string, Index, int, double, double>;
using TimedLanes = std::vector<std::vector<TimedWords>>;
TimedLanes to_words(const std::vector<engine::Lane>& lanes);

}  // namespace pdnn::bindings
