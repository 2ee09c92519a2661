// Buckets leave as soon as they are final, by a codec and in leaves too; without whole parameters where they need not
// be.
#include "pdnn/reduce/bucketed_reducer.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>

#include "ranks.hpp"
#include "reduce/linear_step.hpp"

using namespace pdnn;
using namespace pdnn::data;
using namespace pdnn::engine;
using namespace pdnn::reduce;

BOOST_AUTO_TEST_SUITE(buckets)

namespace {

/// Bytes that have left each of two ranks (by a codec: as codes) after each slice of the gradient was announced, and
/// after the step.
std::vector<std::vector<Index>> bytes_sent(const std::optional<Compression>& compression, Index leaves,
                                           Index bucket_bytes, const std::vector<Range>& slices) {
  return tests::on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
    tests::LinearStep step({10, 20, 5});
    BucketedReducer<double> reducer(step.in_leaves(leaves), comm, bucket_bytes, compression);
    std::vector<Index> bytes;
    const Index before = comm->traffic().bytes;
    const auto count = [&] {
      const Index coded = (bytes.empty() ? 0 : bytes.back()) + reducer.take_stats().bytes;
      bytes.push_back(compression ? coded : comm->traffic().bytes - before);
    };
    step.sgd.begin_step();
    if (reducer.begin_step(false).grad_ready != &reducer) throw std::logic_error("nobody would announce anything");
    for (const Range& slice : slices) {
      reducer(Member(), slice);
      count();
    }
    reducer.finish_step({});
    count();
    return bytes;
  });
}

std::vector<Index> bytes_sent(const std::string& codec, Index bucket_bytes, const std::vector<Range>& slices) {
  const std::vector<std::vector<Index>> sent = bytes_sent(Compression{codec, {}}, 0, bucket_bytes, slices);
  BOOST_TEST(sent[0] == sent[1], boost::test_tools::per_element());
  return sent[0];
}

}  // namespace

// 10 x 20 and 20, 20 x 5 and 5: 325 elements, of which the second layer has the last 105.
BOOST_AUTO_TEST_CASE(a_bucket_is_encoded_and_sent_when_it_is_final) {
  const std::vector<Index> want{0, 200, 400, 650};  // buckets of 100, two bytes an element
  BOOST_TEST(bytes_sent("bf16", 800, {{240, 325}, {220, 240}, {100, 220}}) == want, boost::test_tools::per_element());
}

// A rank sends the half of each bucket that the other one adds up, and later the sum of its own half.
BOOST_AUTO_TEST_CASE(of_a_batch_in_leaves_a_bucket_is_sent_when_it_is_final) {
  for (const std::vector<Index>& sent : bytes_sent({}, 4, 800, {{240, 325}, {220, 240}, {100, 220}})) {
    BOOST_TEST(sent[0] == 0);
    BOOST_TEST(sent[1] >= 8 * 50);
    BOOST_TEST(sent[2] >= 8 * 100);
    BOOST_TEST(sent[2] <= 8 * 200);
    BOOST_TEST(sent[3] == 8 * 325 + 8 * (2 * 4 + 1));  // and losses and right answers of four leaves
  }
}

BOOST_AUTO_TEST_CASE(for_matrices_a_bucket_ends_where_a_parameter_does) {
  const Index second = 8 * (20 + 5 + 5), first = 8 * (10 + 20 + 20);  // rank 1: rows + columns, and the bias
  for (const Index bytes : {8, 8 * 105}) {
    const std::vector<Index> sent = bytes_sent("powersgd:1", bytes, {{221, 325}, {220, 221}, {100, 220}});
    BOOST_TEST(sent[0] == (bytes == 8 ? 8 * 5 : 0));  // the bias alone, if nothing more is wanted
    BOOST_TEST(sent[1] == second);
    BOOST_TEST(sent[3] == second + first);
  }
}

namespace {

/// Writes what is no number as 0, as a code without a place for it must.
class WithoutNaN final : public codec::Codec<double> {
 public:
  Index bytes(Index n) const override { return n * Index{sizeof(double)}; }
  std::string spec() const override { return "without NaN"; }

 private:
  void write(std::span<const double> values, std::uint8_t* out) override {
    for (const double value : values) {
      const double finite = std::isfinite(value) ? value : 0;
      std::memcpy(out, &finite, sizeof finite);
      out += sizeof finite;
    }
  }
  void read(const std::uint8_t* data, std::span<double> values, codec::Into into) override {
    for (double& value : values) {
      double given = 0;
      std::memcpy(&given, data, sizeof given);
      data += sizeof given;
      value = into == codec::Into::store ? given : into == codec::Into::add ? value + given : value - given;
    }
  }
};

class Outside final : public codec::Outside {
 public:
  std::unique_ptr<codec::Codec<float>> make(float) const override { return nullptr; }
  std::unique_ptr<codec::Codec<double>> make(double) const override { return std::make_unique<WithoutNaN>(); }
  bool wants_feedback() const override { return false; }
};

/// What a step of two ranks is told of the second one's wish to stop, or of its NaN.
std::vector<StepSums> told(const std::optional<Compression>& compression, Index leaves, bool stop, bool spoiled) {
  return tests::on_ranks(2, [&](const std::shared_ptr<comm::Communicator>& comm) {
    tests::LinearStep step({4, 3});
    BucketedReducer<double> reducer(step.in_leaves(leaves), comm, 0, compression);
    step.sgd.begin_step();
    reducer.begin_step(false);
    std::ranges::fill(step.model.grads->span(), 1.0);
    if (spoiled && comm->rank() == 1) step.model.grads->data()[2] = std::nan("");
    return reducer.finish_step({{}, 0, stop && comm->rank() == 1});
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_wish_to_stop_reaches_all_ranks) {
  for (const Index leaves : {0, 4})
    for (const bool stop : {false, true})
      for (const StepSums& sums : told({}, leaves, stop, false)) BOOST_TEST(sums.stop == stop);
}

BOOST_AUTO_TEST_CASE(what_is_no_number_is_told_though_a_code_has_none) {
  const Compression compression{codec::Spec("without NaN", std::make_shared<Outside>()), {}};
  for (const bool spoiled : {false, true})
    for (const StepSums& sums : told(compression, 0, false, spoiled)) BOOST_TEST(sums.bad == spoiled);
}

BOOST_AUTO_TEST_SUITE_END()
