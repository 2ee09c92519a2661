// Buckets are added up in one order on all ranks, whatever becomes final first; with counts, means and codecs.
#include "pdnn/reduce/bucketed_all_reduce.hpp"

#include <atomic>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <thread>

#include "allocations.hpp"
#include "ranks.hpp"

namespace bdata = boost::unit_test::data;
using namespace pdnn;
using namespace pdnn::reduce;

BOOST_AUTO_TEST_SUITE(bucketed_all_reduce)

namespace {

using Comm = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

constexpr Index kCount = 400;
const std::vector<Range> kBuckets{{300, kCount}, {200, 300}, {60, 190}, {0, 60}};  // nobody has [190, 200)
const auto kCodecs = bdata::make({"", "bf16", "int8:16", "1bit:16", "topk:0.2", "powersgd:1"});
const std::vector<codec::MatrixAt> kMatrices{{0, 6, 10}, {210, 8, 10}};

Values gradient(int rank, int step = 0) {
  Values g(kCount);
  const Rng noise = Rng(2).child(static_cast<std::uint64_t>(rank)).child(static_cast<std::uint64_t>(step));
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = noise.normal(i);
  return g;
}

std::optional<Compression> by(const std::string& codec) {
  if (codec.empty()) return {};
  return Compression{codec, {}};
}

BucketedAllReduce<double> make(const Comm& comm, const std::string& codec = "") {
  return {comm, kBuckets, by(codec), kMatrices};
}

}  // namespace

// Each rank makes pieces of 10 elements final in another order; one of rank 1's never is.
BOOST_DATA_TEST_CASE(buckets_start_in_one_order_whatever_is_ready_first, kCodecs* bdata::xrange(1, 5), codec, ranks) {
  struct Outcome {
    Values shuffled, falling;
    std::string wrong;
  };
  const auto ends = tests::on_ranks(ranks, [&](const Comm& comm) {
    Outcome end{gradient(comm->rank()), gradient(comm->rank()), ""};
    auto sum = make(comm, codec), plain = make(comm, codec);
    sum.start(end.shuffled);
    std::vector<bool> final(kCount / 10);
    for (Index turn = 0; turn < kCount / 10; ++turn) {
      const Index piece = (7 * turn + 13 * comm->rank()) % (kCount / 10);
      if (comm->rank() == 1 && piece == 3) continue;
      sum.ready({10 * piece, 10 * piece + 10});
      final[static_cast<std::size_t>(piece)] = true;
      Index prefix = 0;
      for (; prefix < sum.count(); ++prefix)
        if (!std::all_of(final.begin() + kBuckets[static_cast<std::size_t>(prefix)].begin / 10,
                         final.begin() + kBuckets[static_cast<std::size_t>(prefix)].end / 10, std::identity()))
          break;
      if (sum.started() != prefix) end.wrong += message(sum.started(), " started in place of ", prefix, "; ");
    }
    sum.finish();
    plain.start(end.falling);
    for (Index number = 0; number < plain.count(); ++number) plain.ready(plain.bucket(number));
    while (!plain.poll()) continue;
    plain.finish();
    return end;
  });
  for (const Outcome& end : ends) {
    BOOST_TEST(end.wrong == "");
    BOOST_TEST(end.shuffled == end.falling, boost::test_tools::per_element());
    const std::span<const double> first(ends[0].shuffled), own(end.shuffled);
    BOOST_TEST(own.first(190) == first.first(190), boost::test_tools::per_element());
    BOOST_TEST(own.subspan(200) == first.subspan(200), boost::test_tools::per_element());
  }
  for (std::size_t i = 190; i < 200; ++i) BOOST_TEST(ends[0].shuffled[i] == gradient(0)[i]);
  if (!std::string(codec).empty()) return;
  for (std::size_t i = 200; i < kCount; ++i) {
    double want = 0;
    for (int rank = 0; rank < ranks; ++rank) want += gradient(rank)[i];
    BOOST_TEST(ends[0].shuffled[i] == want);  // in the order of ranks
  }
}

// The same bits as if each rank had divided; so what is fed back is of a mean, too.
BOOST_DATA_TEST_CASE(counts_are_added_up_and_divide, kCodecs, codec) {
  const auto ends = tests::on_ranks(3, [&](const Comm& comm) {
    auto sum = make(comm, codec), divided = make(comm, codec);
    std::vector<Values> all;
    for (int step = 0; step < 4; ++step) {
      const double rows = step == 3 ? 0 : (step + 1) * comm->rank(), total = step == 3 ? 1 : 3 * (step + 1);
      Values mean = gradient(comm->rank(), step), own = mean;
      const Values counts{rows, 1, 0.5 * comm->rank()};
      sum.start(mean, counts, true);
      sum.ready(sum.bucket(0));
      const std::span<const double> sums = sum.finish();
      all.emplace_back(sums.begin(), sums.end());
      const bool early = !std::string(codec).empty();
      const auto divide = [&] {
        for (const Range& bucket : kBuckets)
          for (double& value : slice(std::span(own), bucket.begin, bucket.size())) value /= total;
      };
      if (early) divide();
      divided.start(own);
      divided.finish();
      if (!early) divide();
      all.insert(all.end(), {mean, own});
    }
    return all;
  });
  for (const std::vector<Values>& all : ends)
    for (std::size_t step = 0; step < 4; ++step) {
      const Values want{step == 3 ? 0.0 : 3.0 * static_cast<double>(step + 1), 3, 1.5};
      BOOST_TEST(all[3 * step] == want, boost::test_tools::per_element());
      BOOST_TEST(all[3 * step + 1] == all[3 * step + 2], boost::test_tools::per_element());
    }
}

BOOST_DATA_TEST_CASE(statistics_are_of_all_buckets_and_the_codec_only, kCodecs, codec) {
  const bool coded = !std::string(codec).empty();
  tests::on_ranks(2, [&](const Comm& comm) {
    auto sum = make(comm, codec);
    Values g = gradient(comm->rank());
    for (int step = 0; step < 3; ++step) {
      sum.start(g);
      sum.finish();
    }
    const CompressionStats stats = sum.take_stats();
    const Index plain = coded ? 3 * 8 * (kCount - 10) : 0;
    if (stats.sums != (coded ? 3 : 0) || stats.bytes != 3 * sum.bytes_sent() || stats.bytes_uncompressed != plain)
      throw std::logic_error(message(stats.sums, " sums, ", stats.bytes, " bytes, ", stats.bytes_uncompressed));
    if ((sum.bytes_sent() > 0) != coded || sum.stats().bytes != 0) throw std::logic_error("not taken");
    return 0;
  });
}

BOOST_DATA_TEST_CASE(a_rank_that_fails_ends_the_sums_of_all, bdata::make({"", "int8:16"}), codec) {
  std::vector<std::string> heard(3);
  const auto rank = [&](const Comm& comm) {
    auto sum = make(comm, codec);
    Values g = gradient(comm->rank());
    const Values rows{1};
    try {
      sum.start(g, rows, true);
      sum.ready(sum.bucket(0));
      if (comm->rank() == 1) throw std::range_error("rank 1 has no more rows");
      sum.finish();
    } catch (const Aborted& aborted) {
      heard[static_cast<std::size_t>(comm->rank())] = aborted.what();
      throw;
    }
    return 0;
  };
  BOOST_CHECK_EXCEPTION(tests::on_ranks(3, rank), std::range_error,
                        [](const std::exception& e) { return std::string(e.what()) == "rank 1 has no more rows"; });
  for (const int other : {0, 2})
    BOOST_TEST(heard[static_cast<std::size_t>(other)].find("another rank failed") != std::string::npos,
               heard[static_cast<std::size_t>(other)]);
}

BOOST_AUTO_TEST_CASE(ranks_that_cut_differently_are_told) {
  const auto rank = [](const Comm& comm) {
    BucketedAllReduce<double> sum(comm, {{comm->rank() == 0 ? 100 : 90, kCount}});
    Values g = gradient(comm->rank());
    sum.start(g);
    sum.finish();
    return 0;
  };
  BOOST_CHECK_EXCEPTION(tests::on_ranks(2, rank), ValueError, [](const ValueError& e) {
    const std::string what = e.what();
    return what.find("all_reduce(300 float64") != what.npos && what.find("all_reduce(310 float64") != what.npos;
  });
}

BOOST_DATA_TEST_CASE(repeated_sums_do_not_allocate, kCodecs, codec) {
  constexpr int kRounds = 300;
  const std::vector<long> allocated = tests::on_ranks(2, [&](const Comm& comm) {
    auto sum = make(comm, codec);
    Values g = gradient(comm->rank());
    const Values counts{2, 1};
    const auto round = [&] {
      sum.start(g, counts, true);
      for (Index number = 0; number < sum.count(); ++number) sum.ready(sum.bucket(number));
      sum.finish();
      comm->barrier();  // a rank that runs ahead takes more places for calls
    };
    for (int warm_up = 0; warm_up < 10; ++warm_up) round();
    const long before = tests::own_allocations();
    for (int i = 0; i < kRounds; ++i) round();
    return tests::own_allocations() - before;
  });
  for (const long count : allocated) BOOST_TEST(count < kRounds / 10);
}

BOOST_AUTO_TEST_CASE(buckets_arrays_and_codecs_that_are_none_are_refused) {
  const Comm self = comm::make_self();
  using Sum = BucketedAllReduce<double>;
  for (const std::vector<Range>& buckets :
       std::vector<std::vector<Range>>{{{0, 10}, {10, 20}}, {{10, 20}, {5, 11}}, {{-1, 4}}, {{4, 3}}})
    BOOST_CHECK_THROW(Sum(self, buckets), ValueError);
  BOOST_CHECK_THROW(Sum(self, {{0, 10}}, Compression{"int9", {}}), ValueError);
  Sum sum(self, {{5, 10}, {0, 5}});
  Values g(9);
  BOOST_CHECK_THROW(sum.start(g), ValueError);
  g.resize(10);
  BOOST_CHECK_THROW(sum.start(g, {}, true), ValueError);
}

BOOST_AUTO_TEST_CASE(counts_are_waited_for_though_no_bucket_has_started) {
  std::atomic<bool> looked = false;
  const auto there = tests::on_ranks(2, [&](const Comm& comm) {
    auto sum = make(comm);
    Values values(kCount);
    const std::array<double, 1> one{1};
    while (comm->rank() == 1 && !looked) std::this_thread::yield();
    sum.start(values, one);
    const bool early = sum.poll();
    looked = true;
    sum.finish();
    return early;
  });
  BOOST_TEST(!there[0]);  // rank 1 had not even begun
}

BOOST_AUTO_TEST_SUITE_END()
