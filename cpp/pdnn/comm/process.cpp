#include "pdnn/comm/process.hpp"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill()
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "pdnn/core/errors.hpp"

#ifdef __linux__
#include <sys/syscall.h>
#endif

namespace pdnn::comm {

namespace {

/// What the kernel says of a process or a thread (proc(5)).
struct Stat {
  char state = '\0';  // none: it is gone, or this system does not say
  std::int64_t parent = 0;
  std::uint64_t started = 0;
};

Stat read_stat(std::int64_t process, std::int64_t thread = 0) {
  std::ifstream file(thread > 0 ? message("/proc/", process, "/task/", thread, "/stat")
                                : message("/proc/", process, "/stat"));
  std::string line;
  Stat stat;
  if (!std::getline(file, line)) return stat;
  std::istringstream words(line.substr(line.rfind(')') + 1));  // the name may have spaces
  words >> stat.state >> stat.parent;
  std::string skipped;
  constexpr int kBetween = 17;  // fields 5 to 21
  for (int i = 0; i < kBetween; ++i) words >> skipped;
  words >> stat.started;
  return stat;
}

}  // namespace

Process this_process() {
  const std::int64_t number = ::getpid();
  return {number, 0, read_stat(number).started};
}

std::int64_t this_thread() {
#ifdef __linux__
  return ::syscall(SYS_gettid);
#else
  return 0;
#endif
}

std::vector<std::int64_t> ancestors_of(std::int64_t process) {
  std::vector<std::int64_t> found;
  for (std::int64_t parent = read_stat(process).parent; parent > 0; parent = read_stat(parent).parent)
    found.push_back(parent);
  return found;
}

bool alive(const Process& process) {
  if (process.started == 0) return ::kill(static_cast<pid_t>(process.number), 0) == 0 || errno == EPERM;
  const Stat stat = read_stat(process.number);
  return stat.started == process.started && stat.state != 'Z' && stat.state != 'X';
}

std::string doing(const Process& process, int looks) {
  std::string gone = message("died (process ", process.number, " is gone)");
  if (!alive(process)) return gone;
  if (process.started == 0) return "alive";
  constexpr auto kBetween = std::chrono::milliseconds(10);
  int running = 0;
  char state = '\0';
  for (int look = 0; look < looks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetween);
    state = read_stat(process.number, process.thread).state;
    if (state == '\0') return process.thread > 0 ? "its thread has ended" : gone;
    if (state == 'T') return "stopped (SIGSTOP)";
    if (state == 't') return "stopped by a debugger";
    running += state == 'R';
  }
  if (running > looks / 2) return "running (computing, or in an endless loop)";
  return state == 'D' ? "waiting for a disk" : "sleeping";
}

#ifdef __linux__

std::string machine_name() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 256> host{}, processes{};
  ::gethostname(host.data(), host.size() - 1);
  if (::readlink("/proc/self/ns/pid", processes.data(), processes.size() - 1) < 0) processes[0] = '\0';
  return message(boot, " ", host.data(), " ", processes.data());
}

#else

std::string machine_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

#endif

}  // namespace pdnn::comm
