#include "pdnn/comm/recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLayout = 0x70646e6e'00010000 + sizeof(Log);

constexpr std::uint64_t kTaken = 1;  // the id of a group that is not filled in yet

struct Line {
  std::array<char, sizeof(Entry::file)> file{};
  int number = 0;
};

thread_local Label current_label;
thread_local Line current_line;

/// As much as there is room for, in whole characters of UTF-8.
template <std::size_t N>
void copy_text(const char* from, std::array<char, N>& to) {
  std::size_t length = std::min(std::strlen(from), N - 1);
  while (length > 0 && (static_cast<unsigned char>(from[length]) & 0xc0) == 0x80) --length;
  std::memcpy(to.data(), from, length);
  to[length] = '\0';
}

std::int64_t nanoseconds() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Where logs are: in memory where the system has such a folder.
fs::path folder_of_logs() {
  fs::path shared = "/dev/shm";
  if (::access(shared.c_str(), W_OK | X_OK) == 0) return shared;
  std::error_code error;  // TMPDIR names no folder
  const fs::path temporary = fs::temp_directory_path(error);
  return error ? fs::path("/tmp") : temporary;
}

std::string names_of_user() { return message("pdnn-", ::getuid(), "-"); }

std::uint64_t this_machine_hash() { return std::hash<std::string>{}(machine_name()); }

/// The logs of this user's files whose names begin so, by their jobs' names.
std::map<std::string, Logs> logs_in_files(const std::string& begin) {
  std::map<std::string, Logs> found;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_of_logs(), error)) {
    const std::string name = file.path().filename();
    if (!name.starts_with(begin)) continue;
    if (auto log = LogMemory::open(file.path())) found[name.substr(0, name.rfind('.'))].push_back(std::move(log));
  }
  for (auto& [name, logs] : found) std::ranges::sort(logs, {}, [](const auto& log) { return (*log)->rank; });
  return found;
}

fs::file_time_type latest_change(const Logs& logs) {
  auto latest = fs::file_time_type::min();
  std::error_code error;
  for (const auto& log : logs) latest = std::max(latest, fs::last_write_time(log->path(), error));
  return latest;
}

}  // namespace

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {  // splitmix64
  std::uint64_t x = a + 0x9e3779b97f4a7c15U * (b + 1);
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return (x ^ (x >> 31U)) | 1U;
}

// ---- labels

Labeled::Labeled(const Label& label) : before_(std::exchange(current_label, label)) {}

Labeled::~Labeled() { current_label = before_; }

void at_line(const char* file, int line) {
  const char* slash = std::strrchr(file, '/');
  copy_text(slash ? slash + 1 : file, current_line.file);
  current_line.number = line;
}

// ---- memory

std::shared_ptr<LogMemory> LogMemory::make(int rank, int size, const std::string& path) {
  int file = -1;
  if (!path.empty()) {
    ::unlink(path.c_str());
    file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);  // NOLINT: variadic
    if (file < 0) return nullptr;
    if (::posix_fallocate(file, 0, sizeof(Log)) != 0) {  // or a full disk would end the process later
      ::close(file);
      ::unlink(path.c_str());
      return nullptr;
    }
  }
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const start = ::mmap(nullptr, sizeof(Log), PROT_READ | PROT_WRITE, kind, file, 0);
  if (file >= 0) ::close(file);
  if (start == MAP_FAILED) throw CommunicationError("recorder: the system refuses memory");
  auto* const log = static_cast<Log*>(start);
  log->rank = rank;
  log->size = size;
  log->process = this_process();
  log->machine = this_machine_hash();
  const std::vector<std::int64_t> ancestors = ancestors_of(log->process.number);
  std::copy_n(ancestors.begin(), std::min(ancestors.size(), log->ancestors.size()), log->ancestors.begin());
  log->layout.store(kLayout, std::memory_order_release);
  return std::shared_ptr<LogMemory>(new LogMemory(log, path));
}

std::shared_ptr<LogMemory> LogMemory::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);  // NOLINT: variadic
  if (file < 0) return nullptr;
  struct stat status{};
  const bool fits = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == sizeof(Log) &&
                    status.st_uid == ::geteuid();
  void* const start = fits ? ::mmap(nullptr, sizeof(Log), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  if (start == MAP_FAILED) return nullptr;
  auto memory = std::shared_ptr<LogMemory>(new LogMemory(static_cast<Log*>(start), path));
  constexpr int kMostRanks = 1 << 16;  // more are not believed: words are made for each
  const Log& log = **memory;
  const bool sound = log.layout.load(std::memory_order_acquire) == kLayout && log.rank >= 0 && log.rank < log.size &&
                     log.size <= kMostRanks;
  return sound ? memory : nullptr;
}

LogMemory::~LogMemory() { ::munmap(log_, sizeof(Log)); }

// ---- jobs

std::shared_ptr<LogMemory> RecordedJob::add(int rank, int size) {
  std::shared_ptr<LogMemory> log;
  if (in_files()) log = LogMemory::make(rank, size, folder_of_logs() / message(name_, ".", rank));
  if (!log) log = LogMemory::make(rank, size);
  const std::lock_guard lock(mutex_);
  logs_.push_back(log);
  return log;
}

Logs RecordedJob::logs() {
  if (in_files()) {
    auto found = logs_in_files(name_ + ".");
    if (const auto own = found.find(name_); own != found.end()) return std::move(own->second);
  }
  const std::lock_guard lock(mutex_);
  Logs logs = logs_;
  std::ranges::sort(logs, {}, [](const auto& log) { return (*log)->rank; });
  return logs;
}

std::string job_name(const Process& first) { return message(names_of_user(), first.number, "-", first.started); }

Logs logs_of(std::int64_t process) {
  Logs latest;
  for (auto& [name, logs] : logs_in_files(names_of_user())) {
    const bool meant = std::ranges::any_of(logs, [&](const auto& log) {
      return (*log)->process.number == process || std::ranges::count((*log)->ancestors, process) > 0;
    });
    if (meant && (latest.empty() || latest_change(latest) < latest_change(logs))) latest = std::move(logs);
  }
  return latest;
}

void remove_dead_logs() {
  std::vector<Logs> dead;
  for (auto& [name, logs] : logs_in_files(names_of_user())) {
    const std::uint64_t here = this_machine_hash();
    const bool over =
        std::ranges::none_of(logs, [&](const auto& log) { return (*log)->machine != here || alive((*log)->process); });
    if (over) dead.push_back(std::move(logs));
  }
  std::ranges::sort(dead, {}, latest_change);
  for (std::size_t i = 0; i + 1 < dead.size(); ++i) remove_files(dead[i]);
}

void remove_files(const Logs& logs) {
  for (const auto& log : logs)
    if (!log->path().empty()) ::unlink(log->path().c_str());
}

Entry Log::Slot::read() const {
  std::array<std::uint64_t, kWords> copy{};
  for (std::size_t i = 0; i < kWords; ++i) copy[i] = words[i].load(std::memory_order_acquire);
  return std::bit_cast<Entry>(copy);
}

/// A reader sees number 0, or this one and these words.
void Log::Slot::write(const Entry& entry, std::uint64_t its_number) {
  const auto copy = std::bit_cast<std::array<std::uint64_t, kWords>>(entry);
  number.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < kWords; ++i) words[i].store(copy[i], std::memory_order_release);
  number.store(its_number, std::memory_order_release);
}

std::string Log::how_it_ended() const {
  const std::size_t said = std::min<std::size_t>(ended.load(std::memory_order_acquire), ends.size());
  if (said == 0) return "";
  const End& last = ends[said - 1];
  return {last.begin(), std::ranges::find(last, '\0')};
}

// ---- the rank's side

std::uint64_t Recorder::enter(Entry entry) {
  const Label& label = current_label;
  copy_text(label.what, entry.what);
  copy_text(label.part, entry.part);
  entry.index = static_cast<std::int32_t>(label.number);
  entry.of = static_cast<std::int32_t>(label.of);
  entry.announces = label.announces;
  if (log_.thread.load(std::memory_order_relaxed) == 0) log_.thread.store(this_thread(), std::memory_order_relaxed);

  const std::uint64_t number = log_.entries.fetch_add(1, std::memory_order_acq_rel) + 1;
  entry.line = current_line.number;
  entry.file = current_line.file;
  if (entry.line == 0) {  // this thread was told none: the line of the call before
    const Entry before = log_.slots[(number - 1) % kEntries].read();
    entry.line = before.line;
    entry.file = before.file;
  }
  entry.entered = nanoseconds();
  log_.slots[number % kEntries].write(entry, number);
  return number;
}

void Recorder::leave(std::uint64_t number) {
  Log::Slot& slot = log_.slots[number % kEntries];
  if (slot.number.load(std::memory_order_relaxed) != number) return;  // so long ago that its place is another's
  constexpr std::size_t kLeft = offsetof(Entry, left) / sizeof(std::uint64_t);
  slot.words[kLeft].store(static_cast<std::uint64_t>(nanoseconds()), std::memory_order_release);
  if (log_.waits.load(std::memory_order_relaxed) == number) waits(0);
}

void Recorder::ended(const std::string& how) {
  const std::uint8_t before = log_.ended.load(std::memory_order_relaxed);
  if (before >= log_.ends.size()) return;
  copy_text(how.c_str(), log_.ends[before]);
  log_.ended.store(before + 1, std::memory_order_release);
}

Log::Group* Recorder::begin_group(std::uint64_t id, int rank, int size) {
  for (Log::Group& group : log_.groups) {
    std::uint64_t free = 0;
    if (!group.id.compare_exchange_strong(free, kTaken)) continue;
    group.calls.store(0);
    group.rank.store(rank);
    group.size.store(size);
    group.id.store(id);
    return &group;
  }
  return nullptr;
}

bool Recorder::first_to_tell(std::uint64_t key) const {
  const Logs logs = job_->logs();
  Log& all = logs.empty() ? log_ : **logs.front();
  Log::Word& place = all.told[key % all.told.size()];
  std::uint64_t before = place.load();
  while (before != key)
    if (place.compare_exchange_weak(before, key)) return true;
  return false;
}

// ---- groups

RecordedGroup::RecordedGroup(std::shared_ptr<Recorder> recorder, std::uint64_t id, int rank, int size)
    : recorder_(std::move(recorder)), id_(id), rank_(rank), size_(size) {
  if (recorder_) place_ = recorder_->begin_group(id, rank, size);
}

RecordedGroup& RecordedGroup::operator=(RecordedGroup&& other) noexcept {
  std::swap(recorder_, other.recorder_);
  std::swap(id_, other.id_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  std::swap(place_, other.place_);
  std::swap(calls_, other.calls_);
  return *this;
}

RecordedGroup::~RecordedGroup() {
  if (place_) place_->id.store(0);
}

std::uint64_t RecordedGroup::enter(Entry entry, bool collective) {
  if (!recorder_) return 0;
  entry.group = id_;
  entry.rank = rank_;
  entry.size = size_;
  entry.number = collective ? ++calls_ : 0;
  if (collective && place_) place_->calls.store(static_cast<std::uint64_t>(calls_), std::memory_order_release);
  return recorder_->enter(entry);
}

void RecordedGroup::leave(std::uint64_t entry) {
  if (entry != 0 && recorder_) recorder_->leave(entry);
}

std::uint64_t RecordedGroup::id_of_part(int color) const {
  return mixed(mixed(id_, static_cast<std::uint64_t>(calls_)), static_cast<std::uint64_t>(color));
}

}  // namespace pdnn::comm
