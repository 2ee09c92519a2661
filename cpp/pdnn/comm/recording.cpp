/// What a Communicator puts on record, and what it says of the ranks that it waits for.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "pdnn/comm/communicator.hpp"
#include "pdnn/comm/missing.hpp"
#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

std::uint64_t Communicator::enter(const Call& call) {
  return record_.enter({.count = std::max(call.in.count, call.out.count),
                        .step = step_,
                        .peer = call.peer,
                        .tag = call.tag,
                        .kind = static_cast<std::uint8_t>(call.kind),
                        .op = static_cast<std::uint8_t>(call.op),
                        .dtype = static_cast<std::uint8_t>(call.in.dtype)},
                       call.kind != Kind::send && call.kind != Kind::recv);
}

void Communicator::look_for_stall(double seconds, std::uint64_t entry) {
  if (entry == 0) return;
  look_for_ended(seconds, entry);
  if (seconds < stall_warning_ || warned_ == entry) return;
  warned_ = entry;
  const Recorder& recorder = *record_.recorder();
  const Log& log = recorder.log();
  if (!recorder.first_to_tell(wait_number(log, entry))) return;
  const Missing missing = who_is_missing(recorder.job().logs(), log.rank, entry, recorder.job().in_files());
  const std::string text =
      message("pdnn: rank ", log.rank, " has waited ", stall_warning_, " s in ", missing.call, missing.sentences, "\n");
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

/// Throws if a rank is waited for that has ended. At a first look a message of it may be under way, so it looks twice,
/// and more often for a process that is gone: if MPI tells of deaths, it does so in that time.
void Communicator::look_for_ended(double seconds, std::uint64_t entry) {
  constexpr int kLooksForDead = 5;
  const double between = std::clamp(0.01 * size_, 1.0, 4.0);  // s; a look opens the records of all ranks
  if (seconds < looked_) looked_ = 0;                         // another wait
  if (seconds < looked_ + between) return;
  looked_ = seconds;
  RecordedJob& job = record_.recorder()->job();
  const Logs logs = job.logs();
  if (std::ranges::none_of(logs, [](const auto& log) { return (*log)->ended.load() != 0 || !alive((*log)->process); }))
    return;
  const int own = record_.recorder()->log().rank;
  const Missing missing = who_is_missing(logs, own, entry, job.in_files());
  if (!missing.ended && !missing.died) return;
  vain_looks_ = std::exchange(vain_, entry) == entry ? vain_looks_ + 1 : 1;
  if (vain_looks_ < (missing.ended ? 2 : kLooksForDead)) return;
  record_.recorder()->told();
  throw CommunicationError(message("communicator: rank ", own, " waits in vain for ", missing.ranks, " in ",
                                   missing.call, "; let every rank make the same calls before it ends",
                                   missing.sentences));
}

void Communicator::record(std::shared_ptr<Recorder> recorder, std::uint64_t id) {
  constexpr std::uint64_t kAgreements = 1;
  if (survives()) agreements_ = {recorder, mixed(id, kAgreements), rank_, size_};
  record_ = {std::move(recorder), id, rank_, size_};
}

RecordedWait Communicator::recorded_agreement() {
  const Labeled labeled({.what = "agree"});
  return {agreements_, {.step = step_, .kind = static_cast<std::uint8_t>(Kind::barrier)}};
}

std::string Communicator::time_out_message(const char* call, const std::string& silent) {
  int own = rank_;
  Missing missing;
  const auto& recorder = record_.recorder();
  const std::uint64_t entry = recorder ? recorder->log().waits.load() : 0;
  if (entry != 0) {
    own = recorder->log().rank;
    if (recorder->first_to_tell(mixed(wait_number(recorder->log(), entry), 1))) {
      missing = who_is_missing(recorder->job().logs(), own, entry, recorder->job().in_files());
      recorder->told();
    } else {
      wait_for_the_end();
    }
  }
  return message(call, ": no answer from ", missing.ranks.empty() ? silent : missing.ranks, " for ", timeout_,
                 " s (rank ", own, " waits", step_ < 0 ? "" : message(" at step ", step_), "); see PDNN_TIMEOUT",
                 missing.sentences);
}

/// Another rank gives up, too, and tells of this wait: it releases this rank, or ends the job.
void Communicator::wait_for_the_end() {
  constexpr int kLooks = 1000;  // ranks that are missing are looked at for 40 ms each
  constexpr auto kBetween = std::chrono::milliseconds(10);
  for (int look = 0; look < kLooks; ++look) {
    check_others();
    std::this_thread::sleep_for(kBetween);
  }
}

std::string Communicator::calls_side_by_side(std::uint64_t entry) const {
  if (entry == 0) return "";
  const Recorder& recorder = *record_.recorder();
  return comm::calls_side_by_side(recorder.job().logs(), recorder.log().rank, entry);
}

void Communicator::rethrow(std::uint64_t entry) {
  record_.leave(entry);
  try {
    throw;
  } catch (const RankFailed&) {
    throw;
  } catch (const ValueError& error) {
    throw ValueError(error.what() + calls_side_by_side(entry));
  } catch (const CommunicationError& error) {
    throw CommunicationError(error.what() + calls_side_by_side(entry));
  }
}

}  // namespace pdnn::comm
