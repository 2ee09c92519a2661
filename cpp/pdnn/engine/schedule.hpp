#pragma once
/// Schedule: what each rank of a pipeline does in which order, as data. Nothing is communicated to draw, count or time
/// one.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pdnn/core/types.hpp"

namespace pdnn::engine {

/// A micro-batch passes through a stage in this order. The first stage has no one to receive x from, the last none to
/// send y to. Sends only start here: they must not wait for the receiver, or 1F1B stands still at two micro-batches.
enum class Do : std::uint8_t { recv_x, forward, send_y, recv_dy, backward, send_dx };
const char* name(Do what);

struct Instruction {
  Do what;
  Index micro;
  int chunk = 0;  ///< of the rank's stages: with p ranks it is stage chunk · p + rank
  bool operator==(const Instruction&) const = default;
};
using Program = std::vector<Instruction>;

/// Which rank's program is wanted.
struct StagePosition {
  int rank = 0, ranks = 1;
  Index micro_batches = 1;  ///< micro-batches of a step
  int chunks = 1;           ///< stages of each rank

  int stages() const { return ranks * chunks; }
  int stage(int chunk) const { return chunk * ranks + rank; }
};

/// Appends a pass of a stage, with the message that it waits for before it and the one that it makes possible after it.
void append(Program& program, const Instruction& pass, Index stage, Index stages);

/// All forward passes, then all backward passes: holds every micro-batch (Huang et al. 2019, GPipe, section 2.3).
Program gpipe(const StagePosition& seat);
/// After p - rank - 1 forward passes to warm up, one forward and one backward in turn: as short, and holds at most
/// min(micro_batches, p - rank) micro-batches (Narayanan et al. 2019, PipeDream, section 3.2, with one update a step).
Program one_f_one_b(const StagePosition& seat);
/// The same with several stages a rank, each a fraction as long, so that filling and draining take that fraction of the
/// time; more messages, and more held (Narayanan et al. 2021, section 2.2.2). Micro-batches go in groups of p; any
/// number of them will do.
Program interleaved(const StagePosition& seat);

/// The names of the three.
inline constexpr std::array<std::string_view, 3> kSchedules{"gpipe", "1f1b", "interleaved"};

/// ValueError for a name that is none of kSchedules, or several chunks where one is meant.
Program make_program(const std::string& schedule, const StagePosition& seat);
std::vector<Program> make_programs(const std::string& schedule, int ranks, Index micro_batches, int chunks);

/// The most passes between forward and backward at one time: of a chunk, the workspaces that it needs; of all of them,
/// what a rank holds. A chunk's passes go back in the order in which they came, so micro-batch i has workspace
/// i % in_flight.
Index in_flight(const Program& program, int chunk);
Index in_flight(const Program& program);

/// Seconds, of every stage for one micro-batch, and from the start of a send until the message is there.
struct Durations {
  std::vector<double> forward, backward;
  double message = 0;
};

/// An instruction with its seconds since the step began: what a rank computed, or how long it waited.
struct Event {
  Instruction instruction;
  double begin = 0, end = 0;
};
using Lane = std::vector<Event>;

/// Runs the programs of all ranks against the clock, each instruction as early as its rank and its message allow.
/// Throws ValueError where they do not work out: a message that nobody sends or receives, or receives in another order,
/// a circle of ranks that wait for each other, a micro-batch that does not go through every stage forward and backward
/// once.
std::vector<Lane> simulate(const std::vector<Program>& programs, const Durations& durations);

/// The end of the last event.
double seconds(const std::vector<Lane>& lanes);
/// The share of all ranks' time in which they compute nothing. Of p equal stages with m micro-batches and v chunks:
/// (p - 1) / (v m + p - 1).
double bubble(const std::vector<Lane>& lanes);

}  // namespace pdnn::engine
