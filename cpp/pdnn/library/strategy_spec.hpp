#pragma once
/// Strategies as strings spell them, in Python's words.
#include <string>

#include "pdnn/strategy/config.hpp"

namespace pdnn::library {

struct SpelledStrategy {
  strategy::StrategyConfig config;
  int threads = 1;            ///< that a rank keeps busy
  bool models_apart = false;  ///< each rank trains its own model on `batch_size` rows of its own
  bool same_init = true;      ///< training begins with rank 0's parameters on all ranks
  bool same_updates = true;   ///< and with its optimizer's state: each rank makes every update
  bool whole_batch = false;   ///< every batch must be all rows
};

/// ValueError if a string spells no strategy, or one that does not fit so many ranks.
SpelledStrategy spelled_strategy(const std::string& spec, int ranks);

}  // namespace pdnn::library
