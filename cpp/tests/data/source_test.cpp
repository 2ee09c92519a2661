// A source gives batches in place only where their rows lie ready; an epoch's random numbers are of their own; and what
// was measured adds up field by field.
#include "pdnn/data/source.hpp"

#include <boost/test/unit_test.hpp>

#include "pdnn/data/epoch_order.hpp"
#include "pdnn/data/metrics.hpp"
#include "pdnn/nn/layers/linear.hpp"

namespace pdnn::data {

BOOST_AUTO_TEST_SUITE(data_source)

namespace {

using Vector = std::vector<double>;
constexpr Index kRows = 6, kWidth = 16;
const std::vector<Index> kOrder{2, 3, 4};

nn::Workspace<double> make_workspace(const Shape& sample) {
  const nn::Network<double> network(
      {std::make_shared<nn::Linear<double>>(sample.count(), 2, true, nn::Init{}, nn::Init{})});
  return {network, sample, kRows};
}

/// Whether a batch of kOrder may be sparse, of rows that begin at element `first` of these.
bool sparse_batch(Index first, std::vector<std::int32_t> columns) {
  const Vector values(static_cast<std::size_t>(first) + columns.size(), 1);
  columns.insert(columns.begin(), static_cast<std::size_t>(first), 0);
  const Index each = (std::ssize(columns) - first) / kRows;
  std::vector<Index> starts;
  for (Index r = 0; r <= kRows; ++r) starts.push_back(first + r * each);
  const Source<double> source(
      {.data = values.data(), .count = kRows, .sample = {kWidth}, .sparse = {starts.data(), columns.data()}}, {});
  nn::Workspace<double> workspace = make_workspace({kWidth});
  return source.gather(Member(), kOrder, workspace, true).x.sparse != nullptr;
}

}  // namespace

BOOST_AUTO_TEST_CASE(samples_that_are_changed_are_not_taken_in_place) {
  Vector x(kRows * kWidth);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const Shape image{1, 4, 4};
  nn::Workspace<double> workspace = make_workspace({kWidth});
  const auto gathered = [&](double scale, double shift, bool augmented) {
    Source<double> source({x.data(), Samples::Format::float64, kRows, kWidth, image, scale, shift}, {});
    if (augmented) source.augment({.padding = 0, .flip = true, .key = Rng(3)});
    const Tensor<const double> batch = source.gather_x({}, kOrder, workspace);
    Vector want(kOrder.size() * kWidth);
    source.gather_samples({}, kOrder, want.data());
    BOOST_TEST(std::span(batch.data, want.size()) == want, boost::test_tools::per_element());
    return batch.data == x.data() + kOrder[0] * kWidth;
  };
  BOOST_TEST(gathered(1, 0, false));
  BOOST_TEST(!gathered(2, 0, false));
  BOOST_TEST(!gathered(1, 0.5, false));
  BOOST_TEST(!gathered(1, 0, true));
}

BOOST_AUTO_TEST_CASE(few_elements_in_rising_order_may_be_sparse_wherever_they_begin) {
  BOOST_TEST(sparse_batch(0, {1, 5, 0, 9, 2, 3, 7, 8, 4, 6, 0, 1}));
  BOOST_TEST(sparse_batch(100, {1, 5, 0, 9, 2, 3, 7, 8, 4, 6, 0, 1}));
  BOOST_TEST(!sparse_batch(0, {1, 5, 9, 0, 2, 3, 7, 8, 4, 6, 0, 1}));
  BOOST_TEST(!sparse_batch(0, {1, 5, 9, 9, 2, 3, 7, 8, 4, 6, 0, 1}));  // twice
  BOOST_TEST(
      !sparse_batch(0, std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));  // many
}

BOOST_AUTO_TEST_CASE(orders_draws_and_augmentation_have_random_numbers_of_their_own) {
  int draws_as_ordered = 0, augments_as_drawn = 0;
  for (std::uint64_t epoch = 0; epoch < 64; ++epoch) {
    const Index drawn = draw_rows(5, epoch, 3, 2)[2];
    draws_as_ordered += drawn == epoch_order(5, epoch, 2)[1];  // which its numbers of 2 alone decide
    augments_as_drawn += drawn == static_cast<Index>(augmentation_key(5, epoch).below(2, 2));
  }
  for (const int equal : {draws_as_ordered, augments_as_drawn}) BOOST_TEST(std::abs(equal - 32) < 24);
}

BOOST_AUTO_TEST_CASE(what_was_measured_adds_up_field_by_field) {
  Phases phases{1, 2, 3, 4, 5, 6, 7};
  phases += {10, 20, 30, 40, 50, 60, 70};
  const Vector got{phases.broadcast, phases.scatter, phases.gradient, phases.messages,
                   phases.agreement, phases.hidden,  phases.update};
  BOOST_TEST(got == Vector({11, 22, 33, 44, 55, 66, 77}), boost::test_tools::per_element());
  CompressionStats stats{1, 2, 3, 4, 5, 6, 7};
  stats += {10, 20, 30, 40, 50, 60, 70};
  BOOST_TEST(stats.sums + stats.bytes + stats.bytes_uncompressed == 66);
  BOOST_TEST((Vector{stats.encode_seconds, stats.decode_seconds, stats.lost, stats.given} == Vector{44, 55, 66, 77}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace pdnn::data
