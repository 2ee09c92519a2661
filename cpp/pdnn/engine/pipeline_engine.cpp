#include "pdnn/engine/pipeline_engine.hpp"

#include <numeric>

namespace pdnn::engine {

namespace {

template <class T>
std::span<T> values(const Tensor<T>& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.count())};
}

std::vector<Program> programs_of(const PipelineConfig& config, int ranks, int chunks) {
  if (config.programs.empty()) return make_programs(config.schedule, ranks, config.micro_batches, chunks);
  require(std::ssize(config.programs) == ranks, "Pipeline: a schedule of ", config.programs.size(), " ranks for ",
          ranks);
  for (const Program& program : config.programs)
    for (const Instruction& instruction : program)
      require(instruction.micro < config.micro_batches && instruction.chunk < chunks, "Pipeline: micro-batch ",
              instruction.micro, " of chunk ", instruction.chunk, " in a schedule of ", config.micro_batches, " and ",
              chunks);
  return config.programs;
}

}  // namespace

template <class T>
void PipelineEngine<T>::require_parts(const nn::Network<T>& network, Index micro_batches) {
  require(micro_batches == 1 || !network.traits().synchronized,
          "Pipeline: a layer with sync=True needs the whole batch at once, but micro-batches go one by one; ",
          "use sync=False, one micro-batch, or a strategy without a pipeline");
}

template <class T>
PipelineEngine<T>::PipelineEngine(const Job<T>& job, const std::vector<Chunk<T>>& chunks,
                                  std::shared_ptr<comm::Communicator> comm, const PipelineConfig& config,
                                  Index capacity)
    : Engine<T>(job),
      config_(config),
      comm_(std::move(comm)),
      transport_(comm_, config.codec),
      team_(config.threads),
      sums_(static_cast<std::size_t>(config.micro_batches)),
      nodes_{{0, config.micro_batches}},
      leaves_(sums_.size()) {
  const StagePosition seat{comm_->rank(), comm_->size(), config.micro_batches, static_cast<int>(chunks.size())};
  program_ = programs_of(config, seat.ranks, seat.chunks)[static_cast<std::size_t>(seat.rank)];
  require(tag_of_dy(seat.stages()) <= comm::kMaxTag, "Pipeline: ", seat.stages(), " stages are too many");
  stages_.reserve(chunks.size());
  Index params = 0, buffers = 0;
  for (int number = 0; number < seat.chunks; ++number) {
    const auto& [network, sample] = chunks[static_cast<std::size_t>(number)];
    require_parts(network, config.micro_batches);
    const Range own_params{params, params + nn::total(network.parameters())};
    const Range own_buffers{buffers, buffers + nn::total(network.buffers())};
    params = own_params.end;
    buffers = own_buffers.end;
    const int stage_number = seat.stage(number);
    Stage& stage = stages_.emplace_back(Stage{.network = network,
                                              .in = sample,
                                              .number = stage_number,
                                              .first = stage_number == 0,
                                              .last = stage_number + 1 == seat.stages(),
                                              .params = own_params,
                                              .buffers = own_buffers,
                                              .waiting = {own_params.size(), config.micro_batches},
                                              .slots = {},
                                              .outgoing = {}});
    const Index rows = (capacity + config.micro_batches - 1) / config.micro_batches,
                slots = in_flight(program_, number);
    stage.slots.reserve(static_cast<std::size_t>(slots));
    const Index in = stage.first ? 0 : rows * sample.count();
    const Index out = stage.last ? 0 : rows * network.output_shape(sample).count();
    for (Index i = 0; i < slots; ++i)
      stage.slots.push_back({.workspace = nn::Workspace<T>(network, sample, rows),
                             .x_in = transport_.parcel(in),
                             .y_out = transport_.parcel(out),
                             .dy_in = transport_.parcel(out)});
    for (SendBuffer& outgoing : stage.outgoing) outgoing = {AlignedArray<T>(in), transport_.parcel(in)};
  }
  require(params == job.model.count(), "Pipeline: the stages of rank ", seat.rank, " have ", params,
          " parameters, its model has ", job.model.count());
  lane_.reserve(program_.size());
}

template <class T>
template <class Visit>
void PipelineEngine<T>::each_request(Visit visit) {
  for (Stage& stage : stages_) {
    for (Slot& slot : stage.slots) {
      visit(slot.x_in.request);
      visit(slot.y_out.request);
      visit(slot.dy_in.request);
    }
    for (SendBuffer& outgoing : stage.outgoing) visit(outgoing.message.request);
  }
}

template <class T>
void PipelineEngine<T>::ProgressHook::operator()(const Member& member, Range slice) {
  const Index begin = stage.params.begin;
  stage.waiting.join(member, node.leaf, node.leaves, {slice.begin - begin, slice.end - begin}, node.sum);
  if (member.first()) poll();
  if (!final) return;
  if (node.leaves > 1) member.barrier();
  (*final)(member, slice);
}

template <class T>
void PipelineEngine<T>::ProgressHook::poll() {
  engine.each_request([](comm::Request& request) { request.test(); });
  if (final) final->poll();
}

template <class T>
nn::LossValue PipelineEngine<T>::gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) {
  std::ranges::fill(sums_, nn::LossValue{});
  if (step.leaves.count > 0) cut(step);
  timing_ = recording_ && step.count() >= most_rows_;
  try {
    if (timing_) {
      most_rows_ = step.count();
      lane_.clear();
      comm_->barrier();
    }
    start_ = std::chrono::steady_clock::now();
    for (Stage& stage : stages_)
      for (Index micro = 0; micro < std::min<Index>(std::ssize(stage.slots), config_.micro_batches); ++micro)
        expect(stage, micro, share(step.count(), micro, config_.micro_batches).size());
    team_.run([&](const Member& member) {
      for (const Instruction& instruction : program_) execute(member, instruction, {source, step, hooks});
    });
    each_request([](comm::Request& request) { request.wait(); });
  } catch (...) {
    each_request([](comm::Request& request) { request.abandon(); });
    throw;
  }
  if (step.leaves.count > 0) std::ranges::copy(sums_, hooks.leaf_sums.begin() + run_.begin);
  return sum_of_leaves(sums_);
}

/// A micro-batch is a leaf of the step's run.
template <class T>
void PipelineEngine<T>::cut(const Step& step) {
  const auto& [count, batch, run] = step.leaves;
  require(run.size() == config_.micro_batches, "Pipeline: ", run.size(), " of ", count, " leaves for ",
          config_.micro_batches, " micro-batches; expected one for each");
  if (run != run_) {
    nodes_ = nodes_of(run, count);
    for (Range& node : nodes_) node = {node.begin - run.begin, node.end - run.begin};
    run_ = run;
  }
  for (std::size_t micro = 0; micro < leaves_.size(); ++micro)
    leaves_[micro].cut(step.shard({static_cast<int>(micro), static_cast<int>(leaves_.size())}).leaves);
  for (Stage& stage : stages_)
    for (Slot& slot : stage.slots) slot.workspace.make_leaf_room(step.leaves.count);
}

/// Starts to receive what a micro-batch needs: its workspace is free.
template <class T>
void PipelineEngine<T>::expect(Stage& stage, Index micro, Index rows) {
  if (rows == 0) return;
  const comm::Labeled labeled({.what = "micro-batch", .number = micro, .part = "stage", .of = stage.number});
  Slot& slot = stage.slot(micro);
  if (!stage.first)
    transport_.expect(slot.x_in, values(slot.workspace.x(rows)), rank_of(stage.number - 1), tag_of_x(stage.number));
  if (!stage.last)
    transport_.expect(slot.dy_in, values(slot.workspace.dy(rows)), rank_of(stage.number + 1), tag_of_dy(stage.number));
}

template <class T>
void PipelineEngine<T>::execute(const Member& member, const Instruction& instruction, const Work& work) {
  const bool timed = timing_ && member.first();
  const auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); };
  if (timed) lane_.push_back({instruction, now(), 0});

  Stage& stage = stages_[static_cast<std::size_t>(instruction.chunk)];
  const Index micro = instruction.micro;
  const Step own = work.step.shard({static_cast<int>(micro), static_cast<int>(config_.micro_batches)});
  const Work micro_batch{work.source, own, work.hooks};
  const Index count = own.count();
  Slot& slot = stage.slot(micro);
  SendBuffer& out = stage.out(micro);
  const comm::Labeled labeled({.what = "micro-batch", .number = micro, .part = "stage", .of = stage.number});
  nn::LossValue loss;
  switch (instruction.what) {
    case Do::recv_x:
      if (member.first()) transport_.receive(slot.x_in, "recv_x of a pipeline");
      break;
    case Do::forward:
      loss = forward(member, stage, slot, micro_batch);
      if (member.first()) sums_[static_cast<std::size_t>(micro)] = loss;
      break;
    case Do::send_y:
      if (member.first() && count > 0)
        transport_.send(slot.y_out, values(slot.workspace.y(count)), rank_of(stage.number + 1),
                        tag_of_x(stage.number + 1));
      break;
    case Do::recv_dy:
      if (!member.first()) break;
      transport_.receive(slot.dy_in, "recv_dy of a pipeline");
      slot.y_out.request.wait();  // y has arrived, or dy could not be here
      break;
    case Do::backward:
      backward(member, stage, slot, out, micro_batch, micro);
      break;
    case Do::send_dx:
      if (member.first() && count > 0)
        transport_.send(out.message, values(Tensor<T>{out.dx.data(), count, stage.in}), rank_of(stage.number - 1),
                        tag_of_dy(stage.number - 1));
      break;
  }
  if (timed) lane_.back().end = now();
  // The workspace of a micro-batch that has come back is free for another.
  const Index next = micro + std::ssize(stage.slots);
  if (instruction.what == Do::backward && member.first() && next < config_.micro_batches)
    expect(stage, next, share(work.step.count(), next, config_.micro_batches).size());
}

template <class T>
nn::Pass PipelineEngine<T>::pass(const Member& member, const Stage& stage, const Work& micro_batch) const {
  const Leaves& leaf = micro_batch.step.leaves;
  return {.team = &member,
          .key = micro_batch.step.key(),
          .first_row = micro_batch.step.first_row,
          .offset = stage.params.begin,
          .batch_sum = micro_batch.hooks.batch_sum,
          .leaves = leaf.count > 0 ? &leaves_[static_cast<std::size_t>(leaf.run.begin - run_.begin)] : nullptr};
}

template <class T>
nn::Vars<T> PipelineEngine<T>::vars(const Stage& stage, Slot& slot) const {
  const std::span<const T> params = job_.model.params->span(), buffers = job_.model.buffers->span();
  return slot.workspace.vars(slice(params, stage.params.begin, stage.params.size()),
                             slice(buffers, stage.buffers.begin, stage.buffers.size()), nullptr);
}

template <class T>
nn::LossValue PipelineEngine<T>::forward(const Member& member, const Stage& stage, Slot& slot,
                                         const Work& micro_batch) {
  const auto& [source, step, hooks] = micro_batch;
  const Index count = step.count();
  nn::Workspace<T>& workspace = slot.workspace;
  const Tensor<const T> x = stage.first ? source.gather_x(member, step.rows, workspace) : workspace.x(count);
  nn::Target<T> target;
  if (stage.last) target = source.gather_target(member, step.rows, workspace);
  if (member.first()) slot.x = x;  // for the way back
  member.barrier();                // x has been received or gathered
  const Tensor<T> y = workspace.y(count);
  stage.network.forward(pass(member, stage, micro_batch), vars(stage, slot), x, y);
  if (!stage.last) return {};
  return job_.loss(member, y, target, step.scale, workspace.dy(count), workspace.rows());
}

template <class T>
typename PipelineEngine<T>::NodeLeaf PipelineEngine<T>::node_leaf(const Stage& stage, Index micro,
                                                                  const nn::Hooks<T>& hooks) const {
  const auto node = std::ranges::find_if(nodes_, [&](const Range& micros) { return micro < micros.end; });
  T* const sum = of_node(node - nodes_.begin(), std::ssize(nodes_), job_.model.grads->data(), hooks.more_nodes);
  return {sum + stage.params.begin, micro - node->begin, node->size()};
}

template <class T>
void PipelineEngine<T>::backward(const Member& member, Stage& stage, Slot& slot, SendBuffer& out,
                                 const Work& micro_batch, Index micro) {
  const Index count = micro_batch.step.count();
  nn::Pass own = pass(member, stage, micro_batch);
  const NodeLeaf node = node_leaf(stage, micro, micro_batch.hooks);
  ProgressHook progress(*this, stage, node,
                        micro + 1 == config_.micro_batches ? micro_batch.hooks.grad_ready : nullptr);
  own.final = &progress;
  if (member.first()) out.message.request.wait();  // the dx before the last one has left
  member.barrier();                                // and dy has been received
  const Tensor<T> dx{stage.first ? nullptr : out.dx.data(), count, stage.in};
  stage.network.backward(own, vars(stage, slot), slot.x, slot.workspace.y(count), slot.workspace.dy(count), dx,
                         {stage.waiting.of(node.leaf, node.sum), static_cast<std::size_t>(stage.params.size())});
  if (member.first())
    stage.network.commit(own, slot.workspace.saved(), count,
                         slice(job_.model.buffers->span(), stage.buffers.begin, stage.buffers.size()));
}

template <class T>
std::vector<Lane> PipelineEngine<T>::timeline() const {
  if (lane_.size() < program_.size()) return {};
  const std::vector<Program> programs = programs_of(config_, comm_->size(), static_cast<int>(stages_.size()));
  std::vector<Index> counts;
  std::vector<double> times;
  for (const Event& event : lane_) times.insert(times.end(), {event.begin, event.end});
  AlignedArray<double> own(std::ssize(times));
  std::ranges::copy(times, own.data());
  for (const Program& program : programs) counts.push_back(2 * std::ssize(program));
  AlignedArray<double> all(std::accumulate(counts.begin(), counts.end(), Index{0}));
  comm_->all_gather(comm::ConstView(own.span()), comm::View(all.span()), counts);
  std::vector<Lane> lanes;
  const double* time = all.data();
  for (const Program& program : programs) {
    lanes.emplace_back();
    for (const Instruction& instruction : program) {
      lanes.back().push_back({instruction, time[0], time[1]});
      time += 2;
    }
  }
  return lanes;
}

template class PipelineEngine<float>;
template class PipelineEngine<double>;

}  // namespace pdnn::engine
