#pragma once
/// Configurations: the options of every strategy as a plain struct.
#include <variant>

#include "pdnn/engine/pipeline_engine.hpp"
#include "pdnn/reduce/gradient_reducer.hpp"

namespace pdnn::strategy {

/// Threads inside each layer; one thread is serial.
struct TeamConfig {
  int threads = 1;
};

/// A fixed number of pieces of a batch, which are tasks for the workers.
struct PoolConfig {
  int workers = 1;
  Index pieces = 1;
};

/// How one rank makes its gradient.
using EngineConfig = std::variant<TeamConfig, PoolConfig>;

struct DataParallelConfig {
  EngineConfig engine{};
  bool sum_of_means = false;  ///< ranks add up the mean over their own rows each, not their parts of the batch's loss
  reduce::ReducerOptions reducer{};
  Index leaves = 0;  ///< of a batch, whatever the ranks, so that its sums have the same bits; 0: none
};

struct ModelAveragingConfig {
  EngineConfig engine{};
  Index every = 0;         ///< steps from one average to the next, over all of training; 0: only finish() averages
  bool by_master = false;  ///< rank 0 adds the weighted models up and sends the sum back, in place of an all-reduce
  std::optional<reduce::Compression> compression{};  ///< not by a master; all ranks begin with the same parameters
};

struct ElasticAveragingConfig {
  EngineConfig engine{};
  Index every = 1;           ///< steps from one move to the next, over all of training
  double moving_rate = 0.9;  ///< of the center towards the mean of the models, at most 1
};

struct HogwildConfig {
  int threads = 1;  ///< workers of each process
};

struct ScatterGatherConfig {
  EngineConfig engine{};
  bool once = false;  ///< rows travel in the first step only: every step takes the same batch
};

/// How a replica is dealt out, and how its ranks agree with the other replicas.
struct GridConfig {
  int stages = 1, tensor = 1;  ///< ranks
  int chunks = 1;              ///< stages of a rank
  engine::PipelineConfig pipeline{};
  std::vector<Index> cut{};  ///< layers with which the later stages begin; none: by the layers' measured times
  bool sum_of_means = false;
  reduce::ReducerOptions reducer{};
  Index leaves = 0;  ///< of a batch, of which each replica, a pipeline, takes a run as its micro-batches; 0: none

  /// Whether a rank has more to do in a step than one pass of all rows: several stages, or micro-batches of one.
  bool piecewise() const { return stages * chunks > 1 || pipeline.micro_batches > 1; }
};

using StrategyConfig = std::variant<DataParallelConfig, ModelAveragingConfig, ElasticAveragingConfig, HogwildConfig,
                                    ScatterGatherConfig, GridConfig>;

}  // namespace pdnn::strategy
