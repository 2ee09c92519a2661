#pragma once
/// Recorder: a rank keeps its last calls in memory that outlives it, so that others can tell who is missing, and where.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pdnn/comm/process.hpp"
#include "pdnn/comm/view.hpp"

namespace pdnn::comm {

// ---- what this thread's next calls are for

/// Words for a call: {"bucket", 2}, {"micro-batch", 3, "stage", 1}. The words outlive the calls.
struct Label {
  const char* what = "";
  Index number = -1;  ///< -1: none
  const char* part = "";
  Index of = -1;
  bool announces = false;  ///< `what` is the call that the ranks will make, of which they now compare the headers
};

/// The calls of this thread have this label, as long as it lives.
class Labeled {
 public:
  explicit Labeled(const Label& label);
  Labeled(const Labeled&) = delete;
  Labeled& operator=(const Labeled&) = delete;
  ~Labeled();

 private:
  Label before_;
};

/// The calls of this thread come from this line of a file, until it is told another. Its folder is left out.
void at_line(const char* file, int line);

// ---- a call on record

/// Kinds of Kind, and one more: a meeting in shared memory.
inline constexpr std::uint8_t kMeeting = 100;

/// One call of a rank.
struct Entry {
  std::uint64_t group = 0;  ///< the same on all of its ranks
  Index number = 0;         ///< of the group's collective calls, from 1; 0: a message
  Index count = 0;          ///< elements
  std::int64_t step = -1;
  std::int64_t entered = 0, left = 0;  ///< nanoseconds of the steady clock; left 0: not yet
  std::int32_t rank = 0, size = 1;     ///< of the group
  std::int32_t peer = 0, tag = 0;
  std::int32_t line = 0, index = -1, of = -1;
  std::uint8_t kind = 0, op = 0, dtype = 0;
  std::uint8_t announces = 0;  ///< as in Label
  std::array<char, 72> what{};
  std::array<char, 16> part{};
  std::array<char, 40> file{};
};

// ---- the memory

inline constexpr std::size_t kEntries = 1000;

/// What a rank has on record. All of it may be read while the rank writes.
struct Log {
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::size_t kWords = sizeof(Entry) / sizeof(std::uint64_t);
  static_assert(sizeof(Entry) % sizeof(std::uint64_t) == 0 && Word::is_always_lock_free);

  struct Slot {
    Word number;  // of the entry, from 1; 0 while it is written
    std::array<Word, kWords> words;

    Entry read() const;
    void write(const Entry& entry, std::uint64_t its_number);
  };
  struct Group {
    Word id;     // 0: free
    Word calls;  // collective ones that this rank has entered
    std::atomic<std::int32_t> rank, size;
  };

  Word layout;  // of this structure; written last
  std::int32_t rank, size;
  Process process;
  std::uint64_t machine;
  std::array<std::int64_t, 16> ancestors;  // of the process
  std::atomic<std::int64_t> thread;        // of a rank that is one
  Word entries;                            // so far
  Word waits;                              // the entry that the rank waits for; 0: none
  // Yes and no; no bool, which a file could give a third value. This rank gave up, and said for whom it had waited:
  std::atomic<std::uint8_t> told_missing;
  using End = std::array<char, 80>;  // how the program ended
  std::atomic<std::uint8_t> ended;   // how many of `ends` are there, of which the last one holds
  std::array<End, 4> ends;
  std::array<Group, 128> groups;
  std::array<Word, 64> told;  // what was reported, so that one rank does it for all
  std::array<Slot, kEntries> slots;

  /// Empty: the program goes on.
  std::string how_it_ended() const;
};

/// The log of one rank, in memory or in a file.
class LogMemory {
 public:
  /// In a file where there is a path, else in memory of this process. Null if the file cannot be made.
  static std::shared_ptr<LogMemory> make(int rank, int size, const std::string& path = {});
  /// Null if this is no file of a log.
  static std::shared_ptr<LogMemory> open(const std::string& path);
  LogMemory(const LogMemory&) = delete;
  LogMemory& operator=(const LogMemory&) = delete;
  ~LogMemory();

  Log& operator*() const { return *log_; }
  Log* operator->() const { return log_; }
  const std::string& path() const { return path_; }

 private:
  LogMemory(Log* log, std::string path) : log_(log), path_(std::move(path)) {}

  Log* log_;
  std::string path_;
};

using Logs = std::vector<std::shared_ptr<LogMemory>>;  ///< in the order of ranks

/// The logs of a job that this process can read.
class RecordedJob {
 public:
  /// `name`: of its files; empty: its ranks are threads of this process.
  explicit RecordedJob(std::string name = {}) : name_(std::move(name)) {}

  /// A new log, in memory where it cannot be a file.
  std::shared_ptr<LogMemory> add(int rank, int size);
  Logs logs();
  bool in_files() const { return !name_.empty(); }

 private:
  std::string name_;
  std::mutex mutex_;
  Logs logs_;
};

/// "pdnn-0-4711-88521": of the job whose first rank is this process.
std::string job_name(const Process& first);
/// The logs of the latest job of which `process` is a rank or has started one, living or dead, in files.
Logs logs_of(std::int64_t process);
/// Removes files of logs: those of jobs of which no process is left, but for the latest.
void remove_dead_logs();
/// Removes these.
void remove_files(const Logs& logs);

// ---- the rank's side

class Recorder {
 public:
  Recorder(std::shared_ptr<RecordedJob> job, int rank, int size)
      : job_(std::move(job)), memory_(job_->add(rank, size)), log_(**memory_) {}

  /// Fills in the time, the label and the line. Returns its number.
  std::uint64_t enter(Entry entry);
  void leave(std::uint64_t number);
  /// The rank waits for this entry; 0: no longer.
  void waits(std::uint64_t number) { log_.waits.store(number, std::memory_order_release); }
  /// The rank gives up, and has said for whom it waited.
  void told() { log_.told_missing.store(true); }
  /// How the program ended; said again where more is known.
  void ended(const std::string& how);
  /// A group of which this is a rank; null if there are too many.
  Log::Group* begin_group(std::uint64_t id, int rank, int size);

  RecordedJob& job() const { return *job_; }
  const Log& log() const { return log_; }
  /// True for the first rank of this machine that asks for this `key`.
  bool first_to_tell(std::uint64_t key) const;

 private:
  std::shared_ptr<RecordedJob> job_;
  std::shared_ptr<LogMemory> memory_;
  Log& log_;
};

/// A group on record, as one of its ranks sees it. Without a recorder it keeps nothing.
class RecordedGroup {
 public:
  RecordedGroup() = default;
  /// `id`: the same on all of its ranks.
  RecordedGroup(std::shared_ptr<Recorder> recorder, std::uint64_t id, int rank, int size);
  RecordedGroup(RecordedGroup&& other) noexcept { *this = std::move(other); }
  RecordedGroup& operator=(RecordedGroup&& other) noexcept;
  ~RecordedGroup();

  /// A call enters the record, a collective one with the group's next number. Returns the entry's number; 0: no record.
  std::uint64_t enter(Entry entry, bool collective);
  void leave(std::uint64_t entry);
  Index calls() const { return calls_; }  ///< collective ones so far
  std::uint64_t id() const { return id_; }
  /// A group that all of the ranks make of this one at the same place of their calls, some of them with one `color`.
  std::uint64_t id_of_part(int color) const;
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }

 private:
  std::shared_ptr<Recorder> recorder_;
  std::uint64_t id_ = 0;
  int rank_ = 0, size_ = 1;
  Log::Group* place_ = nullptr;
  Index calls_ = 0;
};

/// A call that has entered the record leaves it when this ends, however it ends, unless it is kept.
class RecordedCall {
 public:
  RecordedCall(RecordedGroup& group, std::uint64_t entry) : group_(group), entry_(entry) {}
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;
  ~RecordedCall() { group_.leave(entry_); }

  std::uint64_t entry() const { return entry_; }
  /// Another will say that it leaves. Returns the entry.
  std::uint64_t keep() { return std::exchange(entry_, 0); }

 private:
  RecordedGroup& group_;
  std::uint64_t entry_;
};

/// A collective wait is on record as long as it lives.
class RecordedWait : public RecordedCall {
 public:
  RecordedWait(RecordedGroup& group, const Entry& call) : RecordedCall(group, group.enter(call, true)) {
    if (entry() != 0) group.recorder()->waits(entry());
  }
};

/// Numbers put together to another one.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b);

}  // namespace pdnn::comm
