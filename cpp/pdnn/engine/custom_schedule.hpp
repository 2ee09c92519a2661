#pragma once
/// Schedules that a program brings along: the passes of every rank, checked, as programs.
#include "pdnn/engine/schedule.hpp"

namespace pdnn::engine {

/// The programs of ranks that make these passes, forward and backward, in this order: with the messages between stages.
/// ValueError, naming stage and micro-batch, if a stage does not take every micro-batch forward once and backward once,
/// each time in the order 0, 1, …, in which gradients are added up; or if ranks would wait for each other.
std::vector<Program> with_messages(const std::vector<Program>& passes);

}  // namespace pdnn::engine
