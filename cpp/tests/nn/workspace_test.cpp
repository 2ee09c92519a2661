// Workspaces that are kept between calls: which is taken for a call, and how many are let go.
#include "pdnn/nn/workspace.hpp"

#include <boost/test/unit_test.hpp>

#include "pdnn/nn/layers/linear.hpp"

using namespace pdnn;
using namespace pdnn::nn;

BOOST_AUTO_TEST_SUITE(nn_workspace)

namespace {

constexpr Index kWidth = 1000;
const Shape kIn{kWidth};

Network<float> make_network() {
  return Network<float>({std::make_shared<Linear<float>>(kWidth, 1, true, Init{}, Init{})});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_workspace_is_taken_again_for_the_same_use_and_shape) {
  const Network<float> network = make_network();
  WorkspaceStore<float> store;
  for (const Use use : {Use::forward, Use::training}) store.give_back(store.take(network, kIn, 8, use));
  for (const Use use : {Use::forward, Use::training}) {
    const auto taken = store.take(network, kIn, 3, use);
    BOOST_TEST((taken->use() == use));
    BOOST_TEST(taken->capacity() == 8);
  }
}

BOOST_AUTO_TEST_CASE(a_forward_pass_takes_as_many_rows_at_once_as_fit) {
  const auto at_once = [](Index width, Index rows) {
    const Network<float> network({std::make_shared<Linear<float>>(width, 1, true, Init{}, Init{})});
    return Workspace<float>::rows_at_once(network, {width}, rows);
  };
  BOOST_TEST(at_once(kWidth, 10) == 10);
  BOOST_TEST(at_once(kWidth, 1000) == 256);
  BOOST_TEST(at_once(Index{1} << 22, 1000) == 15);  // of 16 MiB and somewhat more
  BOOST_TEST(at_once(Index{1} << 27, 1000) == 1);
  BOOST_TEST(at_once(kWidth, 0) == 1);
}

BOOST_AUTO_TEST_CASE(those_that_were_idle_for_longest_are_let_go) {
  const Network<float> network = make_network();
  WorkspaceStore<float> store;
  const Index rows = 7000;  // 28 MB of samples: two of them are kept
  std::vector<std::unique_ptr<Workspace<float>>> all;
  for (Index more = 0; more < 3; ++more) all.push_back(store.take(network, kIn, rows + more, Use::forward));
  for (auto& workspace : all) store.give_back(std::move(workspace));
  for (const Index capacity : {rows + 1, rows + 2, rows})  // the last one is new
    BOOST_TEST((all[0] = store.take(network, kIn, rows, Use::forward))->capacity() == capacity);
}

BOOST_AUTO_TEST_CASE(a_large_one_does_not_serve_few_rows) {
  const Network<float> network = make_network();
  WorkspaceStore<float> store;
  const Index rows = 20000;  // 80 MB of samples
  store.give_back(store.take(network, kIn, rows, Use::forward));
  BOOST_TEST(store.take(network, kIn, 1, Use::forward)->capacity() == 1);
  BOOST_TEST(store.take(network, kIn, rows / 4, Use::forward)->capacity() == rows);
}

BOOST_AUTO_TEST_SUITE_END()
