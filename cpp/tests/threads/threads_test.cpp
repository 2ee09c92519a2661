// Teams and pools: all members take part, none waits forever, the first real error comes out.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include "allocations.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/threads/cores.hpp"
#include "pdnn/threads/mutex.hpp"
#include "pdnn/threads/thread_pool.hpp"

namespace bdata = boost::unit_test::data;
using namespace pdnn;
using namespace pdnn::threads;

BOOST_AUTO_TEST_SUITE(threads)

namespace {
const auto kSizes = bdata::make({1, 2, 3, 5});
}

BOOST_DATA_TEST_CASE(phases_of_a_team_are_separated_by_barriers, kSizes, size) {
  Team team(size);
  std::vector<int> cells(static_cast<std::size_t>(size));
  std::atomic<int> wrong{0};
  for (int round = 0; round < 200; ++round)
    team.run([&](const Member& member) {
      for (int phase = 0; phase < 3; ++phase) {
        cells[static_cast<std::size_t>(member.index)] = round * 3 + phase;
        member.barrier();
        for (const int cell : cells) wrong += cell != round * 3 + phase;
        member.barrier();
      }
    });
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(threads_that_sleep_until_a_number_changes_miss_no_change) {
  constexpr Patience kNone{0, 0};
  constexpr std::uint32_t kRounds = 2000;
  Signal ball, left, over;
  left.store(kRounds);
  std::thread other([&] {
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      while (ball.load() != 2 * round + 1) ball.wait(2 * round, kNone);
      ball.add(1);
      left.count_down();
    }
    over.set(4);
  });
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    BOOST_REQUIRE(ball.add(1) == 2 * round);
    while (ball.load() == 2 * round + 1) ball.wait(2 * round + 1, kNone);
  }
  for (std::uint32_t now = left.load(); now != 0;) now = left.wait(now, kNone);
  BOOST_TEST(over.wait(0, kNone) == 4);
  other.join();
}

BOOST_AUTO_TEST_CASE(a_mutex_admits_one_thread_at_a_time_and_a_forked_process_finds_it_free) {
  Mutex mutex;
  Index count = 0;
  Team(4).run([&](const Member&) {
    for (int round = 0; round < 2000; ++round) {
      const std::lock_guard lock(mutex);
      ++count;
    }
  });
  BOOST_TEST(count == 8000);
  const std::lock_guard lock(mutex);
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    std::vector<Index> guarded{1};
    static_cast<void>(lock_list(mutex, guarded));
    _exit(guarded.empty() ? 0 : 1);
  }
  int status = -1;
  BOOST_TEST(waitpid(child, &status, 0) == child);
  BOOST_TEST(status == 0);
}

BOOST_DATA_TEST_CASE(ranges_of_members_cover_every_tile_once, kSizes, size) {
  for (const Index tiles : {0, 1, 2, 7, 100}) {
    Index next = 0;
    for (int index = 0; index < size; ++index) {
      const Range range = Part{index, size}.range(tiles);
      BOOST_TEST(range.begin == next);
      BOOST_TEST(range.size() - tiles / size <= 1);
      next = range.end;
    }
    BOOST_TEST(next == tiles);
  }
}

BOOST_DATA_TEST_CASE(an_error_of_one_member_releases_the_others_and_comes_out, kSizes, size) {
  Team team(size);
  for (int round = 0; round < 20; ++round)
    BOOST_CHECK_EXCEPTION(team.run([&](const Member& member) {
      if (member.index == size - 1) throw ValueError("mine");
      member.barrier();
    }),
                          ValueError, [](const ValueError& error) { return std::string(error.what()) == "mine"; });
  std::atomic<int> ran{0};
  team.run([&](const Member& member) {
    member.barrier();
    ++ran;
  });
  BOOST_TEST(ran == size);
}

BOOST_AUTO_TEST_CASE(a_team_without_members_is_refused) { BOOST_CHECK_THROW(Team(0), ValueError); }

BOOST_DATA_TEST_CASE(a_pool_runs_each_task_once_and_lets_results_in_in_order, kSizes, workers) {
  ThreadPool pool(workers);
  for (int round = 0; round < 50; ++round) {
    std::vector<Index> order;
    pool.run(17, [&](const Task& task) { task.order.pass(task.number, [&] { order.push_back(task.number); }); });
    std::vector<Index> expected(17);
    std::iota(expected.begin(), expected.end(), Index{0});
    BOOST_TEST(order == expected, boost::test_tools::per_element());
  }
}

BOOST_DATA_TEST_CASE(a_failing_task_ends_the_round_with_its_error, kSizes, workers) {
  ThreadPool pool(workers);
  BOOST_CHECK_THROW(pool.run(9,
                             [&](const Task& task) {
                               if (task.number == 3) throw ValueError("task 3");
                               task.order.pass(task.number, [] {});
                             }),
                    ValueError);
  Index sum = 0;
  pool.run(4, [&](const Task& task) { task.order.pass(task.number, [&] { sum += task.number; }); });
  BOOST_TEST(sum == 6);
}

BOOST_AUTO_TEST_CASE(a_core_that_no_set_has_room_for_is_in_none) {
  BOOST_TEST((allowed_cores_but(1500) == allowed_cores()));
}

// The caller may be moved at any time, so one round in which it stayed where it was has to be enough.
BOOST_AUTO_TEST_CASE(workers_keep_off_the_callers_core,
                     *boost::unit_test::precondition([](auto) { return allowed_cores().count() > 1; })) {
  Team team(2);
  bool apart = false;
  for (int round = 0; round < 100 && !apart; ++round) {
    int before = 0, after = 0, worker = 0;
    team.run([&](const Member& member) {
      if (member.first()) before = current_core();
      member.barrier();
      if (!member.first()) worker = current_core();
      member.barrier();
      if (member.first()) after = current_core();
    });
    apart = before == after && worker != before;
  }
  BOOST_TEST(apart);
}

BOOST_AUTO_TEST_CASE(a_team_whose_caller_is_moved_allocates_nothing) {
  Team team(2);
  const CoreSet allowed = allowed_cores();
  long allocations = 0;
  for (std::size_t core = 0; core < allowed.size(); ++core) {
    if (!allowed[core]) continue;
    std::atomic<bool> moved = false;
    std::thread caller([&] {
      moved.wait(false);
      const long before = tests::own_allocations();
      team.run([](const Member&) {});
      allocations += tests::own_allocations() - before;
    });
    restrict_to(caller, CoreSet().set(core));
    moved = true;
    moved.notify_one();
    caller.join();
  }
  BOOST_TEST(allocations == 0);
}

BOOST_AUTO_TEST_CASE(subnormal_numbers_are_zero_in_a_team_and_not_around_it) {
  const auto halved = [] {
    const volatile float least = std::numeric_limits<float>::min();
    return least * 0.5F;
  };
  for (const int size : {1, 3}) {
    std::vector<float> found(static_cast<std::size_t>(size), 1);
    Team team(size);
    team.run([&](const Member& member) { found[static_cast<std::size_t>(member.index)] = halved(); });
    BOOST_TEST(found == std::vector<float>(found.size(), 0), boost::test_tools::per_element());
    BOOST_CHECK_THROW(team.run([](const Member&) { throw ValueError("no"); }), ValueError);
    BOOST_TEST(halved() > 0);
  }
}

BOOST_AUTO_TEST_CASE(cores_are_counted) {
  const Cores cores = read_cores();
  BOOST_TEST(cores.affinity >= 1);
  BOOST_TEST(available_cores() >= 1);
  BOOST_TEST(available_cores() <= cores.affinity);
}

BOOST_AUTO_TEST_SUITE_END()
