#pragma once
/// Who is missing: what the logs of a job say about a rank that waits, about calls that differ, and about every rank.
#include <string>

#include "pdnn/comm/recorder.hpp"

namespace pdnn::comm {

/// What can be said about one wait.
struct Missing {
  std::string call;       ///< "#1842 all_reduce (bucket 2) at train.py:57"
  std::string ranks;      ///< "ranks 1, 3": those that it waits for; empty if that is not known
  std::string sentences;  ///< a line about each of them, and about those that these wait for; begins with a new line
  bool ended = false;     ///< one of these has ended its program, so it will not come
  bool died = false;      ///< the process of one of these is gone, which had not
};

/// A number for the wait in this entry: the same on all ranks that wait in the same call.
std::uint64_t wait_number(const Log& log, std::uint64_t entry);

/// About the wait of `rank` in its entry of this number; `in_files`: other ranks may be on other machines.
Missing who_is_missing(const Logs& logs, int rank, std::uint64_t entry, bool in_files);

/// The ranks' calls of the number that this entry of `rank` has in its group, a line for each that differs, each after
/// a new line; empty if all are the same, or it is a message.
std::string calls_side_by_side(const Logs& logs, int rank, std::uint64_t entry);

/// Each rank's last call and what it is doing, a line each.
std::string ranks_of_job(const Logs& logs);
/// Who waits for whom; empty if no rank waits.
std::string waits_of_job(const Logs& logs);

}  // namespace pdnn::comm
