// Ranks that are delayed and die at random, in the middle of any calls: those that are left go on with right sums.
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <thread>

#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/comm/shared_barrier.hpp"
#include "pdnn/comm/shared_memory.hpp"
#include "pdnn/comm/thread_group.hpp"
#include "random_rounds.hpp"

using namespace pdnn;
using namespace pdnn::comm;
using tests::Draw;

BOOST_AUTO_TEST_SUITE(comm_random_deaths)

namespace {

constexpr int kSteps = 12;

/// What a round draws, the same for all of its ranks.
struct Plan {
  struct Rank {
    Index dies;  // at this call; 0: never
    std::uint64_t delays;
  };
  std::vector<Rank> ranks;
  std::vector<Index> kinds;  // of the steps

  explicit Plan(Draw& draw) : ranks(static_cast<std::size_t>(draw(2, 6))) {
    for (Rank& rank : ranks)
      rank = {.dies = draw.once_in(2) ? draw(1, 60) : 0, .delays = static_cast<std::uint64_t>(draw(0, 1 << 30))};
    ranks[static_cast<std::size_t>(draw(0, std::ssize(ranks) - 1))].dies = 0;
    for (int step = 0; step < kSteps; ++step) kinds.push_back(draw(0, 6));
  }
};

/// Most often nothing, else a pause such as a busy machine makes.
void hesitate(Draw& delays) {
  if (delays.once_in(3)) std::this_thread::yield();
  if (delays.once_in(8)) std::this_thread::sleep_for(std::chrono::microseconds(delays(1, 300)));
}

/// A group with all that its ranks made of it, until one of them dies.
class Crew {
 public:
  Crew(Communicator& group, int member, Draw& delays)
      : group_(group),
        delays_(delays),
        twin_(group.duplicate()),
        part_(group.split(group.rank() % 2, 0)),
        memory_(share(group, SharedBarrier::bytes(group.size()) + group.size() * Index{sizeof(double)})),
        barrier_(*twin_, memory_->data()),
        members_(static_cast<std::size_t>(group.size())) {
    const auto own = static_cast<double>(member);
    group_.all_gather(std::span(&own, 1), std::span(members_));
  }

  void step(Index kind) {
    hesitate(delays_);
    const int rank = group_.rank(), size = group_.size();
    const double own = member(rank);
    double all = own, other = -1;
    switch (kind) {
      case 0:
        group_.all_reduce(std::span(&all, 1));
        return expect(all, sum());
      case 1: {  // a sum under way while messages go around
        Request pending = twin_->start_all_reduce(std::span(&all, 1));
        group_.send(std::span(&own, 1), (rank + 1) % size);
        hesitate(delays_);
        group_.recv(std::span(&other, 1), (rank + size - 1) % size);
        pending.wait();
        expect(other, member((rank + size - 1) % size));
        return expect(all, sum());
      }
      case 2:
        part_->all_reduce(std::span(&all, 1), Op::max);
        return expect(all, member(rank + (size - 1 - rank) / 2 * 2));
      case 3: {  // in memory that they share
        const std::span places(reinterpret_cast<double*>(memory_->data() + SharedBarrier::bytes(size)),
                               members_.size());
        places[static_cast<std::size_t>(rank)] = own;
        barrier_.meet("test");
        hesitate(delays_);
        expect(std::accumulate(places.begin(), places.end(), 0.0), sum());
        return barrier_.meet("test");
      }
      case 4: {
        std::vector<double> large(5003, own);
        group_.all_reduce(std::span(large));
        return expect(large.back(), sum());
      }
      case 5:
        other = own;
        group_.broadcast(std::span(&other, 1), size - 1);
        return expect(other, member(size - 1));
      default:
        return part_->duplicate()->barrier();
    }
  }

 private:
  double member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  double sum() const { return std::accumulate(members_.begin(), members_.end(), 0.0); }
  void expect(double got, double want) const {  // Boost.Test's macros are for one thread
    if (got != want) throw std::logic_error(message("rank ", group_.rank(), " has ", got, " in place of ", want));
  }

  Communicator& group_;
  Draw& delays_;
  std::shared_ptr<Communicator> twin_, part_;
  std::shared_ptr<SharedMemory> memory_;
  SharedBarrier barrier_;
  std::vector<double> members_;  // in the world
};

/// The steps of one rank; after a death those that are left go on from the earliest that one of them has not made.
/// Returns the group of those who are left.
std::shared_ptr<Communicator> live(const Plan& plan, Communicator& world) {
  const Plan::Rank& own = plan.ranks[static_cast<std::size_t>(world.rank())];
  Draw delays(own.delays);
  if (own.dies > 0) Communicator::die_after(own.dies);
  std::shared_ptr<Communicator> group = world.shared_from_this();
  for (std::int64_t made = 0;; group = group->shrink()) {
    bool whole = true;
    try {
      group->all_reduce(std::span(&made, 1), Op::min);
      Crew crew(*group, world.rank(), delays);
      for (; made < kSteps; ++made) crew.step(plan.kinds[static_cast<std::size_t>(made)]);
    } catch (const RankFailed&) {
      whole = false;
    }
    hesitate(delays);
    if (group->agree(whole ? 1 : 0) == 1) return group->shrink();  // without those who died unnoticed
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(those_who_are_left_go_on_with_right_sums) {
  tests::random_rounds(40, [](Draw& draw) {
    const Plan plan(draw);
    std::atomic<int> ends = 0, size = 0;
    BOOST_CHECK_NO_THROW(run_ranks(static_cast<int>(plan.ranks.size()), [&](Communicator& world) {
      size = live(plan, world)->size();
      ++ends;
    }));
    BOOST_TEST(ends == size);
    const auto mortal = std::ranges::count_if(plan.ranks, [](const Plan::Rank& rank) { return rank.dies > 0; });
    BOOST_TEST(ends >= std::ssize(plan.ranks) - mortal);
  });
}

BOOST_AUTO_TEST_SUITE_END()
