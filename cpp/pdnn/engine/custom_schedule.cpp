#include "pdnn/engine/custom_schedule.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn::engine {

namespace {

/// What a stage has done: its micro-batches go through in their order, so a number says it.
struct Passed {
  Index forward = 0, backward = 0;
};

class CustomSchedule {
 public:
  explicit CustomSchedule(const std::vector<Program>& passes) : passes_(passes), ranks_(std::ssize(passes)) {
    require(ranks_ > 0, "schedule: no ranks; give a list of passes for each");
    int chunks = 1;
    for (const Program& program : passes_)
      for (const Instruction& pass : program) {
        require(pass.what == Do::forward || pass.what == Do::backward, "schedule: pass \"", name(pass.what),
                "\"; expected \"forward\" or \"backward\"");
        require(pass.micro >= 0 && pass.chunk >= 0, "schedule: micro-batch ", pass.micro, " of chunk ", pass.chunk,
                "; expected numbers from 0");
        require(pass.micro < std::ssize(program) && pass.chunk < std::ssize(program), "schedule: micro-batch ",
                pass.micro, " of chunk ", pass.chunk, " among ", program.size(),
                " passes of a rank; a number left out goes neither forward nor backward");
        chunks = std::max(chunks, pass.chunk + 1);
        micro_batches_ = std::max(micro_batches_, pass.micro + 1);
      }
    stages_ = ranks_ * chunks;
    require(micro_batches_ > 0, "schedule: no micro-batches; give a list of passes for each rank");
  }

  /// Each stage by itself.
  void check_order() const {
    std::vector<Passed> passed(static_cast<std::size_t>(stages_));
    for (Index rank = 0; rank < ranks_; ++rank)
      for (const Instruction& pass : program(rank)) {
        const Index stage = stage_of(rank, pass);
        Passed& own = passed[static_cast<std::size_t>(stage)];
        const bool back = pass.what == Do::backward;
        Index& next = back ? own.backward : own.forward;
        require(pass.micro >= next, "schedule: stage ", stage, " goes ", name(pass.what), " with micro-batch ",
                pass.micro, " twice");
        require(pass.micro == next, "schedule: stage ", stage, " goes ", name(pass.what), " with micro-batch ",
                pass.micro, " before micro-batch ", next, "; gradients are added up in the order 0, 1, …, so both the ",
                "forward and the backward passes of a stage must come in it");
        require(!back || pass.micro < own.forward, "schedule: stage ", stage, " goes backward with micro-batch ",
                pass.micro, " before it has gone forward with it");
        ++next;
      }
    for (Index stage = 0; stage < stages_; ++stage) {
      const auto [forward, backward] = passed[static_cast<std::size_t>(stage)];
      require(forward == micro_batches_, "schedule: stage ", stage, " never goes forward with micro-batch ", forward);
      require(backward == micro_batches_, "schedule: stage ", stage, " never goes backward with micro-batch ",
              backward);
    }
  }

  /// All together, each pass as soon as its message is there.
  void check_waits() const {
    std::vector<Passed> passed(static_cast<std::size_t>(stages_));
    std::vector<std::size_t> at(static_cast<std::size_t>(ranks_));
    const auto next = [&](Index rank) {
      const std::size_t number = at[static_cast<std::size_t>(rank)];
      return number < program(rank).size() ? &program(rank)[number] : nullptr;
    };
    const auto go_on = [&](Index rank) {
      const Instruction* const pass = next(rank);
      if (!pass) return false;
      const Index stage = stage_of(rank, *pass), before = giver(rank, *pass);
      const bool back = pass->what == Do::backward;
      if (before >= 0 && before < stages_) {
        const Passed& other = passed[static_cast<std::size_t>(before)];
        if ((back ? other.backward : other.forward) <= pass->micro) return false;
      }
      Passed& own = passed[static_cast<std::size_t>(stage)];
      ++(back ? own.backward : own.forward);
      ++at[static_cast<std::size_t>(rank)];
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (Index rank = 0; rank < ranks_; ++rank)
        while (go_on(rank)) moved = true;
    }
    std::string waits;
    for (Index rank = 0; rank < ranks_; ++rank) {
      const Instruction* const pass = next(rank);
      if (!pass) continue;
      waits += message(waits.empty() ? "" : ", ", "stage ", stage_of(rank, *pass), " waits to go ", name(pass->what),
                       " with micro-batch ", pass->micro, " until stage ", giver(rank, *pass), " has");
    }
    require(waits.empty(), "schedule: a deadlock: ", waits);
  }

  std::vector<Program> programs() const {
    std::vector<Program> all;
    for (Index rank = 0; rank < ranks_; ++rank) {
      Program& own = all.emplace_back();
      for (const Instruction& pass : program(rank)) append(own, pass, stage_of(rank, pass), stages_);
    }
    return all;
  }

 private:
  const Program& program(Index rank) const { return passes_[static_cast<std::size_t>(rank)]; }
  Index stage_of(Index rank, const Instruction& pass) const { return pass.chunk * ranks_ + rank; }
  /// The stage from which a pass gets its x or dy; none of them at the ends.
  Index giver(Index rank, const Instruction& pass) const {
    return stage_of(rank, pass) + (pass.what == Do::backward ? 1 : -1);
  }

  const std::vector<Program>& passes_;
  Index ranks_, stages_ = 0, micro_batches_ = 0;
};

}  // namespace

std::vector<Program> with_messages(const std::vector<Program>& passes) {
  const CustomSchedule schedule(passes);
  schedule.check_order();
  schedule.check_waits();
  return schedule.programs();
}

}  // namespace pdnn::engine
