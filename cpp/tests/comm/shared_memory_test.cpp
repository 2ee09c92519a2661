// Memory that ranks share: all see the same bytes, and who holds it last frees it.
#include "pdnn/comm/shared_memory.hpp"

#include <boost/test/unit_test.hpp>

#include "pdnn/comm/thread_group.hpp"

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

BOOST_AUTO_TEST_SUITE_END()
