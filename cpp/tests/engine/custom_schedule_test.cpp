// Schedules given as passes: those of the named schedules get the same messages; what cannot run is refused by name.
#include "pdnn/engine/custom_schedule.hpp"

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "pdnn/core/errors.hpp"

namespace bdata = boost::unit_test::data;
using namespace pdnn;
using namespace pdnn::engine;

BOOST_AUTO_TEST_SUITE(engine_custom_schedule)

BOOST_DATA_TEST_CASE(passes_of_named_schedules_get_their_messages,
                     bdata::make({"gpipe", "1f1b", "interleaved"}) * bdata::make({1, 2, 3, 4}) *
                         bdata::make({1, 2, 5, 8}),
                     schedule, ranks, micro_batches) {
  const std::vector<Program> programs =
      make_programs(schedule, ranks, micro_batches, std::string(schedule) == "interleaved" ? 2 : 1);
  std::vector<Program> passes = programs;
  for (Program& program : passes)
    std::erase_if(program, [](const Instruction& i) { return i.what != Do::forward && i.what != Do::backward; });
  BOOST_TEST((with_messages(passes) == programs));
}

BOOST_AUTO_TEST_CASE(ranks_that_wait_for_each_other_are_named) {
  const auto forward = [](Index micro) { return Instruction{Do::forward, micro}; };
  const auto backward = [](Index micro) { return Instruction{Do::backward, micro}; };
  const std::vector<Program> passes{{forward(0), backward(0), forward(1), backward(1)},
                                    {forward(0), forward(1), backward(0), backward(1)}};
  BOOST_CHECK_EXCEPTION(with_messages(passes), ValueError, [](const ValueError& error) {
    return std::string(error.what()) ==
           "schedule: a deadlock: stage 0 waits to go backward with micro-batch 0 until stage 1 has, stage 1 waits to "
           "go forward with micro-batch 1 until stage 0 has";
  });
}

BOOST_AUTO_TEST_SUITE_END()
