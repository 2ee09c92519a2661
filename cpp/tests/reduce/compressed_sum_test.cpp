// Sums over ranks by codecs: as defined, the same bits on all ranks, bytes as computed, errors fed back, slice by
// slice.
#include "pdnn/reduce/compressed_sum.hpp"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "allocations.hpp"
#include "pdnn/comm/thread_group.hpp"
#include "pdnn/core/errors.hpp"

namespace bdata = boost::unit_test::data;
using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::reduce;

BOOST_AUTO_TEST_SUITE(compressed_sum)

namespace {

const auto kCodecs = bdata::make({"fp16", "bf16", "int8:32", "1bit:64", "topk:0.2", "powersgd:2"});
const auto kForms = bdata::make({0, 1, 2});
constexpr Index kCount = 1000;
const std::vector<codec::MatrixAt> kMatrices{{10, 20, 30}, {610, 6, 50}};

std::vector<double> gradient(int rank, int step) {
  std::vector<double> g(kCount);
  const Rng noise = Rng(2).child(static_cast<std::uint64_t>(rank)).child(static_cast<std::uint64_t>(step));
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = 0.3 * Rng(1).normal(i) + noise.normal(i);
  return g;
}

std::vector<double> summed(int ranks, int step) {
  std::vector<double> sum(kCount);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<double> g = gradient(rank, step);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += g[i];
  }
  return sum;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// Runs work(comm) as each of `ranks` threads; returns what they returned.
template <class Work>
auto on_ranks(int ranks, Work work) {
  using Shared = std::shared_ptr<comm::Communicator>;
  std::vector<decltype(work(Shared()))> results(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    results[static_cast<std::size_t>(comm.rank())] = work(Shared(Shared(), &comm));
  });
  return results;
}

/// What a rank has after some steps: its last sum, the sum of all sums, and its statistics.
struct Outcome {
  std::vector<double> last, all;
  CompressionStats stats;
  Index bytes_sent;
};

std::vector<Outcome> outcomes(int ranks, const Compression& how, int steps, Range slice = {0, kCount}) {
  return on_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& comm) {
    const auto sum = make_compressed_sum<double>(comm, how, slice, kMatrices);
    Outcome outcome{{}, std::vector<double>(kCount), {}, sum->bytes_sent()};
    for (int step = 0; step < steps; ++step) {
      outcome.last = gradient(comm->rank(), step);
      (*sum)(outcome.last);
      for (std::size_t i = 0; i < outcome.all.size(); ++i) outcome.all[i] += outcome.last[i];
    }
    outcome.stats = sum->stats();
    return outcome;
  });
}

}  // namespace

BOOST_DATA_TEST_CASE(ranks_get_the_same_bits_near_the_sum, kCodecs * kForms * bdata::xrange(2, 5), spec, form, ranks) {
  const Compression how{spec, false, static_cast<Form>(form), true};
  const std::vector<Outcome> ends = outcomes(ranks, how, 1);
  const std::vector<double> want = summed(ranks, 0);
  double lost = 0;
  for (const Outcome& end : ends) {
    BOOST_TEST(end.last == ends[0].last, boost::test_tools::per_element());
    lost += std::sqrt(end.stats.lost);
  }
  BOOST_TEST(distance(ends[0].last, want) <= lost + 1e-9);  // no more than what was lost on the way
  BOOST_TEST(lost > 0);
}

BOOST_DATA_TEST_CASE(bytes_are_as_computed, kCodecs* bdata::make({1, 2}) * bdata::xrange(1, 5), spec, form, ranks) {
  const std::vector<Outcome> ends = outcomes(ranks, {spec, {}, static_cast<Form>(form)}, 3);
  const auto codec = codec::make_codec<double>(spec, kCount, kMatrices);
  Index all = 0, shares = 0;
  for (const Outcome& end : ends) {
    BOOST_TEST(end.stats.sums == 3);
    BOOST_TEST(end.stats.bytes == (ranks == 1 ? 0 : 3 * end.bytes_sent));
    BOOST_TEST(end.stats.bytes_uncompressed == 3 * (2 * (ranks - 1) * kCount * 8 / ranks));
    all += end.stats.bytes;
  }
  if (codec->spec() == "powersgd:2") {
    BOOST_TEST(all == 3 * ranks * (2 * (ranks - 1) * codec->bytes(kCount) / ranks));
    return;
  }
  for (int rank = 0; rank < ranks; ++rank) shares += codec->bytes(share(kCount, rank, ranks).size());
  const Index once = static_cast<Form>(form) == Form::gather ? ranks * codec->bytes(kCount) : 2 * shares;
  BOOST_TEST(all == 3 * (ranks - 1) * once);
}

BOOST_DATA_TEST_CASE(sums_follow_with_feedback_and_not_without,
                     bdata::make({"1bit:64", "topk:0.05", "powersgd:1"}) * bdata::make({1, 2}), spec, form) {
  const int steps = 60;
  std::vector<double> want(kCount);
  for (int step = 0; step < steps; ++step) {
    const std::vector<double> sum = summed(3, step);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += sum[i];
  }
  const auto strays = [&](bool feedback) {
    return distance(outcomes(3, {spec, feedback, static_cast<Form>(form)}, steps)[0].all, want);
  };
  const double with = strays(true), without = strays(false);
  BOOST_TEST(with < 0.4 * without, spec << ": " << with << " with feedback, " << without << " without");
}

BOOST_DATA_TEST_CASE(slices_may_be_under_way_at_once, kCodecs* bdata::make({1, 2}), spec, form) {
  const Compression how{spec, {}, static_cast<Form>(form)};
  const Range slices[] = {{630, kCount}, {7, 630}, {3, 7}, {2, 3}, {2, 2}};  // as a backward pass makes them final
  const std::vector<std::vector<double>> ends = on_ranks(3, [&](const std::shared_ptr<comm::Communicator>& comm) {
    std::vector<double> g = gradient(comm->rank(), 0);
    std::vector<std::unique_ptr<CompressedSum<double>>> sums;
    for (const Range slice : slices) {
      sums.push_back(make_compressed_sum<double>(comm, how, slice, kMatrices));
      sums.back()->start(g);
      sums.front()->test();
    }
    while (!sums.front()->test()) continue;
    for (const auto& sum : sums) sum->finish();
    return g;
  });
  for (const Range slice : slices) {
    const std::vector<Outcome> alone = outcomes(3, how, 1, slice);
    for (Index i = slice.begin; i < slice.end; ++i)
      BOOST_REQUIRE_EQUAL(ends[0][static_cast<std::size_t>(i)], alone[0].last[static_cast<std::size_t>(i)]);
  }
  BOOST_TEST(ends[0][0] == gradient(0, 0)[0]);  // no slice has it
}

BOOST_DATA_TEST_CASE(alone_nothing_changes, kCodecs, spec) {
  BOOST_TEST(outcomes(1, {spec, {}}, 1)[0].last == gradient(0, 0), boost::test_tools::per_element());
}

BOOST_DATA_TEST_CASE(repeated_sums_do_not_allocate, kCodecs* bdata::make({1, 2}), spec, form) {
  constexpr int kRounds = 100;
  const std::vector<long> counts = on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
    const auto sum = make_compressed_sum<double>(comm, {spec, {}, static_cast<Form>(form)}, {0, kCount}, kMatrices);
    std::vector<double> g = gradient(comm->rank(), 0);
    for (int warm_up = 0; warm_up < 10; ++warm_up) (*sum)(g);
    const long before = tests::own_allocations();
    for (int round = 0; round < kRounds; ++round) (*sum)(g);
    return tests::own_allocations() - before;
  });
  for (const long count : counts) BOOST_TEST(count < kRounds / 10);  // one place more for a rank that runs ahead
}

BOOST_AUTO_TEST_CASE(slices_and_specs_that_are_none_are_refused) {
  const auto self = comm::make_self();
  BOOST_CHECK_THROW(make_compressed_sum<double>(self, {"int8", {}}, {3, 2}), ValueError);
  BOOST_CHECK_THROW(make_compressed_sum<double>(self, {"int9", {}}, {0, 2}), ValueError);
  std::vector<double> g(5);
  BOOST_CHECK_THROW((*make_compressed_sum<double>(self, {"int8", {}}, {3, 6}))(g), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
