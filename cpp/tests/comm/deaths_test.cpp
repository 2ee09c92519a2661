// Ranks that die: every wait of the others ends, and those that are left agree, shrink and go on.
#include <barrier>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/comm/shared_barrier.hpp"
#include "pdnn/comm/shared_memory.hpp"
#include "pdnn/comm/thread_group.hpp"

using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(comm_deaths)

namespace {

void check_here(bool holds, const char* what) {  // Boost.Test's macros are for one thread
  if (!holds) throw std::logic_error(what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_rank_that_is_left_goes_on_wherever_another_dies) {
  constexpr int kRanks = 3, kCalls = 24;
  for (int call = 1; call <= kCalls; ++call)
    run_ranks(kRanks, [&](Communicator& world) {
      const int dead = call % kRanks;
      std::vector<float> sums(10000, 1), piece(1);
      try {
        const auto twin = world.duplicate();
        const auto pair = world.split(world.rank() == dead ? 1 : 0, 0);  // in which a slow rank may hear of the death
        if (world.rank() == dead) Communicator::die_after(call);
        for (;;) {
          Request pending = twin->start_all_reduce(std::span(sums));
          world.send(std::span(piece), (world.rank() + 1) % kRanks);
          world.recv(std::span(piece), (world.rank() + kRanks - 1) % kRanks);
          pair->barrier();
          pending.wait();
        }
      } catch (const RankFailed& error) {
        check_here(error.ranks == std::vector{dead}, "who died");
      }
      const auto left = world.shrink();
      check_here(left->size() == kRanks - 1, "those left");
      check_here(left->rank() == world.rank() - (world.rank() > dead), "in their order");
      std::array<float, 1> count{1};
      left->all_reduce(std::span(count));
      check_here(count[0] == kRanks - 1, "they go on");
      check_here(left->agree(left->rank() == 0 ? 6 : 3) == 2, "they agree on bits");
    });
}

BOOST_AUTO_TEST_CASE(a_wait_in_shared_memory_ends) {
  for (const int arrivals : {1, 2, 7}) {
    std::barrier all_there(3);
    run_ranks(3, [&](Communicator& world) {
      const auto memory = share(world, SharedBarrier::bytes(3));
      SharedBarrier barrier(world, memory->data());
      all_there.arrive_and_wait();  // or a slow rank hears of the death before its first meeting
      if (world.rank() == 1) Communicator::die_after(arrivals);
      bool heard = false;
      try {
        for (int i = 0; i < 10; ++i) barrier.meet("test");
      } catch (const RankFailed& error) {
        heard = error.ranks == std::vector{1};
      }
      check_here(heard, "released");
      check_here(world.shrink()->size() == 2, "shrunk");
    });
  }
}

BOOST_AUTO_TEST_CASE(those_who_are_left_keep_the_step_and_the_all_reduce_in_use) {
  run_ranks(3, [](Communicator& world) {
    world.at_step(7);
    world.use(
        std::make_shared<AllReduce>(AllReduce{"own", [](Communicator& group, View data) { group.all_reduce(data); }}));
    if (world.rank() == 1) world.die();
    const auto left = world.shrink();
    check_here(left->step() == 7, "the step");
    check_here(left->all_reduce_in_use() == world.all_reduce_in_use(), "the all_reduce");
  });
}

BOOST_AUTO_TEST_CASE(ranks_die_one_after_another_until_one_is_left) {
  run_ranks(5, [](Communicator& world) {
    std::shared_ptr<Communicator> group(std::shared_ptr<void>(), &world);
    while (group->size() > 1) {
      if (group->rank() == 0) group->die();
      try {
        for (;;) group->barrier();
      } catch (const RankFailed&) {
        group = group->shrink();
      }
    }
    check_here(world.rank() == 4, "the last");
  });
}

BOOST_AUTO_TEST_SUITE_END()
