// The record of a rank's calls, and what it tells about the ranks that others wait for.
#include "pdnn/comm/missing.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/core/errors.hpp"

using namespace pdnn;
using namespace pdnn::comm;

BOOST_AUTO_TEST_SUITE(comm_missing)

struct Impatient {
  explicit Impatient(const char* seconds = "0.4") { setenv("PDNN_TIMEOUT", seconds, 1); }
  ~Impatient() { unsetenv("PDNN_TIMEOUT"); }
};

namespace {

/// What the first rank says that waits too long; the others end when it has.
std::string said_by(int ranks, const std::function<void(Communicator&)>& work) {
  std::string said;
  std::atomic<bool> over = false;
  run_ranks(ranks, [&](Communicator& comm) {
    try {
      work(comm);
      over.wait(false);  // asleep all the while: who wakes now and then may be found running
    } catch (const CommunicationError& error) {
      if (!over.exchange(true)) said = error.what();
      over.notify_all();
    } catch (const Aborted&) {  // NOLINT: released by the one who has said it
    }
  });
  return said;
}

void contains(const std::string& said, const std::string& text) {
  BOOST_TEST((said.find(text) != std::string::npos), "\"" << text << "\" is not in: " << said);
}

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_rank_that_never_comes_is_named_with_its_last_call, Impatient) {
  std::string said;
  for (int tries = 0; tries < 20 && said.find(" ago), sleeping") == std::string::npos; ++tries)  // or it is held up
    said = said_by(3, [](Communicator& comm) {
      at_line("/home/train.py", 55);
      comm.barrier();
      at_line("/home/train.py", 57);
      comm.at_step(812);
      const Labeled labeled({.what = "bucket", .number = 2});
      std::vector<float> data(10);
      if (comm.rank() != 1) comm.all_reduce(std::span(data));
    });
  contains(said, "all_reduce: no answer from rank 1 for 0.4 s (rank ");
  contains(said, "\n  rank 1 never entered #2 all_reduce (bucket 2, step 812), last seen at train.py:55 (#1 barrier, ");
  contains(said, " ago), sleeping");
}

BOOST_FIXTURE_TEST_CASE(a_rank_in_an_endless_loop_is_running, Impatient) {
  std::atomic<bool> over = false;
  const std::string said = said_by(2, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1)
      while (!over) {
      }
    try {
      comm.barrier();
    } catch (...) {
      over = true;
      throw;
    }
  });
  contains(said, "\n  rank 1 never entered #2 barrier, last seen (#1 barrier, ");
  contains(said, "running (computing, or in an endless loop)");
}

BOOST_FIXTURE_TEST_CASE(ranks_of_a_part_are_named_as_the_whole_counts_and_followed, Impatient) {
  std::atomic<bool> waits = false;
  const std::string said = said_by(4, [&](Communicator& comm) {
    const auto pair = comm.split(comm.rank() % 2, 0);  // ranks 1 and 3
    float value = 0;
    if (comm.rank() == 1) {
      waits.wait(false);
      pair->barrier();
    }
    if (comm.rank() != 3) return;
    const Request never = comm.start_recv(std::span(&value, 1), 2, 7);
    comm.recorded().recorder()->waits(never.entry());  // as recv() does, which might give up before rank 1
    waits = true;
    waits.notify_all();
    while (comm.notified(Notice::failed) < 0) std::this_thread::yield();
  });
  contains(said, "barrier: no answer from rank 3 for ");
  contains(said, "\n  rank 3 never entered #1 barrier of ranks 1, 3: it waits in recv for ");
  contains(said, "\n  rank 2 has not sent the message of tag 7, last seen (#1 all_gather, ");
}

BOOST_AUTO_TEST_CASE(a_rank_that_has_ended_is_not_waited_for) {
  const std::string said = said_by(3, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) return comm.end_record("has returned");
    comm.barrier();
  });
  contains(said, " waits in vain for rank 1 in #2 barrier; let every rank make the same calls");
  contains(said, "\n  rank 1 never entered #2 barrier, last seen (#1 barrier, ");
  contains(said, "has returned");
}

BOOST_AUTO_TEST_CASE(the_last_words_about_the_end_hold) {
  Recorder recorder(std::make_shared<RecordedJob>(), 0, 1);
  BOOST_TEST(recorder.log().how_it_ended() == "");
  for (const std::string how : {"raised ValueError", "ended with exit code 3"}) {
    recorder.ended(how);
    BOOST_TEST(recorder.log().how_it_ended() == how);
  }
  for (int i = 0; i < 300; ++i) recorder.ended("and so on");
  BOOST_TEST(recorder.log().how_it_ended() == "and so on");
}

BOOST_AUTO_TEST_CASE(a_rank_whose_function_has_returned_is_not_waited_for) {
  std::string said;
  try {
    run_ranks(2, [](Communicator& comm) {
      if (comm.rank() == 0) comm.barrier();
    });
  } catch (const CommunicationError& error) {
    said = error.what();
  }
  contains(said, "rank 0 waits in vain for rank 1 in #1 barrier; let every rank make the same calls");
}

BOOST_AUTO_TEST_CASE(calls_that_differ_are_told_side_by_side) {
  std::array<std::string, 3> said;
  run_ranks(3, [&](Communicator& comm) {
    at_line("train.py", comm.rank() == 1 ? 60 : 57);
    std::vector<float> data(comm.rank() == 1 ? 3 : 4);
    try {
      comm.barrier();
      comm.all_reduce(std::span(data));
    } catch (const ValueError& error) {
      said[static_cast<std::size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& each : said) {
    contains(each, "\n  ranks 0, 2: #2 all_reduce(4 float32, sum), 16 bytes at train.py:57");
    contains(each, "\n  rank 1: #2 all_reduce(3 float32, sum), 12 bytes at train.py:60");
  }
}

BOOST_FIXTURE_TEST_CASE(a_skipped_call_of_the_same_kind_is_found_by_its_line, Impatient) {
  const std::string said = said_by(2, [](Communicator& comm) {
    const auto at = [&](int line) {
      at_line("train.py", line);
      comm.barrier();
    };
    at(1);
    if (comm.rank() == 0) at(2);
    at(3);
  });
  contains(said, "\n  rank 1 never entered #3 barrier");
  contains(said, "first differ here:\n  rank 0: #2 barrier at train.py:2\n  rank 1: #2 barrier at train.py:3");
}

BOOST_AUTO_TEST_CASE(the_last_thousand_calls_are_kept) {
  run_ranks(2, [](Communicator& comm) {
    for (int i = 0; i < 2100; ++i) comm.barrier();
    const Log& log = comm.recorded().recorder()->log();
    std::uint64_t first = log.entries, count = 0;
    for (const Log::Slot& slot : log.slots) {
      first = std::min<std::uint64_t>(first, slot.number);
      count += slot.number > 0;
      const Entry entry = slot.read();
      if (entry.number != static_cast<Index>(slot.number) || entry.left < entry.entered)
        throw std::logic_error("an entry is not what was entered");
    }
    if (log.entries != 2100 || count != kEntries || first != 2100 - kEntries + 1)
      throw std::logic_error("the record has other entries");
  });
}

BOOST_AUTO_TEST_CASE(a_file_tells_what_was_entered_and_is_found_by_its_process) {
  const Process own = this_process();
  const auto job = std::make_shared<RecordedJob>(job_name(own));
  Recorder recorder(job, 0, 2);
  Recorder other(job, 1, 2);
  RecordedGroup group(std::shared_ptr<Recorder>(&recorder, [](Recorder*) {}), 5, 0, 2);
  at_line("train.py", 9);
  recorder.waits(group.enter({.count = 4, .kind = static_cast<std::uint8_t>(Kind::barrier)}, true));
  const Logs logs = logs_of(own.number);
  BOOST_TEST(logs.size() == 2U);
  contains(ranks_of_job(logs), "rank 0 of 2, process ");
  contains(ranks_of_job(logs), "waits in #1 barrier at train.py:9, entered ");
  contains(waits_of_job(logs), "nothing is known of rank 1");
  remove_dead_logs();
  BOOST_TEST(logs_of(own.number).size() == 2U, "this process lives");
  remove_files(logs);
  BOOST_TEST(logs_of(own.number).empty());
}

BOOST_AUTO_TEST_CASE(files_of_dead_jobs_are_removed_but_for_the_latest) {
  const std::int64_t nobody = 1 << 30;
  std::vector<Logs> dead(2);
  for (std::size_t i = 0; i < dead.size(); ++i) {
    RecordedJob job(job_name({nobody + static_cast<std::int64_t>(i), 0, 1}));
    const auto log = job.add(0, 1);
    (*log)->process = {nobody + static_cast<std::int64_t>(i), 0, 1};
    dead[i] = {log};
    std::filesystem::last_write_time(log->path(),
                                     std::filesystem::file_time_type::clock::now() + std::chrono::hours(i));
  }
  remove_dead_logs();
  BOOST_TEST(!std::filesystem::exists(dead[0][0]->path()));
  BOOST_TEST(std::filesystem::exists(dead[1][0]->path()));
  remove_files(dead[1]);
}

BOOST_AUTO_TEST_CASE(a_warning_that_is_no_number_is_refused) {
  setenv("PDNN_STALL_WARNING", "soon", 1);
  BOOST_CHECK_THROW(make_self(), ValueError);
  unsetenv("PDNN_STALL_WARNING");
}

BOOST_AUTO_TEST_SUITE_END()
