// Ranks that share memory meet in it: what was written before is seen after, and no rank waits forever.
#include "pdnn/comm/shared_barrier.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "pdnn/comm/shared_memory.hpp"
#include "pdnn/comm/thread_group.hpp"
#include "pdnn/core/errors.hpp"

using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(comm_rendezvous)

namespace {

/// Runs f(communicator, rendezvous, memory of one number a rank) on some ranks.
template <class F>
void with_rendezvous(int ranks, F f) {
  run_ranks(ranks, [&](Communicator& comm) {
    const Index places = SharedBarrier::bytes(ranks);
    const auto memory = share(comm, places + ranks * Index{sizeof(int)});
    SharedBarrier rendezvous(comm, memory->data());
    f(comm, rendezvous, reinterpret_cast<int*>(memory->data() + places));
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_was_written_before_a_meeting_is_seen_after_it) {
  constexpr int kRounds = 200;
  for (const int ranks : {1, 2, 4}) {
    std::vector<int> wrong(static_cast<std::size_t>(ranks));
    with_rendezvous(ranks, [&](Communicator& comm, SharedBarrier& rendezvous, int* numbers) {
      for (int round = 0; round < kRounds; ++round) {
        numbers[comm.rank()] = round;
        rendezvous.meet("test");
        for (int rank = 0; rank < ranks; ++rank) wrong[static_cast<std::size_t>(comm.rank())] += numbers[rank] != round;
        rendezvous.meet("test");  // before the next round writes
      }
    });
    for (const int count : wrong) BOOST_TEST(count == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_releases_those_that_wait) {
  BOOST_CHECK_THROW(with_rendezvous(3,
                                    [](Communicator& comm, SharedBarrier& rendezvous, int*) {
                                      if (comm.rank() == 1) throw std::out_of_range("the real one");
                                      rendezvous.meet("test");
                                    }),
                    std::out_of_range);
}

BOOST_AUTO_TEST_CASE(a_wait_that_lasts_too_long_names_who_is_missing) {
  setenv("PDNN_TIMEOUT", "1", 1);
  const auto some_come = [] {
    with_rendezvous(3, [](Communicator& comm, SharedBarrier& rendezvous, int*) {
      comm.at_step(7);
      if (comm.rank() == 2) rendezvous.meet("ddp");
    });
  };
  BOOST_CHECK_EXCEPTION(some_come(), CommunicationError, [](const CommunicationError& error) {
    const std::string said = error.what();
    BOOST_TEST(said.starts_with("ddp: no answer from ranks 0, 1 for 1 s (rank 2 waits at step 7); see PDNN_TIMEOUT"));
    return true;
  });
  unsetenv("PDNN_TIMEOUT");
}

BOOST_AUTO_TEST_SUITE_END()
