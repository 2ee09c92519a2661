// Leaves: whoever sums which run of them, the tree of sums is the same.
#include "pdnn/core/leaves.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

using namespace pdnn;

namespace {

std::string joined(const std::string& left, const std::string& right) { return "(" + left + "+" + right + ")"; }

/// The sum of leaves as it is written with brackets.
std::string counted(Range run) {
  std::vector<std::string> waiting;
  for (Index i = 0; i < run.size(); ++i) {
    std::string sum = std::to_string(run.begin + i);
    for (int joins = joins_after(i, run.size()); joins > 0; --joins) {
      sum = joined(waiting.back(), sum);
      waiting.pop_back();
    }
    waiting.push_back(sum);
  }
  return waiting.back();
}

/// The same by ranks that make a run each and exchange its nodes.
std::string by_ranks(Index count, int ranks) {
  std::vector<Range> nodes;
  std::vector<std::string> sums;
  for (int rank = 0; rank < ranks; ++rank)
    for (const Range& node : nodes_of(share(count, rank, ranks), count)) {
      nodes.push_back(node);
      sums.push_back(counted(node));
    }
  join_nodes(nodes, count,
             [&](std::size_t left, std::size_t right) { sums[left] = "(" + sums[left] + "+" + sums[right] + ")"; });
  return sums.front();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(leaves)

BOOST_AUTO_TEST_CASE(the_tree_joins_neighbors_of_one_level) {
  BOOST_TEST(counted({0, 1}) == "0");
  BOOST_TEST(counted({0, 7}) == "(((0+1)+(2+3))+((4+5)+6))");
  BOOST_TEST(counted({0, 8}) == "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

BOOST_AUTO_TEST_CASE(ranks_that_share_the_leaves_add_them_up_by_the_same_tree) {
  for (Index count = 1; count <= 33; ++count)
    for (int ranks = 1; ranks <= count; ++ranks) BOOST_TEST(by_ranks(count, ranks) == counted({0, count}));
}

BOOST_AUTO_TEST_CASE(leaves_cover_the_batch_and_may_be_empty) {
  const Leaves whole{.count = 8, .batch = 5, .run = {0, 8}};
  BOOST_TEST((whole.rows() == Range{0, 5}));
  BOOST_TEST(whole.rows(7).size() == 0);
  const Leaves run{.count = 8, .batch = 105, .run = {2, 5}};
  BOOST_TEST(run.rows().begin == 14 + 13);  // one row more than 8 · 13: in the first leaf
  BOOST_TEST(run.rows().size() == run.rows(2).size() + run.rows(3).size() + run.rows(4).size());
}

BOOST_AUTO_TEST_SUITE_END()
