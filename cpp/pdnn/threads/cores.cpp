#include "pdnn/threads/cores.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#endif

namespace pdnn::threads {

namespace {

/// The path of this process's cgroup below `controller`'s mount ("" names version 2's single hierarchy).
std::string cgroup_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? controllers == ",," : controllers.find("," + controller + ",") != std::string::npos)
      return line.substr(second + 1);
  }
  return "/";
}

/// The smallest quota from `path` up to the root; `read` gives one directory's, 0 for none.
template <class Read>
double smallest_quota(const std::string& mount, std::string path, Read read) {
  double smallest = 0;
  for (;;) {
    const double quota = read(mount + path);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    if (path.empty() || path == "/") return smallest;
    path.erase(path.rfind('/'));
  }
}

double read_quota() {
  const double unified = smallest_quota("/sys/fs/cgroup", cgroup_path(""), [](const std::string& directory) {
    std::ifstream file(directory + "/cpu.max");
    double quota = 0, period = 0;  // "max 100000" leaves quota unread
    return file >> quota >> period && period > 0 ? quota / period : 0.0;
  });
  if (unified > 0) return unified;
  return smallest_quota("/sys/fs/cgroup/cpu", cgroup_path("cpu"), [](const std::string& directory) {
    std::ifstream quota_file(directory + "/cpu.cfs_quota_us"), period_file(directory + "/cpu.cfs_period_us");
    double quota = 0, period = 0;  // a quota of -1 is none
    return quota_file >> quota && period_file >> period && quota > 0 && period > 0 ? quota / period : 0.0;
  });
}

/// How often the calling thread has lost its core to another one; more at every call where the system does not tell. A
/// virtual machine that stands still loses none.
std::int64_t switches_of_thread() {
#ifdef __linux__
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return use.ru_nivcsw;
#else
  static std::atomic<std::int64_t> calls{0};
  return ++calls;
#endif
}

}  // namespace

Cores read_cores() {
  Cores cores;
  cores.online = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cores.affinity = cores.online;
#ifdef __linux__
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cores.affinity = std::max(1, CPU_COUNT(&mask));
  static const double quota = read_quota();
  cores.quota = quota;
#endif
  return cores;
}

int available_cores() {
  static const int count = [] {
    const Cores cores = read_cores();
    if (cores.quota <= 0) return cores.affinity;
    return std::max(1, std::min(cores.affinity, static_cast<int>(std::ceil(cores.quota))));
  }();
  return count;
}

bool yield_core() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTurn{1}, kLeast{16}, kMost{100};
  static thread_local Clock::time_point crowded_until;
  static thread_local std::chrono::milliseconds crowded_for = kLeast;
  const auto began = Clock::now();
  if (began < crowded_until) return false;
  const std::int64_t switches = switches_of_thread();
  std::this_thread::yield();
  if (const auto now = Clock::now(); now - began > kTurn && switches_of_thread() > switches) {
    crowded_until = now + crowded_for;
    crowded_for = std::min(2 * crowded_for, kMost);
  } else {
    crowded_for = kLeast;
  }
  return true;
}

CoreSet allowed_cores_but(int core) {
  CoreSet cores = allowed_cores();
  if (core >= 0 && static_cast<std::size_t>(core) < cores.size()) cores.reset(static_cast<std::size_t>(core));
  return cores;
}

#ifdef __linux__

int current_core() { return sched_getcpu(); }

static_assert(CoreSet().size() == CPU_SETSIZE);

CoreSet allowed_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CoreSet cores;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cores;
  for (std::size_t core = 0; core < cores.size(); ++core) cores[core] = CPU_ISSET(core, &mask);
  return cores;
}

void restrict_to(std::thread& thread, const CoreSet& cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (std::size_t core = 0; core < cores.size(); ++core)
    if (cores[core]) CPU_SET(core, &mask);
  pthread_setaffinity_np(thread.native_handle(), sizeof mask, &mask);
}

#else

int current_core() { return -1; }
CoreSet allowed_cores() { return {}; }
void restrict_to(std::thread&, const CoreSet&) {}

#endif

}  // namespace pdnn::threads
