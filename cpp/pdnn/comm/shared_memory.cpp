#include "pdnn/comm/shared_memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "pdnn/comm/process.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/core/memory.hpp"

#ifdef __linux__
#include <fcntl.h>
#endif

namespace pdnn::comm {

namespace {

constexpr Index kHeader = kCacheLine;  // of a segment: its token, by which a rank knows it again

/// An allocation, for threads of one process.
class Allocated final : public SharedMemory {
 public:
  explicit Allocated(Index bytes) : SharedMemory(nullptr, bytes), buffer_(bytes) { data_ = buffer_.data(); }

 private:
  AlignedArray<std::byte> buffer_;
};

#ifdef MAP_POPULATE
constexpr int kReady = MAP_POPULATE;  // pages are there at once, not one by one when they are touched
#else
constexpr int kReady = 0;
#endif

/// A mapping of a segment.
class Mapped final : public SharedMemory {
 public:
  /// Null if it cannot be mapped, or is no segment of these bytes: pages behind the end of a file end the process.
  static std::shared_ptr<SharedMemory> of(int file, Index bytes) {
    const auto length = static_cast<std::size_t>(bytes + kHeader);
    struct stat status{};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != bytes + kHeader) return nullptr;
    void* const start = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | kReady, file, 0);
    if (start == MAP_FAILED) return nullptr;
    return std::shared_ptr<SharedMemory>(new Mapped(static_cast<std::byte*>(start), bytes));
  }
  ~Mapped() override {
    if (!pinned(data_, bytes_)) ::munmap(data_ - kHeader, static_cast<std::size_t>(bytes_ + kHeader));
  }

  std::uint64_t token() const {
    std::uint64_t token = 0;
    std::memcpy(&token, data_ - kHeader, sizeof token);
    return token;
  }
  void set_token(std::uint64_t token) { std::memcpy(data_ - kHeader, &token, sizeof token); }

 private:
  Mapped(std::byte* start, Index bytes) : SharedMemory(start + kHeader, bytes) {}
};

/// What other threads of this process may look for, by token, while the offer lives.
class Offer {
 public:
  Offer(std::uint64_t token, const std::shared_ptr<SharedMemory>& memory) : token_(token) {
    const std::lock_guard lock(mutex);
    offers[token_] = memory;
  }
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;
  ~Offer() {
    const std::lock_guard lock(mutex);
    offers.erase(token_);
  }

  static std::shared_ptr<SharedMemory> find(std::uint64_t token) {
    const std::lock_guard lock(mutex);
    const auto found = offers.find(token);
    return found == offers.end() ? nullptr : found->second;
  }

 private:
  static inline std::mutex mutex;
  static inline std::map<std::uint64_t, std::shared_ptr<SharedMemory>> offers;

  std::uint64_t token_;
};

class File {
 public:
  explicit File(int number) : number_(number) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  bool open() const { return number_ >= 0; }

 private:
  int number_;
};

#ifdef __linux__

Index memory_of_machine() { return Index{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE); }

/// A segment of memory without a name; others open it through this process.
int make_segment(Index bytes) {
  if (bytes > memory_of_machine()) return -1;  // page after page would be taken from all programs
  const int file = ::memfd_create("pdnn", MFD_CLOEXEC);
  if (file >= 0 && ::posix_fallocate(file, 0, bytes + kHeader) != 0) {
    ::close(file);
    return -1;
  }
  return file;
}

int open_segment(std::int64_t process, std::int64_t file) {
  return ::open(message("/proc/", process, "/fd/", file).c_str(), O_RDWR | O_CLOEXEC);  // NOLINT: as open() is declared
}

#else

int make_segment(Index) { return -1; }
int open_segment(std::int64_t, std::int64_t) { return -1; }

#endif

using Machine = std::array<char, 512>;

/// machine_name(), to be sent.
Machine this_machine() {
  Machine machine{};
  machine_name().copy(machine.data(), machine.size());
  return machine;
}

std::span<std::uint8_t> bytes_of(Machine& machine) {
  return {reinterpret_cast<std::uint8_t*>(machine.data()), machine.size()};
}

}  // namespace

std::shared_ptr<SharedMemory> share(Communicator& comm, Index bytes) {
  require(bytes >= 0, "share: ", bytes, " bytes");
  if (comm.size() == 1) return std::make_shared<Allocated>(bytes);

  // Rank 0 offers a segment: its threads find the token in this process, other processes of its machine the file in
  // rank 0's process.
  std::array<std::int64_t, 3> offer{};
  std::shared_ptr<SharedMemory> memory;
  std::optional<Offer> offered;
  const bool first = comm.rank() == 0;
  const File own(first ? make_segment(bytes) : -1);
  if (first) {
    std::random_device random;
    const std::uint64_t token = (std::uint64_t{random()} << 32 | random()) | 1;
    memory = own.open() ? Mapped::of(own.number(), bytes) : nullptr;
    if (auto* mapped = dynamic_cast<Mapped*>(memory.get())) mapped->set_token(token);
    try {
      if (!memory) memory = std::make_shared<Allocated>(bytes);
      offer = {static_cast<std::int64_t>(token), ::getpid(), own.number()};
      offered.emplace(token, memory);
    } catch (const std::bad_alloc&) {
      offer = {};  // the others are to hear of it
    }
  }
  const Machine here = this_machine();
  Machine there = here;
  comm.broadcast(std::span(offer), 0);
  comm.broadcast(bytes_of(there), 0);
  const auto token = static_cast<std::uint64_t>(offer[0]);
  if (token == 0) throw std::bad_alloc();
  if (!first) {
    memory = Offer::find(token);
    if (!memory && offer[2] >= 0 && there == here) {
      const File file(open_segment(offer[1], offer[2]));
      if (file.open()) memory = Mapped::of(file.number(), bytes);
      if (memory && static_cast<Mapped&>(*memory).token() != token) memory = nullptr;  // another file by now
    }
  }
  std::array<std::int32_t, 1> seen{memory != nullptr};
  comm.all_reduce(std::span(seen), Op::min);
  return seen[0] ? memory : nullptr;
}

std::shared_ptr<Communicator> ranks_of_machine(Communicator& comm) {
  Machine own = this_machine();
  const auto length = static_cast<Index>(own.size());
  AlignedArray<std::uint8_t> all(length * comm.size());
  comm.all_gather(bytes_of(own), comm::View(all.span()));
  int color = 0;  // the first rank there
  while (std::memcmp(all.data() + color * length, own.data(), own.size()) != 0) ++color;
  return comm.split(color, comm.rank());
}

}  // namespace pdnn::comm
