// What every communicator promises, checked for groups of one and for ranks as threads.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/core/errors.hpp"
#include "ranks.hpp"

namespace bdata = boost::unit_test::data;
using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(comm_collectives)

namespace {

constexpr Index kSizes[] = {0, 1, 7, 5003};

/// What rank `rank` brings to a call: small numbers, so that sums are exact in every type.
template <class T>
std::vector<T> values(int rank, Index count) {
  std::vector<T> result(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) result[static_cast<std::size_t>(i)] = static_cast<T>((i * 5 + rank * 3) % 31);
  return result;
}

/// The op over what all ranks bring, from its definition.
template <class T>
std::vector<T> reduced(int ranks, Index count, Op op) {
  std::vector<T> result = values<T>(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> other = values<T>(rank, count);
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (op == Op::max) result[i] = std::max(result[i], other[i]);
      if (op == Op::min) result[i] = std::min(result[i], other[i]);
      if (op == Op::sum || op == Op::mean) result[i] = static_cast<T>(result[i] + other[i]);
    }
  }
  if (op == Op::mean)
    for (T& value : result) value = static_cast<T>(value / static_cast<T>(ranks));
  return result;
}

template <class T>
std::vector<T> joined(const std::vector<Index>& counts) {
  std::vector<T> result;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const std::vector<T> part = values<T>(static_cast<int>(rank), counts[rank]);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

void expect(bool condition, const char* what, int rank) {
  if (!condition) throw std::logic_error(message(what, " is wrong on rank ", rank));
}

/// Runs visit(comm, T{}, count) on every rank for every type and size.
template <class Visit>
void for_all(int ranks, Visit visit) {
  BOOST_CHECK_NO_THROW(run_ranks(ranks, [&](Communicator& comm) {
    for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8})
      for (const Index count : kSizes) with_type(dtype, [&](auto zero) { visit(comm, zero, count); });
  }));
}

const auto kRanks = bdata::xrange(1, 5);

}  // namespace

BOOST_DATA_TEST_CASE(broadcast_puts_the_roots_data_on_every_rank, kRanks, ranks) {
  for_all(ranks, [&]<class T>(Communicator& comm, T, Index count) {
    for (int root = 0; root < ranks; ++root) {
      std::vector<T> data = values<T>(comm.rank(), count);
      comm.broadcast(std::span(data), root);
      expect(data == values<T>(root, count), "broadcast", comm.rank());
    }
  });
}

BOOST_DATA_TEST_CASE(reductions_equal_their_definition_in_place_and_apart, kRanks, ranks) {
  for_all(ranks, [&]<class T>(Communicator& comm, T, Index count) {
    for (const Op op : {Op::sum, Op::mean, Op::max, Op::min}) {
      if (op == Op::mean && !std::is_floating_point_v<T>) continue;
      const std::vector<T> wanted = reduced<T>(ranks, count, op), mine = values<T>(comm.rank(), count);
      std::vector<T> in_place = mine, apart(mine.size()), at_root(mine.size());
      comm.all_reduce(std::span(in_place), op);
      comm.all_reduce(std::span(mine), std::span(apart), op);
      comm.reduce(std::span(mine), std::span(at_root), ranks - 1, op);
      expect(in_place == wanted && apart == wanted, "all_reduce", comm.rank());
      expect(at_root == (comm.rank() == ranks - 1 ? wanted : std::vector<T>(mine.size())), "reduce", comm.rank());
    }
  });
}

BOOST_DATA_TEST_CASE(scatter_undoes_gather_with_even_and_uneven_parts, kRanks, ranks) {
  for_all(ranks, [&]<class T>(Communicator& comm, T, Index count) {
    for (const bool even : {true, false}) {
      std::vector<Index> counts;
      for (int rank = 0; rank < ranks; ++rank) counts.push_back(even ? count : share(count, rank, ranks).size());
      const std::vector<Index> given = even ? std::vector<Index>() : counts;
      const std::vector<T> all = joined<T>(counts);
      const std::vector<T> mine = values<T>(comm.rank(), counts[static_cast<std::size_t>(comm.rank())]);
      const int root = ranks / 2;
      std::vector<T> gathered(comm.rank() == root ? all.size() : 0), everywhere(all.size()), back(mine.size());
      comm.gather(std::span(mine), std::span(gathered), given, root);
      comm.all_gather(std::span(mine), std::span(everywhere), given);
      comm.scatter(std::span(gathered), given, std::span(back), root);
      expect(comm.rank() != root || gathered == all, "gather", comm.rank());
      expect(everywhere == all, "all_gather", comm.rank());
      expect(back == mine, "scatter", comm.rank());
    }
  });
}

BOOST_DATA_TEST_CASE(reduce_scatter_keeps_a_part_of_all_reduce, kRanks, ranks) {
  for_all(ranks, [&]<class T>(Communicator& comm, T, Index count) {
    std::vector<Index> counts;
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(share(count, rank, ranks).size());
    const Range own = share(count, comm.rank(), ranks);
    const std::vector<T> mine = values<T>(comm.rank(), count), sum = reduced<T>(ranks, count, Op::sum);
    std::vector<T> part(static_cast<std::size_t>(own.size()));
    comm.reduce_scatter(std::span(mine), std::span(part), counts);
    expect(std::equal(part.begin(), part.end(), sum.begin() + own.begin), "reduce_scatter", comm.rank());
  });
}

BOOST_DATA_TEST_CASE(messages_keep_their_order_and_do_not_wait_for_the_receiver, kRanks, ranks) {
  for_all(ranks, [&]<class T>(Communicator& comm, T, Index count) {
    const int next = (comm.rank() + 1) % ranks, previous = (comm.rank() + ranks - 1) % ranks;
    for (const int number : {0, 1, 2}) comm.send(std::span<const T>(values<T>(comm.rank() + number, count)), next, 4);
    comm.send(std::span<const T>(values<T>(comm.rank() + 9, count)), next, 5);
    const auto size = static_cast<std::size_t>(count);
    std::vector<T> other_tag(size), first(size), second(size), third(size);
    comm.recv(std::span(other_tag), previous, 5);
    Request one = comm.start_recv(std::span(first), previous, 4), two = comm.start_recv(std::span(second), previous, 4);
    comm.recv(std::span(third), previous, 4);
    two.wait();
    one.wait();
    expect(other_tag == values<T>(previous + 9, count), "the other tag", comm.rank());
    expect(first == values<T>(previous, count) && second == values<T>(previous + 1, count) &&
               third == values<T>(previous + 2, count),
           "the order of messages", comm.rank());
  });
}

BOOST_DATA_TEST_CASE(requests_may_be_waited_for_in_any_order, kRanks, ranks) {
  BOOST_CHECK_NO_THROW(run_ranks(ranks, [&](Communicator& comm) {
    std::vector<std::vector<float>> data;
    for (Index k = 0; k < 6; ++k) data.push_back(values<float>(comm.rank(), 100 + k));
    std::vector<Request> requests;
    for (std::vector<float>& each : data) requests.push_back(comm.start_all_reduce(std::span(each)));
    for (std::size_t k = 0; k < 6; ++k) requests[comm.rank() % 2 == 0 ? 5 - k : k].wait();
    for (Index k = 0; k < 6; ++k)
      expect(data[static_cast<std::size_t>(k)] == reduced<float>(ranks, 100 + k, Op::sum), "a sum", comm.rank());
  }));
}

BOOST_DATA_TEST_CASE(split_groups_by_color_and_orders_by_key, kRanks, ranks) {
  BOOST_CHECK_NO_THROW(run_ranks(ranks, [&](Communicator& comm) {
    const auto part = comm.split(comm.rank() % 2, -comm.rank());
    const int members = (ranks + 1 - comm.rank() % 2) / 2;
    expect(part->size() == members, "the size", comm.rank());
    expect(part->rank() == members - 1 - comm.rank() / 2, "the rank", comm.rank());
    std::vector<std::int64_t> sum{comm.rank()};
    part->all_reduce(std::span(sum));
    std::int64_t wanted = 0;
    for (int rank = comm.rank() % 2; rank < ranks; rank += 2) wanted += rank;
    expect(sum[0] == wanted, "the sum within a part", comm.rank());
    part->split(0, 0)->barrier();
  }));
}

BOOST_AUTO_TEST_CASE(an_all_reduce_from_outside_makes_sums_and_means_of_floats) {
  const auto results = tests::on_ranks(3, [](const std::shared_ptr<Communicator>& comm) {
    int calls = 0;
    comm->use(std::make_shared<AllReduce>(AllReduce{"counted", [&](Communicator& group, View data) {
                                                      ++calls;
                                                      group.all_reduce(data);  // its own one
                                                    }}));
    const std::shared_ptr<Communicator> part = comm->duplicate();
    std::vector<double> values{0, 0, 0}, mean(1);
    std::vector<std::int32_t> count{1};
    const std::vector<double> own{static_cast<double>(comm->rank())};
    part->all_reduce(std::span(own), std::span(mean), Op::mean);
    values[0] = mean[0];
    comm->all_reduce(std::span(count));
    values[1] = count[0];
    comm->use(nullptr);
    comm->all_reduce(std::span(mean));
    values[2] = calls;
    return values;
  });
  for (const std::vector<double>& values : results) BOOST_TEST(values == std::vector<double>({1, 3, 1}));
}

BOOST_AUTO_TEST_SUITE_END()
