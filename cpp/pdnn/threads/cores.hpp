#pragma once
/// Which and how many cores this process may really use: its affinity mask, cut by its cgroup's quota.
#include <bitset>
#include <chrono>
#include <thread>

namespace pdnn::threads {

struct Cores {
  int online = 1;    ///< in the machine
  int affinity = 1;  ///< in this process's affinity mask
  double quota = 0;  ///< the cgroup's CPU quota in cores; 0: none
};

/// Cores by their numbers. Sets of them allocate nothing.
using CoreSet = std::bitset<1024>;

/// Read from the system at each call, but for the quota, which is read once: it takes a tenth of a millisecond.
Cores read_cores();

/// min(affinity, quota), at least 1; read once.
int available_cores();

/// Gives the calling thread's core to others for a moment. False, and nothing is done, for up to a tenth of a second
/// after one that computes there has had it for a whole turn: then sleep instead, because the system wakes who has
/// slept before such a turn is over, but not who has given away its own.
bool yield_core();
/// So long: the system makes it some tens of microseconds.
constexpr std::chrono::microseconds kNap{10};

/// The core that the calling thread runs on; -1 where the system does not tell.
int current_core();
/// The cores of the calling thread's affinity mask; none where the system does not tell.
CoreSet allowed_cores();
/// Those of them that are not this one.
CoreSet allowed_cores_but(int core);
/// Has a thread run on these cores only. A system that refuses is left to place it as it likes.
void restrict_to(std::thread& thread, const CoreSet& cores);

}  // namespace pdnn::threads
