#pragma once
/// Which rows an epoch takes, in which order, and the keys of its random numbers: functions of the seed alone.
#include <vector>

#include "pdnn/core/random.hpp"

namespace pdnn::data {

/// The order in which an epoch takes rows 0 … count − 1: a function of (seed, epoch) alone, the same on every rank.
std::vector<Index> epoch_order(std::uint64_t seed, std::uint64_t epoch, Index count);

/// `count` rows of 0 … rows − 1, each drawn independently of the others: a function of (seed, epoch) alone.
std::vector<Index> draw_rows(std::uint64_t seed, std::uint64_t epoch, Index count, Index rows);

/// The key of an epoch's augmentation.
Rng augmentation_key(std::uint64_t seed, std::uint64_t epoch);

/// Whose child `step` is the key of a step's random numbers.
Rng step_keys(std::uint64_t seed);

}  // namespace pdnn::data
