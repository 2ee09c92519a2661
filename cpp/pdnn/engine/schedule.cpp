#include "pdnn/engine/schedule.hpp"

#include <deque>

#include "pdnn/core/errors.hpp"

namespace pdnn::engine {

namespace {

/// One pass of one of a rank's stages.
struct Pass {
  Index micro;
  int chunk;
};

class Writer {
 public:
  explicit Writer(const StagePosition& seat) : seat_(seat) {}

  void forward(const Pass& pass) { add(Do::forward, pass); }
  void backward(const Pass& pass) { add(Do::backward, pass); }
  Program take() { return std::move(program_); }

 private:
  void add(Do what, const Pass& pass) {
    if (pass.micro < seat_.micro_batches)
      append(program_, {what, pass.micro, pass.chunk}, seat_.stage(pass.chunk), seat_.stages());
  }

  StagePosition seat_;
  Program program_;
};

void check(const StagePosition& seat) {
  require(seat.ranks >= 1 && seat.rank >= 0 && seat.rank < seat.ranks, "schedule: rank ", seat.rank, " of ",
          seat.ranks);
  require(seat.micro_batches >= 1, "schedule: ", seat.micro_batches, " micro-batches; expected at least 1");
  require(seat.chunks >= 1, "schedule: ", seat.chunks, " stages a rank; expected at least 1");
}

/// Every schedule is an order of passes and a number of forward passes to warm up; then a forward and a backward in
/// turn. Passes go in groups of p micro-batches through the rank's stages, upwards, and back downwards. Where
/// micro_batches is no multiple of p, the last group is drawn whole, and what is not there is left out: the rest keeps
/// an order that works.
Program write(const StagePosition& seat, Index warm_up) {
  check(seat);
  const Index ranks = seat.ranks, group = ranks * seat.chunks;
  const Index passes = (seat.micro_batches + ranks - 1) / ranks * group;
  const auto pass = [&](Index number, bool back) {
    const auto chunk = static_cast<int>(number % group / ranks);
    return Pass{number / group * ranks + number % ranks, back ? seat.chunks - 1 - chunk : chunk};
  };
  warm_up = std::min(warm_up, passes);
  Writer writer(seat);
  for (Index i = 0; i < warm_up; ++i) writer.forward(pass(i, false));
  for (Index i = warm_up; i < passes; ++i) {
    writer.forward(pass(i, false));
    writer.backward(pass(i - warm_up, true));
  }
  for (Index i = passes - warm_up; i < passes; ++i) writer.backward(pass(i, true));
  return writer.take();
}

Index most_in_flight(const Program& program, bool (*counts)(const Instruction&, int), int chunk) {
  Index now = 0, most = 0;
  for (const Instruction& instruction : program) {
    if (!counts(instruction, chunk)) continue;
    if (instruction.what == Do::forward) most = std::max(most, ++now);
    if (instruction.what == Do::backward) --now;
  }
  return most;
}

}  // namespace

const char* name(Do what) {
  static constexpr const char* kNames[] = {"recv_x", "forward", "send_y", "recv_dy", "backward", "send_dx"};
  return kNames[static_cast<int>(what)];
}

void append(Program& program, const Instruction& pass, Index stage, Index stages) {
  const bool back = pass.what == Do::backward, above = stage + 1 < stages, below = stage > 0;
  const auto add = [&](Do what) { program.push_back({what, pass.micro, pass.chunk}); };
  if (back ? above : below) add(back ? Do::recv_dy : Do::recv_x);
  add(pass.what);
  if (back ? below : above) add(back ? Do::send_dx : Do::send_y);
}

Program gpipe(const StagePosition& seat) {
  require(seat.chunks == 1, "gpipe: ", seat.chunks, " stages a rank, expected 1; \"interleaved\" has several");
  return write(seat, seat.micro_batches + seat.ranks);
}

Program one_f_one_b(const StagePosition& seat) {
  require(seat.chunks == 1, "1f1b: ", seat.chunks, " stages a rank, expected 1; \"interleaved\" has several");
  return write(seat, seat.ranks - seat.rank - 1);
}

Program interleaved(const StagePosition& seat) {
  require(seat.chunks >= 2, "interleaved: ", seat.chunks, " stage a rank, expected 2 or more; \"1f1b\" has one");
  return write(seat, 2 * (seat.ranks - seat.rank - 1) + Index{seat.chunks - 1} * seat.ranks);
}

Program make_program(const std::string& schedule, const StagePosition& seat) {
  constexpr std::array<Program (*)(const StagePosition&), kSchedules.size()> programs{gpipe, one_f_one_b, interleaved};
  const auto* const found = std::find(kSchedules.begin(), kSchedules.end(), schedule);
  require(found != kSchedules.end(), "schedule: \"", schedule, "\"; expected \"", kSchedules[0], "\", \"",
          kSchedules[1], "\" or \"", kSchedules[2], "\"");
  return programs[static_cast<std::size_t>(found - kSchedules.begin())](seat);
}

std::vector<Program> make_programs(const std::string& schedule, int ranks, Index micro_batches, int chunks) {
  require(ranks >= 1, "schedule: ", ranks, " ranks; expected at least 1");
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(make_program(schedule, {rank, ranks, micro_batches, chunks}));
  return programs;
}

Index in_flight(const Program& program, int chunk) {
  return most_in_flight(program, [](const Instruction& i, int wanted) { return i.chunk == wanted; }, chunk);
}

Index in_flight(const Program& program) {
  return most_in_flight(program, [](const Instruction&, int) { return true; }, 0);
}

// ---- against the clock

namespace {

/// All ranks at once, each at some instruction of its program.
class Simulation {
 public:
  Simulation(const std::vector<Program>& programs, const Durations& durations)
      : programs_(programs), durations_(durations), ranks_(static_cast<int>(programs.size())) {
    int chunks = 1;
    for (const Program& program : programs)
      for (const Instruction& instruction : program) {
        require(instruction.micro >= 0 && instruction.chunk >= 0, "schedule: micro-batch ", instruction.micro,
                " of chunk ", instruction.chunk);
        chunks = std::max(chunks, instruction.chunk + 1);
        micros_ = std::max(micros_, instruction.micro + 1);
      }
    stages_ = static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(chunks);
    require(durations.forward.size() == stages_ && durations.backward.size() == stages_, "simulate: times of ",
            durations.forward.size(), " and ", durations.backward.size(), " stages, forward and backward; expected ",
            stages_);
    for (std::size_t stage = 0; stage < stages_; ++stage)
      require(durations.forward[stage] >= 0 && durations.backward[stage] >= 0 && durations.message >= 0,
              "simulate: a time is negative");
    progress_.assign(stages_ * static_cast<std::size_t>(micros_), 0);
    xs_.resize(stages_);
    dys_.resize(stages_);
    lanes_.resize(programs.size());
  }

  std::vector<Lane> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks_; ++rank)
        while (go_on(rank)) moved = true;
    }
    for (int rank = 0; rank < ranks_; ++rank) require(!next(rank), "schedule: rank ", rank, " waits forever", at(rank));
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      for (Index micro = 0; micro < micros_; ++micro)
        require(progress(stage, micro) == end(stage), "schedule: stage ", stage, " does not finish micro-batch ",
                micro);
      require(xs_[stage].empty() && dys_[stage].empty(), "schedule: nobody receives what stage ", stage, " is sent");
    }
    return std::move(lanes_);
  }

 private:
  struct Message {
    Index micro;
    double arrival;
  };

  const Instruction* next(int rank) const {
    const auto own = static_cast<std::size_t>(rank);
    return lanes_[own].size() < programs_[own].size() ? &programs_[own][lanes_[own].size()] : nullptr;
  }
  std::string at(int rank) const {
    const Instruction* const instruction = next(rank);
    return instruction ? message(" at ", name(instruction->what), " of micro-batch ", instruction->micro, " in chunk ",
                                 instruction->chunk)
                       : "";
  }
  int& progress(std::size_t stage, Index micro) {
    return progress_[stage * static_cast<std::size_t>(micros_) + static_cast<std::size_t>(micro)];
  }
  /// Whether a stage has this instruction at all.
  bool has(std::size_t stage, int what) const {
    const bool above = what == static_cast<int>(Do::send_y) || what == static_cast<int>(Do::recv_dy);
    const bool below = what == static_cast<int>(Do::recv_x) || what == static_cast<int>(Do::send_dx);
    return (!above || stage + 1 != stages_) && (!below || stage != 0);
  }
  static constexpr int kInstructions = 6;
  int end(std::size_t stage) const { return stage == 0 ? static_cast<int>(Do::send_dx) : kInstructions; }

  /// One instruction more, unless its message is not there yet.
  bool go_on(int rank) {
    const Instruction* const instruction = next(rank);
    if (!instruction) return false;
    const auto stage = static_cast<std::size_t>(instruction->chunk) * static_cast<std::size_t>(ranks_) +
                       static_cast<std::size_t>(rank);
    const int what = static_cast<int>(instruction->what);
    int& done = progress(stage, instruction->micro);
    while (!has(stage, done) && done < kInstructions) ++done;
    require(done == what, "schedule: rank ", rank, " goes through a micro-batch in another order", at(rank));

    Lane& lane = lanes_[static_cast<std::size_t>(rank)];
    Event event{*instruction, lane.empty() ? 0.0 : lane.back().end, 0};
    event.end = event.begin;
    const Message sent{instruction->micro, event.begin + durations_.message};
    switch (instruction->what) {
      case Do::recv_x:
      case Do::recv_dy: {
        std::deque<Message>& inbox = (instruction->what == Do::recv_x ? xs_ : dys_)[stage];
        if (inbox.empty()) return false;
        require(inbox.front().micro == instruction->micro, "schedule: micro-batch ", inbox.front().micro,
                " was sent first, rank ", rank, " is", at(rank));
        event.end = std::max(event.begin, inbox.front().arrival);
        inbox.pop_front();
        break;
      }
      case Do::forward:
        event.end += durations_.forward[stage];
        break;
      case Do::backward:
        event.end += durations_.backward[stage];
        break;
      case Do::send_y:
        xs_[stage + 1].push_back(sent);
        break;
      case Do::send_dx:
        dys_[stage - 1].push_back(sent);
        break;
    }
    ++done;
    while (!has(stage, done) && done < end(stage)) ++done;
    lane.push_back(event);
    return true;
  }

  const std::vector<Program>& programs_;
  const Durations& durations_;
  int ranks_;
  Index micros_ = 0;
  std::size_t stages_ = 0;
  std::vector<int> progress_;  // what a micro-batch has come to in a stage: the instruction that must come next
  std::vector<std::deque<Message>> xs_, dys_;  // under way to each stage
  std::vector<Lane> lanes_;
};

}  // namespace

std::vector<Lane> simulate(const std::vector<Program>& programs, const Durations& durations) {
  return Simulation(programs, durations).run();
}

double seconds(const std::vector<Lane>& lanes) {
  double last = 0;
  for (const Lane& lane : lanes)
    for (const Event& event : lane) last = std::max(last, event.end);
  return last;
}

double bubble(const std::vector<Lane>& lanes) {
  const double all = seconds(lanes) * static_cast<double>(lanes.size());
  double busy = 0;
  for (const Lane& lane : lanes)
    for (const Event& event : lane)
      if (event.instruction.what == Do::forward || event.instruction.what == Do::backward)
        busy += event.end - event.begin;
  return all > 0 ? 1 - busy / all : 0;
}

}  // namespace pdnn::engine
