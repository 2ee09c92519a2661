#include "pdnn/strategy/grid.hpp"

#include <array>

#include "pdnn/partition/cut.hpp"
#include "pdnn/partition/split_layers.hpp"

namespace pdnn::strategy {

Grid::Grid(comm::Communicator& world, int stages, int tensor_ranks) {
  const int held_by = stages * tensor_ranks;
  require(stages >= 1 && tensor_ranks >= 1 && world.size() % held_by == 0, "Grid: ", stages, " stages of ",
          tensor_ranks, " ranks do not divide ", world.size(), " ranks");
  const int own = world.rank() / held_by, within = world.rank() % held_by;
  stage = within / tensor_ranks;
  place = within % tensor_ranks;
  reports = stage == stages - 1 && place == 0;
  data = world.split(within, world.rank());
  replica = world.split(own, world.rank());
  pipeline = world.split(own * tensor_ranks + place, world.rank());
  tensor = world.split(own * stages + stage, world.rank());
}

/// The cut that is given, or one by what rank 0 measures.
template <class T>
std::vector<Index> GridStrategy<T>::cut(const nn::Network<T>& network, const Shape& sample, comm::Communicator& world,
                                        Index batch_size, const GridConfig& config) const {
  const int stages = config.stages * config.chunks;
  if (stages == 1 || !config.cut.empty()) return config.cut;
  std::vector<Index> cut(static_cast<std::size_t>(stages) - 1);
  require(std::ssize(network.layers()) >= stages, "Pipeline: ", stages, " stages of ", network.layers().size(),
          " layers; a stage has at least one");
  if (world.rank() == 0) {
    const Index rows = std::max<Index>(1, batch_size / (grid_.data->size() * config.pipeline.micro_batches));
    cut = partition::measured_cut(network, sample, stages, rows);
  }
  world.broadcast(comm::View(std::span(cut)), 0);
  return cut;
}

namespace {

/// ValueError if a stage begins amid layers that are computed as one elsewhere.
template <class T>
void check_bits(const nn::Network<T>& network, const Shape& sample, const std::vector<Range>& stages) {
  for (const auto& [begin, end] : network.bound(sample)->inseparable())
    for (const Range& stage : stages)
      require(stage.begin <= begin || stage.begin >= end, "reproducible sums: a stage begins with layer ", stage.begin,
              ", but layers ", begin, " to ", end - 1, ", a convolution and its pooling, are computed as one, with ",
              "other bits than in two stages; cut before layer ", begin, " or ", end, ", or into fewer stages");
}

}  // namespace

template <class T>
void GridStrategy<T>::take_stages(const nn::Network<T>& network, const Shape& sample, const GridConfig& config,
                                  const std::vector<Range>& all) {
  Shape in = sample;
  for (std::size_t number = 0; number < all.size(); ++number) {
    partition::NetworkPart<T> part = partition::layers_of(network, all[number]);
    const Shape stage_in = in;
    for (const nn::LayerPtr<T>& layer : part.layers) in = layer->output_shape(in);
    if (static_cast<int>(number) % config.stages != grid_.stage) continue;
    if (config.tensor > 1) part = partition::split_layers(part, grid_.tensor, config.stages * config.chunks == 1);
    const auto bound = nn::Network<T>(part.layers, part.first_number).bound(stage_in);
    stages_.push_back({part, stage_in, config.chunks == 1 ? bound->with_panels() : bound});
  }
}

template <class T>
std::unique_ptr<Engine<T>> GridStrategy<T>::make_engine(const Job<T>& job, Index batch_size, const GridConfig& config) {
  const int replicas = grid_.data->size();
  const Leaves leaves{config.leaves, batch_size, share(config.leaves, grid_.data->rank(), replicas)};
  const Index capacity = config.leaves > 0 ? leaves.rows().size() : (batch_size + replicas - 1) / replicas;
  if (!config.piecewise()) return std::make_unique<engine::TeamEngine<T>>(job, config.pipeline.threads, capacity);
  std::vector<engine::Chunk<T>> chunks;
  for (const Stage& stage : stages_) chunks.push_back({*stage.network, stage.sample});
  auto engine = std::make_unique<engine::PipelineEngine<T>>(job, chunks, grid_.pipeline, config.pipeline, capacity);
  pipeline_ = engine.get();
  return engine;
}

template <class T>
GridStrategy<T>::GridStrategy(const std::shared_ptr<nn::Model<T>>& whole,
                              const std::shared_ptr<optim::Optimizer<T>>& optimizer, const nn::Loss<T>& loss,
                              const Shape& sample, comm::Communicator& world, Index batch_size, const GridConfig& given)
    : grid_(world, given.stages, given.tensor) {
  GridConfig config = given;
  if (config.leaves > 0)
    config.pipeline.micro_batches = share(config.leaves, grid_.data->rank(), grid_.data->size()).size();
  const nn::Network<T>& network = whole->network();
  if (config.piecewise())  // all ranks, whichever has the layer
    engine::PipelineEngine<T>::require_parts(network, config.pipeline.micro_batches);
  const std::vector<Range> stages =
      partition::stages_of(std::ssize(network.layers()), cut(network, sample, world, batch_size, config));
  take_stages(network, sample, config, stages);
  partition::NetworkPart<T> own = stages_[0].part;
  for (std::size_t i = 1; i < stages_.size(); ++i) {
    const partition::NetworkPart<T>& part = stages_[i].part;
    own.layers.insert(own.layers.end(), part.layers.begin(), part.layers.end());
    own.params.insert(own.params.end(), part.params.begin(), part.params.end());
    own.buffers.insert(own.buffers.end(), part.buffers.begin(), part.buffers.end());
  }
  const nn::Layout<T> layout = stages_.size() == 1 ? stages_[0].network->layout() : nn::Layout<T>();
  partial_ = std::make_unique<partition::PartialModel<T>>(whole, optimizer, own, grid_.replica, layout);
  const Job<T> job{partial_->model(), *stages_[0].network, loss, stages_[0].sample};
  using Options = typename DataParallel<T>::Options;
  using Sum = typename DataParallel<T>::Sum;
  const Index leaves = this->leaves(config);
  if (leaves > 0) check_bits(network, sample, stages);
  replicas_ =
      std::make_unique<DataParallel<T>>(job, partial_->optimizer(), make_engine(job, batch_size, config), grid_.data,
                                        Options{.reducer = config.reducer,
                                                .sum = config.sum_of_means ? Sum::of_means : Sum::of_rows,
                                                .leaves = leaves,
                                                .replica = grid_.replica,
                                                .counts = grid_.reports,
                                                .place = [this](Index element) { return partial_->place(element); }});
}

/// Those of the configuration; the micro-batches of one pipeline, unless they have statistics of their own.
template <class T>
Index GridStrategy<T>::leaves(const GridConfig& config) const {
  const auto alike = [](const Stage& stage) { return !stage.network->traits().own_statistics; };
  std::array<std::int32_t, 1> all{std::ranges::all_of(stages_, alike)};
  grid_.replica->all_reduce(std::span(all), comm::Op::min);
  require(config.leaves == 0 || all[0],
          "reproducible sums: a layer with sync=False has statistics of the rows that are ",
          "computed together, which depend on the ranks");
  if (config.leaves > 0) return config.leaves;
  const bool one_pipeline = config.piecewise() && config.tensor == 1 && grid_.data->size() == 1;
  return one_pipeline && all[0] ? config.pipeline.micro_batches : 0;
}

template <class T>
EpochSums GridStrategy<T>::run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
  partial_->take();
  const EpochSums sums = replicas_->run_epoch(source, epoch, poll);
  partial_->gather();
  return sums;
}

template <class T>
void GridStrategy<T>::record() {
  if (pipeline_) pipeline_->record();
}

template <class T>
std::vector<Lane> GridStrategy<T>::timeline() const {
  return pipeline_ ? pipeline_->timeline() : std::vector<Lane>{};
}

template class GridStrategy<float>;
template class GridStrategy<double>;

}  // namespace pdnn::strategy
