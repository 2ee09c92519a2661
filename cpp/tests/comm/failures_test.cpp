// How communication fails: mistakes named on every rank, no rank left waiting.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <ctime>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"

using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(comm_failures)

namespace {

/// What an error says, without what is on record about it.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The messages of the ValueErrors that `call` throws on each of the ranks.
template <class Call>
std::vector<std::string> errors_of(int ranks, Call call) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    try {
      call(comm);
    } catch (const ValueError& error) {
      texts[static_cast<std::size_t>(comm.rank())] = first_line(error.what());
    }
  });
  return texts;
}

template <class Call>
void everybody_says(const std::string& text, int ranks, Call call) {
  for (const std::string& each : errors_of(ranks, call)) BOOST_TEST(each == text);
}

template <class Error>
auto says(const std::string& text) {
  return [text](const Error& error) {
    BOOST_TEST(first_line(error.what()) == text);
    return true;
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(calls_that_do_not_fit_together_are_an_error_on_every_rank) {
  std::vector<float> room(8);
  const auto first = [&](Index count) { return slice(std::span(room), 0, count); };
  const std::string same = "; every rank must make the same calls in the same order";
  everybody_says("all_reduce: rank 1 called all_reduce(2 float32, sum), rank 0 all_reduce(1 float32, sum)" + same, 3,
                 [](Communicator& comm) {
                   std::vector<float> data(comm.rank() == 0 ? 1 : 2);
                   comm.all_reduce(std::span(data));
                 });
  everybody_says("ranks: rank 1 called barrier(), rank 0 broadcast(4 float32, root 0)" + same, 2,
                 [&](Communicator& comm) { comm.rank() == 0 ? comm.broadcast(first(4), 0) : comm.barrier(); });
  everybody_says("broadcast: rank 1 called broadcast(1 float32, root 1), rank 0 broadcast(1 float32, root 0)" + same, 2,
                 [](Communicator& comm) {
                   std::vector<float> data(1);
                   comm.broadcast(std::span(data), comm.rank());
                 });
  everybody_says("all_reduce: rank 1 called all_reduce(1 int32, sum), rank 0 all_reduce(1 int64, sum)" + same, 2,
                 [](Communicator& comm) {
                   std::int32_t narrow = 1;
                   std::int64_t wide = 1;
                   comm.rank() == 0 ? comm.all_reduce(std::span(&wide, 1)) : comm.all_reduce(std::span(&narrow, 1));
                 });
  everybody_says(
      "all_gather: rank 1 called all_gather(1 float32, counts 2 1), rank 0 all_gather(1 float32, counts 1 2)" + same, 2,
      [&](Communicator& comm) {
        const std::vector<Index> counts{1 + comm.rank(), 2 - comm.rank()};
        const std::array<float, 1> mine{};
        comm.all_gather(std::span(mine), first(3), counts);
      });
}

BOOST_AUTO_TEST_CASE(a_mismatch_leaves_the_group_usable) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<double> data(static_cast<std::size_t>(comm.rank() + 1), 1.0);
    try {
      comm.all_reduce(std::span(data));
    } catch (const ValueError&) {
    }
    data.resize(1);
    comm.all_reduce(std::span(data));
    if (data[0] != 2) throw std::logic_error("the sum after a mismatch is wrong");
  });
}

BOOST_AUTO_TEST_CASE(wrong_arguments_are_refused_before_anything_is_sent) {
  const auto self = make_self();
  std::vector<float> data(4);
  std::vector<std::int32_t> whole(4);
  const std::vector<Index> counts{3};
  BOOST_CHECK_EXCEPTION(self->broadcast(std::span(data), 1), ValueError,
                        says<ValueError>("broadcast: rank 1 is not one of the 1 ranks"));
  BOOST_CHECK_EXCEPTION(self->all_reduce(std::span(whole), Op::mean), ValueError,
                        says<ValueError>("all_reduce: the mean of int32 values is no int32; use sum"));
  BOOST_CHECK_EXCEPTION(self->all_reduce(std::span(data), std::span(whole)), ValueError,
                        says<ValueError>("all_reduce: input is float32, output int32"));
  BOOST_CHECK_EXCEPTION(self->all_gather(std::span(data), slice(std::span(data), 0, 3)), ValueError,
                        says<ValueError>("all_gather: the whole has 3 elements, its parts have 4"));
  BOOST_CHECK_EXCEPTION(self->scatter(std::span(data), counts, std::span(data), 0), ValueError,
                        says<ValueError>("scatter: this rank's part has 4 elements, its count is 3"));
  BOOST_CHECK_EXCEPTION(self->send(std::span(data), 0, -1), ValueError,
                        says<ValueError>("send: tag -1 is not in 0 … 32766"));
}

BOOST_AUTO_TEST_CASE(a_message_of_another_length_is_refused_with_both_sides) {
  std::vector<float> data(3);
  const auto self = make_self();
  self->send(slice(std::span(data), 0, 2), 0, 7);
  BOOST_CHECK_EXCEPTION(self->recv(std::span(data), 0, 7), ValueError,
                        says<ValueError>("recv: rank 0 sent 2 float32 with tag 7, rank 0 expects 3 float32"));
}

BOOST_AUTO_TEST_CASE(an_error_on_one_rank_releases_the_others_and_is_the_one_reported) {
  for (int failing = 0; failing < 3; ++failing) {
    const auto run = [&] {
      run_ranks(3, [&](Communicator& comm) {
        const auto pair = comm.split(0, 0);
        if (comm.rank() == failing) throw std::domain_error("the real one");
        std::vector<float> data(1);
        comm.rank() == (failing + 1) % 3 ? pair->barrier() : comm.recv(std::span(data), failing);
      });
    };
    BOOST_CHECK_EXCEPTION(run(), std::domain_error, says<std::domain_error>("the real one"));
  }
}

BOOST_AUTO_TEST_CASE(a_request_dropped_by_an_error_touches_no_memory_afterwards) {
  const auto run = [] {
    run_ranks(2, [](Communicator& comm) {
      std::vector<float> data(1000, 1.0f);
      Request pending = comm.start_all_reduce(std::span(data));
      if (comm.rank() == 0) throw std::domain_error("rank 0 stops");
      pending.wait();
      comm.barrier();
    });
  };
  BOOST_CHECK_THROW(run(), std::domain_error);
}

struct Timeout {
  explicit Timeout(const char* seconds) { setenv("PDNN_TIMEOUT", seconds, 1); }
  ~Timeout() { unsetenv("PDNN_TIMEOUT"); }
};

BOOST_AUTO_TEST_CASE(a_request_that_is_dropped_waits_for_nobody) {
  BOOST_CHECK_NO_THROW(run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(2, 1.0f), message(1);
    if (comm.rank() == 0) {
      {
        const Request dropped = comm.start_all_reduce(std::span(data));
      }
      comm.send(std::span(message), 1);
    } else {
      comm.recv(std::span(message), 0);  // rank 0 has gone on
      comm.all_reduce(std::span(data));
      if (data[0] != 2) throw std::logic_error("what rank 0 gave is lost");
    }
    comm.barrier();
  }));
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_a_duplicate_releases_the_others_there_and_nowhere_else) {
  for (const int ranks : {2, 3})
    BOOST_CHECK_NO_THROW(run_ranks(ranks, [](Communicator& comm) {
      comm.at_step(5);
      const auto same = comm.duplicate();
      if (same->rank() != comm.rank() || same->size() != comm.size() || same->step() != 5)
        throw std::logic_error("a duplicate is another group");
      same->barrier();
      const auto part = same->split(0, 0);
      comm.barrier();  // all have it
      if (comm.rank() == 0) {
        same->notify(Notice::failed);
      } else {
        bool released = false;
        try {
          comm.rank() == 1 ? part->barrier() : same->barrier();
        } catch (const Aborted&) {
          released = true;
        }
        if (!released) throw std::logic_error("a rank went on without rank 0");
      }
      comm.barrier();
      comm.duplicate()->barrier();
    }));
}

BOOST_AUTO_TEST_CASE(a_failure_is_told_with_the_number_in_the_job_also_by_those_who_have_heard_of_it) {
  BOOST_CHECK_NO_THROW(run_ranks(4, [](Communicator& comm) {
    const std::string wanted = "communicator: rank 2 failed";
    const auto part = comm.split(comm.rank() == 0 ? 0 : 1, -comm.rank());  // rank 2 of the job is its rank 1
    if (comm.rank() == 0) return;
    const auto heard = [&] {
      try {
        part->barrier();
      } catch (const Aborted& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    if (const std::string words = comm.rank() == 2 ? wanted : heard(); words != wanted)
      throw std::logic_error("heard: " + words);
    part->fail();
    if (const std::string words = heard(); words != wanted) throw std::logic_error("heard then: " + words);
  }));
}

BOOST_AUTO_TEST_CASE(a_failure_concerns_duplicates_too) {
  const auto run = [] {
    run_ranks(2, [](Communicator& comm) {
      const auto same = comm.duplicate();
      if (comm.rank() == 0) throw std::domain_error("the real one");
      same->barrier();
    });
  };
  BOOST_CHECK_EXCEPTION(run(), std::domain_error, says<std::domain_error>("the real one"));
}

BOOST_AUTO_TEST_CASE(notices_tell_the_latest_they_are_about) {
  BOOST_CHECK_NO_THROW(run_ranks(2, [](Communicator& comm) {
    const auto part = comm.split(comm.rank(), 0);
    if (part->notified(Notice::stop) != -1) throw std::logic_error("a notice that nobody gave");
    comm.barrier();
    if (comm.rank() == 0) {
      part->notify(Notice::stop, 3);
      comm.notify(Notice::stop, 2);
    }
    comm.barrier();
    if (comm.notified(Notice::stop) != 3 || comm.notified(Notice::failed) != -1)
      throw std::logic_error("not what was told");
    comm.barrier();
  }));
}

BOOST_AUTO_TEST_CASE(a_wait_that_lasts_too_long_names_the_call_the_step_and_the_ranks) {
  const Timeout timeout("0.2");
  const auto from_rank_2 = [&] {
    const ThreadGroup group(3);
    const auto comm = group.communicator(2);
    comm->at_step(812);
    comm->barrier();
  };
  BOOST_CHECK_EXCEPTION(
      from_rank_2(), CommunicationError,
      says<CommunicationError>("barrier: no answer from ranks 0, 1 for 0.2 s (rank 2 waits at step 812); see "
                               "PDNN_TIMEOUT"));
}

BOOST_AUTO_TEST_CASE(a_timeout_that_is_no_number_is_refused) {
  setenv("PDNN_TIMEOUT", "", 1);
  BOOST_CHECK_NO_THROW(make_self());
  setenv("PDNN_TIMEOUT", "soon", 1);
  BOOST_CHECK_EXCEPTION(make_self(), ValueError,
                        says<ValueError>("PDNN_TIMEOUT: \"soon\" is not a number of seconds; 0 waits forever"));
  unsetenv("PDNN_TIMEOUT");
}

BOOST_AUTO_TEST_CASE(a_long_wait_sleeps) {
  const auto processor_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double before = processor_seconds();
  Waiting waiting;
  while (waiting.seconds() < 0.5) waiting.pause();
  BOOST_TEST(processor_seconds() - before < 0.2);
}

BOOST_AUTO_TEST_SUITE_END()
