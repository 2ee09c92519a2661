// What calls count: the bytes of the formulas on every rank, and the seconds of their waits.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <numeric>
#include <thread>

#include "ranks.hpp"

namespace bdata = boost::unit_test::data;
using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(comm_traffic)

namespace {

constexpr Index kCount = 1001;

/// Bytes that each rank has sent in a call of kCount floats, or that many in all.
template <class Call>
std::vector<Index> sent(int ranks, Call call) {
  return tests::on_ranks(ranks, [&](const std::shared_ptr<Communicator>& comm) {
    std::vector<float> whole(kCount), other(kCount);
    std::vector<Index> counts;
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(share(kCount, rank, ranks).size());
    const Range mine = share(kCount, comm->rank(), ranks);
    const std::span<float> part = slice(std::span(other), mine.begin, mine.size());
    const Traffic before = traffic_of_this_thread();
    call(*comm, std::span(whole), part, std::span<const Index>(counts));
    const Traffic of_thread = traffic_of_this_thread() - before;
    if (of_thread.bytes != comm->traffic().bytes) throw std::logic_error("the thread has sent something else");
    return comm->traffic().bytes;
  });
}

Index sum(const std::vector<Index>& values) { return std::accumulate(values.begin(), values.end(), Index{0}); }

}  // namespace

BOOST_AUTO_TEST_CASE(traffic_is_added_and_subtracted_field_by_field) {
  Traffic sum{1, 2, 0.5};
  sum += {10, 20, 4};
  BOOST_TEST((sum.bytes == 11 && sum.shared_bytes == 22 && sum.seconds == 4.5));
  const Traffic rest = sum - Traffic{10, 20, 4};
  BOOST_TEST((rest.bytes == 1 && rest.shared_bytes == 2 && rest.seconds == 0.5));
}

BOOST_DATA_TEST_CASE(calls_send_what_their_formulas_say, bdata::make({1, 2, 3, 4}), ranks) {
  using Whole = std::span<float>;
  using Counts = std::span<const Index>;
  constexpr Index n = kCount * Index{sizeof(float)};
  const Index others = ranks - 1;
  const int root = ranks - 1;
  const auto mine = [&](int rank) { return share(kCount, rank, ranks).size() * Index{sizeof(float)}; };
  const auto at_root =
      sent(ranks, [&](Communicator& comm, Whole whole, Whole, Counts) { comm.broadcast(whole, root); });
  const auto reduced =
      sent(ranks, [&](Communicator& comm, Whole whole, Whole, Counts) { comm.reduce(whole, whole, root); });
  const auto all_reduced = sent(ranks, [](Communicator& comm, Whole whole, Whole, Counts) { comm.all_reduce(whole); });
  const auto scattered = sent(ranks, [&](Communicator& comm, Whole whole, Whole part, Counts counts) {
    comm.scatter(whole, counts, part, root);
  });
  const auto gathered = sent(ranks, [&](Communicator& comm, Whole whole, Whole part, Counts counts) {
    comm.gather(part, whole, counts, root);
  });
  const auto all_gathered = sent(
      ranks, [](Communicator& comm, Whole whole, Whole part, Counts counts) { comm.all_gather(part, whole, counts); });
  const auto reduce_scattered = sent(ranks, [](Communicator& comm, Whole whole, Whole part, Counts counts) {
    comm.reduce_scatter(whole, part, counts);
  });
  const auto passed_on = sent(ranks, [&](Communicator& comm, Whole whole, Whole, Counts) {
    Request request = comm.start_recv(whole, (comm.rank() + ranks - 1) % ranks);
    comm.send(whole, (comm.rank() + 1) % ranks);
    request.wait();
    comm.barrier();
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const bool is_root = rank == root;
    BOOST_TEST(at_root[at] == (is_root && ranks > 1 ? n : 0));
    BOOST_TEST(reduced[at] == (is_root ? 0 : n));
    BOOST_TEST(all_reduced[at] == (ranks == 1 ? 0 : n - mine(rank) + others * mine(rank)));
    BOOST_TEST(scattered[at] == (is_root ? n - mine(rank) : 0));
    BOOST_TEST(gathered[at] == (is_root ? 0 : mine(rank)));
    BOOST_TEST(all_gathered[at] == others * mine(rank));
    BOOST_TEST(reduce_scattered[at] == (ranks == 1 ? 0 : n - mine(rank)));
    BOOST_TEST(passed_on[at] == (ranks == 1 ? 0 : n));
  }
  BOOST_TEST(sum(all_reduced) == 2 * others * n);
  BOOST_TEST(sum(all_gathered) == others * n);
  BOOST_TEST(sum(reduce_scattered) == others * n);
}

BOOST_AUTO_TEST_CASE(a_group_counts_its_own_calls_and_the_thread_all_of_them) {
  const auto outcomes = tests::on_ranks(2, [](const std::shared_ptr<Communicator>& comm) {
    const auto part = comm->split(0, comm->rank());
    std::vector<double> values(10);
    const Index before = comm->traffic().bytes, thread_before = traffic_of_this_thread().bytes;
    part->all_reduce(std::span(values));
    part->has_read(7);
    return std::vector<Index>{comm->traffic().bytes - before, traffic_of_this_thread().bytes - thread_before,
                              part->traffic().bytes, part->traffic().shared_bytes};
  });
  for (const auto& outcome : outcomes) BOOST_TEST(outcome == (std::vector<Index>{0, 80, 80, 7}));
}

namespace {

/// Whether a rank is in a wait now.
bool waits(const Communicator& comm, int rank) {
  return std::ranges::any_of(comm.recorded().recorder()->job().logs(),
                             [rank](const auto& log) { return (*log)->rank == rank && (*log)->waits.load() != 0; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(who_waits_for_another_counts_the_seconds) {
  constexpr double kLate = 0.05;
  const auto wait = [&](const std::shared_ptr<Communicator>& comm) {
    if (comm->rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(kLate));
    Request done = comm->start_barrier();
    while (!done.test()) std::this_thread::yield();  // looks are no wait
    done.wait();
    const double before = comm->traffic().seconds;
    if (comm->rank() == 1) {
      while (!waits(*comm, 0)) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::duration<double>(kLate));
    }
    comm->barrier();
    return std::pair(before, comm->traffic().seconds);
  };
  bool less = false;
  for (int tries = 0; tries < 20 && !less; ++tries) {  // a busy machine may hold rank 0 up, too
    const auto waited = tests::on_ranks(2, wait);
    BOOST_TEST(waited[0].first == 0);
    BOOST_TEST(waited[0].second >= kLate);
    less = waited[1].second < waited[0].second;
  }
  BOOST_TEST(less);
}

BOOST_AUTO_TEST_SUITE_END()
