#pragma once
/// PipelineEngine: a rank holds some layers of the network, and a batch passes through the ranks in micro-batches.
#include <array>
#include <chrono>

#include "pdnn/engine/engine.hpp"
#include "pdnn/engine/schedule.hpp"
#include "pdnn/engine/transport.hpp"

namespace pdnn::engine {

/// One of a rank's stages: some layers, bound to the shape of their x. It outlives the engine.
template <class T>
struct Chunk {
  const nn::Network<T>& network;
  Shape sample;
};

struct PipelineConfig {
  std::string schedule = "1f1b";
  Index micro_batches = 1;          ///< micro-batches of a step
  int threads = 1;                  ///< inside each layer
  codec::Spec codec{};              ///< of what passes between stages; none: as it is
  std::vector<Program> programs{};  ///< of every rank; none: those of the schedule
};

/// Interprets this rank's program. The rows of a step are cut into micro-batches whose sizes differ by at most one; one
/// without rows goes through all passes and is not sent. Micro-batches are leaves: their gradients are added up by the
/// tree of core/leaves.hpp, and buffers are committed in their order, so the result is that of a pool with as many
/// pieces, whatever the schedule. Of a step in leaves that several pipelines share they are the leaves of its run,
/// added up into the nodes of that run.
///
/// A micro-batch sends rows · width elements up through each border between stages and as many down, each message by
/// the codec, if there is one: a stage above works on what it got, and gradients are passed on as if that was what was
/// sent. It lives in a workspace of its stage between forward and backward; a stage has as many as the schedule holds.
/// Messages are sent from where they were made and received where they are read (codes: in memory of their own): the
/// receives of a micro-batch are started as soon as its workspace is free, so the data travel while other micro-batches
/// are computed.
template <class T>
class PipelineEngine : public Engine<T> {
 public:
  /// `comm`: the ranks of the pipeline in the order of stages; `capacity`: rows of the largest step. The model holds
  /// the parameters of the rank's chunks one after another. ValueError if the schedule does not fit, or a layer needs
  /// the whole batch at once and there are several micro-batches.
  PipelineEngine(const Job<T>& job, const std::vector<Chunk<T>>& chunks, std::shared_ptr<comm::Communicator> comm,
                 const PipelineConfig& config, Index capacity);
  /// One stage a rank: the job's network.
  PipelineEngine(const Job<T>& job, std::shared_ptr<comm::Communicator> comm, const PipelineConfig& config,
                 Index capacity)
      : PipelineEngine(job, {{job.network, job.sample}}, std::move(comm), config, capacity) {}

  /// ValueError if a layer needs the whole batch at once and there are several micro-batches.
  static void require_parts(const nn::Network<T>& network, Index micro_batches);

  /// Slices are final when the last micro-batch comes back. Rules are never applied inside a layer.
  bool announces() const override { return true; }
  /// The sums are over the rows of this pipeline, and on the rank of the last stage; zeros elsewhere.
  nn::LossValue gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) override;
  threads::Team& team() override { return team_; }
  CompressionStats take_stats() override { return transport_.take_stats(); }

  /// From now on the ranks begin a gradient together, and keep the times of the last one with the most rows.
  void record() { recording_ = true; }
  /// Collective: what every rank did when in the gradient that was recorded; no lanes if none was.
  std::vector<Lane> timeline() const;

 private:
  using Engine<T>::job_;

  /// A micro-batch between forward and backward.
  struct Slot {
    nn::Workspace<T> workspace;
    MessageBuffer<T> x_in, y_out, dy_in;
    Tensor<const T> x{};
  };
  /// A dx on its way: there are two, so that one can be made while the other travels.
  struct SendBuffer {
    AlignedArray<T> dx;
    MessageBuffer<T> message;
  };
  struct Stage {
    const nn::Network<T>& network;
    Shape in;
    int number;  // in the whole network
    bool first, last;
    Range params, buffers;
    LeafGradients<T> waiting;
    std::vector<Slot> slots;
    std::array<SendBuffer, 2> outgoing;

    Slot& slot(Index micro) { return slots[static_cast<std::size_t>(micro) % slots.size()]; }
    SendBuffer& out(Index micro) { return outgoing[static_cast<std::size_t>(micro % 2)]; }
  };
  /// The sum that the gradient of a micro-batch belongs to, and its place among the leaves of that sum.
  struct NodeLeaf {
    T* sum;
    Index leaf, leaves;
  };
  /// Told by a micro-batch's layers of slices and pauses: adds a slice to the sums that wait for it, moves messages
  /// along, and passes on what the last micro-batch makes final.
  struct ProgressHook : nn::GradReady {
    ProgressHook(PipelineEngine& owner, Stage& its_stage, const NodeLeaf& place, nn::GradReady* told)
        : engine(owner), stage(its_stage), node(place), final(told) {}
    void operator()(const Member& member, Range slice) override;
    Index piece() const override { return final ? final->piece() : 0; }
    void poll() override;
    PipelineEngine& engine;
    Stage& stage;
    NodeLeaf node;
    nn::GradReady* final;
  };

  /// A batch, and what its passes have to tell.
  struct Work {
    const Source<T>& source;
    const Step& step;
    const nn::Hooks<T>& hooks;
  };

  void execute(const Member& member, const Instruction& instruction, const Work& work);
  /// The sums over these rows in the last stage.
  nn::LossValue forward(const Member& member, const Stage& stage, Slot& slot, const Work& micro_batch);
  void backward(const Member& member, Stage& stage, Slot& slot, SendBuffer& out, const Work& micro_batch, Index micro);
  NodeLeaf node_leaf(const Stage& stage, Index micro, const nn::Hooks<T>& hooks) const;
  void cut(const Step& step);
  void expect(Stage& stage, Index micro, Index rows);
  nn::Pass pass(const Member& member, const Stage& stage, const Work& micro_batch) const;
  nn::Vars<T> vars(const Stage& stage, Slot& slot) const;
  int rank_of(int stage) const { return stage % comm_->size(); }
  static int tag_of_x(int stage) { return 2 * stage; }
  static int tag_of_dy(int stage) { return 2 * stage + 1; }
  template <class Visit>
  void each_request(Visit visit);

  PipelineConfig config_;
  std::shared_ptr<comm::Communicator> comm_;
  Transport<T> transport_;
  Program program_;
  threads::Team team_;
  std::vector<Stage> stages_;
  std::vector<nn::LossValue> sums_;  // of each micro-batch
  std::vector<Range> nodes_;         // of micro-batches whose gradients are added up
  Range run_;                        // of a step in leaves: the micro-batches
  std::vector<LeafNodes> leaves_;    // and that of each
  bool recording_ = false;
  bool timing_ = false;  // this gradient
  Index most_rows_ = 0;  // of a gradient that was recorded
  std::chrono::steady_clock::time_point start_;
  Lane lane_;
};

}  // namespace pdnn::engine
