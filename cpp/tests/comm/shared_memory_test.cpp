// Memory that ranks share: all see the same bytes, and who holds it last frees it.
#include "pdnn/comm/shared_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <vector>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/core/errors.hpp"

using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(comm_shared_memory)

namespace {

/// Fails on its rank: Boost.Test's macros are for one thread.
void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_one_rank_writes_all_see_after_a_barrier) {
  for (const int ranks : {1, 2, 3}) {
    std::vector<int> sums(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Communicator& comm) {
      const std::shared_ptr<SharedMemory> memory = share(comm, ranks * Index{sizeof(int)});
      const std::span numbers(reinterpret_cast<int*>(memory->data()), static_cast<std::size_t>(ranks));
      const auto own = static_cast<std::size_t>(comm.rank());
      sums[own] += numbers[own];  // zero at first
      comm.barrier();
      numbers[own] = comm.rank() + 1;
      comm.barrier();
      for (const int number : numbers) sums[own] += number;
    });
    for (const int sum : sums) BOOST_TEST(sum == ranks * (ranks + 1) / 2);
  }
}

BOOST_AUTO_TEST_CASE(it_outlives_the_rank_that_offered_it) {
  run_ranks(2, [](Communicator& comm) {
    std::shared_ptr<SharedMemory> memory = share(comm, 8);
    if (comm.rank() == 0) memory->data()[7] = std::byte{42};
    if (comm.rank() == 0) memory = nullptr;
    comm.barrier();
    check(comm.rank() == 0 || memory->data()[7] == std::byte{42}, "the bytes are still there");
  });
}

BOOST_AUTO_TEST_CASE(ranks_that_are_threads_are_on_one_machine) {
  run_ranks(3, [](Communicator& comm) {
    const auto machine = ranks_of_machine(comm);
    check(machine->size() == 3, "all ranks are there");
    check(machine->rank() == comm.rank(), "in their order");
  });
}

#ifdef __linux__

namespace {

/// Rank 1 of 2, where rank 0 offers a file of this process as a segment with token 77: as a process of another machine
/// would that happens to have the same number, or one of this machine.
class Offered final : public Communicator {
 public:
  Offered(int file, bool same_machine) : Communicator(1, 2), offer_{77, ::getpid(), file}, same_(same_machine) {}

  std::shared_ptr<Communicator> split(int, int) override { return nullptr; }
  std::shared_ptr<Communicator> duplicate() override { return nullptr; }
  void notify(Notice, std::int64_t) override {}
  std::int64_t notified(Notice) override { return -1; }
  [[noreturn]] void give_up(const std::string& message) override { throw CommunicationError(message); }

 private:
  Request start(const Call& call) override {
    const auto bytes = static_cast<std::size_t>(call.out.bytes());
    if (call.kind == Kind::all_gather) {  // of the ranks' machines
      own_.assign(static_cast<const std::byte*>(call.in.data), static_cast<const std::byte*>(call.in.data) + bytes / 2);
      std::memcpy(call.out.data, own_.data(), bytes / 2);
      std::memcpy(static_cast<std::byte*>(call.out.data) + bytes / 2, own_.data(), bytes / 2);
    } else if (call.kind == Kind::broadcast && bytes == sizeof offer_) {
      std::memcpy(call.out.data, offer_.data(), bytes);
    } else if (call.kind == Kind::broadcast) {
      std::memcpy(call.out.data, own_.data(), bytes);
      if (!same_) *static_cast<std::byte*>(call.out.data) ^= std::byte{1};
    }
    return {};
  }
  bool test(int) override { return true; }
  Call abandon(int) override { return {}; }
  [[noreturn]] void time_out(int, const char* call) override { give_up(call); }

  std::array<std::int64_t, 3> offer_;
  bool same_;
  std::vector<std::byte> own_;
};

/// Whether a file of so many bytes that begins with the token is taken for a segment of kBytes.
bool taken(Index file_bytes, bool same_machine) {
  const int file = ::memfd_create("some log", 0);
  const std::int64_t token = 77;
  if (::ftruncate(file, file_bytes) != 0 || ::pwrite(file, &token, sizeof token, 0) < 0)
    throw std::runtime_error("no file");
  Offered comm(file, same_machine);
  ranks_of_machine(comm);  // tells it this machine's name
  const bool got = share(comm, Index{1} << 20) != nullptr;
  ::close(file);
  return got;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_file_that_is_no_segment_of_rank_0_is_not_touched) {
  constexpr Index kBytes = (Index{1} << 20) + 64;
  BOOST_TEST(taken(kBytes, true));
  BOOST_TEST(!taken(kBytes, false));
  BOOST_TEST(!taken(sizeof(std::int64_t), true));
  BOOST_TEST(!taken(kBytes + 1, true));
}

#endif

BOOST_AUTO_TEST_SUITE_END()
