#pragma once
/// Processes of this machine: which one it is, who started it, and what it is doing now.
#include <cstdint>
#include <string>
#include <vector>

namespace pdnn::comm {

/// A process, and the thread of it that is meant (0: any). A number is used again, so its start belongs to it.
struct Process {
  std::int64_t number = 0;
  std::int64_t thread = 0;
  std::uint64_t started = 0;  ///< ticks of the kernel's clock; 0 where it is unknown
};

/// This process.
Process this_process();
/// The number of this thread, as the system counts them.
std::int64_t this_thread();
/// Its parent, that one's parent, and so on.
std::vector<std::int64_t> ancestors_of(std::int64_t process);
/// Whether it still is there.
bool alive(const Process& process);
/// "stopped (SIGSTOP)", "running (computing, or in an endless loop)", "sleeping", "died (process 17 is gone)": by so
/// many looks, 10 ms apart. One does not tell a rank that computes from one that polls.
std::string doing(const Process& process, int looks = 5);
/// What tells machines, and containers that do not see one another's processes, apart.
std::string machine_name();

}  // namespace pdnn::comm
