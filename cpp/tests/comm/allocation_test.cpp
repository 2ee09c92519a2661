// The calls of a training step use the memory that their first round left behind.
#include <boost/test/unit_test.hpp>

#include "allocations.hpp"
#include "pdnn/comm/thread_group.hpp"

BOOST_AUTO_TEST_SUITE(comm_allocation)

BOOST_AUTO_TEST_CASE(repeated_calls_do_not_allocate) {
  using namespace pdnn::comm;
  constexpr int kRounds = 200;
  long counts[2] = {-1, -1};
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> data(1000), other(1000);
    const auto round = [&] {
      comm.broadcast(std::span(data), 1);
      comm.all_reduce(std::span(data), Op::mean);
      Request sum = comm.start_all_reduce(std::span(data), std::span(other));
      comm.send(std::span(data), 1 - comm.rank());
      comm.recv(std::span(data), 1 - comm.rank());
      sum.wait();
      comm.barrier();
    };
    for (int warm_up = 0; warm_up < 20; ++warm_up) round();
    const long before = pdnn::tests::own_allocations();
    for (int repeat = 0; repeat < kRounds; ++repeat) round();
    counts[comm.rank()] = pdnn::tests::own_allocations() - before;
  });
  // A rank that runs ahead further than ever before may open one place more.
  BOOST_TEST(counts[0] < kRounds / 10);
  BOOST_TEST(counts[1] < kRounds / 10);
}

BOOST_AUTO_TEST_SUITE_END()
