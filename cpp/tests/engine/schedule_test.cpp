// Every schedule works out for any number of ranks and micro-batches, holds what it promises, and idles as its formula
// says.
#include "pdnn/engine/schedule.hpp"

#include <boost/test/unit_test.hpp>

#include "pdnn/core/errors.hpp"

using namespace pdnn;
using namespace pdnn::engine;

BOOST_AUTO_TEST_SUITE(engine_schedule)

namespace {

struct Case {
  std::string schedule;
  int ranks;
  Index micro_batches;
  int chunks;

  std::vector<Program> programs() const { return make_programs(schedule, ranks, micro_batches, chunks); }
  Durations equal(double forward = 1, double backward = 2) const {
    const std::vector<double> stages(static_cast<std::size_t>(ranks * chunks), 1.0 / chunks);
    Durations durations{stages, stages, 0};
    for (double& seconds : durations.forward) seconds *= forward;
    for (double& seconds : durations.backward) seconds *= backward;
    return durations;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const Index micro_batches : {1, 2, 3, 4, 5, 8, 13}) {
      all.push_back({"gpipe", ranks, micro_batches, 1});
      all.push_back({"1f1b", ranks, micro_batches, 1});
      for (const int chunks : {2, 3}) all.push_back({"interleaved", ranks, micro_batches, chunks});
    }
  return all;
}

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.schedule << ", " << c.ranks << " ranks, " << c.micro_batches << " micro-batches, " << c.chunks
             << " chunks";
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_schedule_takes_every_micro_batch_through_every_stage) {
  for (const Case& c : cases())
    for (const double message : {0.0, 0.3, 5.0}) {
      Durations durations = c.equal();
      durations.message = message;
      durations.forward.back() = 3;  // stages need not be equal
      BOOST_TEST_CONTEXT(c << ", messages of " << message << " s") {
        const std::vector<Lane> lanes = simulate(c.programs(), durations);
        for (const Lane& lane : lanes)
          for (std::size_t i = 1; i < lane.size(); ++i) BOOST_TEST(lane[i].begin == lane[i - 1].end);
      }
    }
}

BOOST_AUTO_TEST_CASE(a_rank_sends_and_receives_each_micro_batch_once_each_way) {
  for (const Case& c : cases()) {
    std::array<Index, 6> counts{};
    for (const Program& program : c.programs())
      for (const Instruction& instruction : program) ++counts[static_cast<std::size_t>(instruction.what)];
    const Index stages = c.ranks * c.chunks;
    for (const Do what : {Do::forward, Do::backward})
      BOOST_TEST(counts[static_cast<std::size_t>(what)] == stages * c.micro_batches, c);
    for (const Do what : {Do::recv_x, Do::send_y, Do::recv_dy, Do::send_dx})
      BOOST_TEST(counts[static_cast<std::size_t>(what)] == (stages - 1) * c.micro_batches, c);
  }
}

BOOST_AUTO_TEST_CASE(what_a_schedule_holds_is_as_promised) {
  for (const Case& c : cases()) {
    const std::vector<Program> programs = c.programs();
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Program& program = programs[static_cast<std::size_t>(rank)];
      BOOST_TEST_CONTEXT(c << ", rank " << rank) {
        if (c.schedule == "gpipe") BOOST_TEST(in_flight(program) == c.micro_batches);
        if (c.schedule == "1f1b") BOOST_TEST(in_flight(program) == std::min<Index>(c.micro_batches, c.ranks - rank));
        const Index most = 2 * (c.ranks - rank - 1) + (c.chunks - 1) * c.ranks + 1, passes = c.micro_batches * c.chunks;
        if (c.schedule == "interleaved") BOOST_TEST(in_flight(program) <= most);
        if (c.schedule == "interleaved" && c.micro_batches % c.ranks == 0)
          BOOST_TEST(in_flight(program) == std::min(most, passes));  // so many that a message need not be waited for
        Index together = 0;
        for (int chunk = 0; chunk < c.chunks; ++chunk) together += in_flight(program, chunk);
        BOOST_TEST(in_flight(program) <= together);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_chunks_passes_go_back_in_the_order_in_which_they_came) {
  for (const Case& c : cases())
    for (const Program& program : c.programs())
      for (const Do what : {Do::forward, Do::backward})
        for (int chunk = 0; chunk < c.chunks; ++chunk) {
          Index next = 0;
          for (const Instruction& instruction : program)
            if (instruction.what == what && instruction.chunk == chunk) BOOST_TEST(instruction.micro == next++, c);
        }
}

BOOST_AUTO_TEST_CASE(equal_stages_idle_as_the_formula_says) {
  for (const Case& c : cases()) {
    if (c.micro_batches % c.ranks != 0 && c.chunks > 1) continue;  // the last group is not full
    const double p = c.ranks, m = static_cast<double>(c.micro_batches), v = c.chunks;
    const std::vector<Lane> lanes = simulate(c.programs(), c.equal());
    BOOST_TEST(bubble(lanes) == (p - 1) / (v * m + p - 1), boost::test_tools::tolerance(1e-12));
    BOOST_TEST(seconds(lanes) == 3 * (m + (p - 1) / v), boost::test_tools::tolerance(1e-12));
  }
}

BOOST_AUTO_TEST_CASE(the_slowest_stage_sets_the_pace) {
  const Durations durations{{1, 4, 1}, {1, 4, 1}, 0};
  const std::vector<Lane> lanes = simulate(make_programs("1f1b", 3, 50, 1), durations);
  BOOST_TEST(seconds(lanes) >= 50 * 8);
  BOOST_TEST(seconds(lanes) <= 50 * 8 + 4);
  BOOST_TEST(bubble(lanes) > 0.4);
}

BOOST_AUTO_TEST_CASE(programs_that_do_not_work_out_are_refused) {
  const Case two{"1f1b", 2, 2, 1};
  const auto refused = [&](const std::vector<Program>& programs) {
    BOOST_CHECK_THROW(simulate(programs, two.equal()), ValueError);
  };
  std::vector<Program> programs = two.programs();
  programs[0].pop_back();
  refused(programs);  // a micro-batch does not come back
  programs = two.programs();
  std::erase(programs[0], Instruction{Do::send_y, 1, 0});
  refused(programs);  // a micro-batch is not sent
  programs = two.programs();
  std::erase(programs[1], Instruction{Do::recv_x, 0, 0});
  refused(programs);  // a pass without its x
  programs = two.programs();
  programs[1] = gpipe({1, 2, 2, 1});
  programs[0] = {{Do::forward, 1}, {Do::send_y, 1},   {Do::forward, 0}, {Do::send_y, 0},
                 {Do::recv_dy, 0}, {Do::backward, 0}, {Do::recv_dy, 1}, {Do::backward, 1}};
  refused(programs);  // messages in another order
  programs[0] = {{Do::forward, 0}, {Do::send_y, 0}, {Do::recv_dy, 0}, {Do::backward, 0},
                 {Do::forward, 1}, {Do::send_y, 1}, {Do::recv_dy, 1}, {Do::backward, 1}};
  refused(programs);  // GPipe's second rank waits for the second micro-batch, the first for the first one's dy
  BOOST_CHECK_THROW(make_programs("2f2b", 2, 2, 1), ValueError);
  BOOST_CHECK_THROW(make_programs("gpipe", 2, 2, 2), ValueError);
  BOOST_CHECK_THROW(make_programs("interleaved", 2, 2, 1), ValueError);
  BOOST_CHECK_THROW(make_programs("gpipe", 2, 0, 1), ValueError);
  BOOST_CHECK_THROW(simulate(two.programs(), {{1}, {1}, 0}), ValueError);
  for (const Durations& negative : {Durations{{-1, 1}, {1, 1}, 0}, {{1, 1}, {1, -1}, 0}, {{1, 1}, {1, 1}, -1}})
    BOOST_CHECK_THROW(simulate(two.programs(), negative), ValueError);
  for (const Instruction& first : {Instruction{Do::forward, -1, 0}, Instruction{Do::forward, 0, -1}}) {
    programs = two.programs();
    programs[0].front() = first;
    BOOST_CHECK_EXCEPTION(simulate(programs, two.equal()), ValueError, [&](const ValueError& error) {
      return std::string(error.what()) == message("schedule: micro-batch ", first.micro, " of chunk ", first.chunk);
    });
  }
}

BOOST_AUTO_TEST_SUITE_END()
