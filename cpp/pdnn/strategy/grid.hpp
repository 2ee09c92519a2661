#pragma once
/// Grid: the ranks of a job as replicas × stages × tensor ranks, and the groups that this makes of them.
#include <memory>

#include "pdnn/engine/pipeline_engine.hpp"
#include "pdnn/partition/network_part.hpp"
#include "pdnn/strategy/config.hpp"
#include "pdnn/strategy/data_parallel.hpp"

namespace pdnn::strategy {

/// Rank = (replica · stages + stage) · tensor + place.
struct Grid {
  /// Collective: `stages` and `tensor` ranks hold a replica together; the number of ranks is a multiple of their
  /// product.
  Grid(comm::Communicator& world, int stages, int tensor);

  int stage, place;
  bool reports;  ///< of the ranks of its replica, this one has the loss: the first of the last stage

  std::shared_ptr<comm::Communicator> data;  ///< ranks with the same part of a replica: they share the rows of a batch
  std::shared_ptr<comm::Communicator> replica;   ///< ranks that hold one replica together
  std::shared_ptr<comm::Communicator> pipeline;  ///< the stages, in their order
  std::shared_ptr<comm::Communicator> tensor;    ///< ranks of one stage
};

/// Replicas that several ranks hold together. During an epoch a rank trains its part; after it every rank has the whole
/// model again.
template <class T>
class GridStrategy : public Strategy<T> {
 public:
  /// Collective. `sample`: a sample's shape; `batch_size`: the largest, over all replicas. ValueError if the network
  /// cannot be dealt out like that.
  GridStrategy(const std::shared_ptr<nn::Model<T>>& whole, const std::shared_ptr<optim::Optimizer<T>>& optimizer,
               const nn::Loss<T>& loss, const Shape& sample, comm::Communicator& world, Index batch_size,
               const GridConfig& config);
  EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) override;
  void record() override;
  std::vector<Lane> timeline() const override;
  std::vector<std::span<T>> memory() override { return replicas_->memory(); }

 private:
  /// One of this rank's stages.
  struct Stage {
    partition::NetworkPart<T> part;
    Shape sample;
    std::shared_ptr<const nn::Network<T>> network;
  };

  std::vector<Index> cut(const nn::Network<T>& network, const Shape& sample, comm::Communicator& world,
                         Index batch_size, const GridConfig& config) const;
  void take_stages(const nn::Network<T>& network, const Shape& sample, const GridConfig& config,
                   const std::vector<Range>& all);
  Index leaves(const GridConfig& config) const;
  std::unique_ptr<Engine<T>> make_engine(const Job<T>& job, Index batch_size, const GridConfig& config);

  Grid grid_;
  std::vector<Stage> stages_;
  std::unique_ptr<partition::PartialModel<T>> partial_;
  std::unique_ptr<DataParallel<T>> replicas_;
  engine::PipelineEngine<T>* pipeline_ = nullptr;  // the replicas' engine, if there is more than one stage
};

}  // namespace pdnn::strategy
