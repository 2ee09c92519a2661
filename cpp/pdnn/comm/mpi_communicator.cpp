#include "pdnn/comm/mpi_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "pdnn/comm/mpi_call.hpp"
#include "pdnn/comm/mpi_notices.hpp"
#include "pdnn/comm/mpi_recording.hpp"
#include "pdnn/comm/mpi_ulfm.hpp"
#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/comm/slot_pool.hpp"
#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

class MpiCommunicator final : public Communicator {
 public:
  /// `notices` are of these ranks and perhaps more; null: it is there to be duplicated only.
  MpiCommunicator(std::shared_ptr<MpiHandle> handle, std::shared_ptr<MpiNotices> notices, int rank, int size,
                  Index most)
      : Communicator(rank, size),
        comm_(handle->comm),
        most_(most),
        handle_(std::move(handle)),
        notices_(std::move(notices)) {}
  ~MpiCommunicator() override;

  std::shared_ptr<Communicator> split(int color, int key) override;
  std::shared_ptr<Communicator> duplicate() override;
  void notify(Notice notice, std::int64_t about) override;
  std::int64_t notified(Notice notice) override;
  [[noreturn]] void give_up(const std::string& message) override;
  bool survives() const override { return ulfm_is_on(); }
  std::uint32_t agree(std::uint32_t bits, bool patient) override;
  std::shared_ptr<Communicator> shrink() override;

 private:
  Request start(const Call& call) override;
  bool test(int ticket) override;
  Call abandon(int ticket) override;
  [[noreturn]] void time_out(int ticket, const char* call_name) override;

  /// The result of the call will not be asked for.
  void forget(int ticket);
  /// Whether a forgotten call is over; its slot is then free again.
  bool tidied(int ticket);
  void check(int code, Kind kind) const { check_mpi(code, kind, group()); }
  void check_living() override {
    if (notices_ && notices_->lost()) lose();
  }
  /// A rank has died: ends this group's calls on all ranks, and throws RankFailed.
  [[noreturn]] void lose();
  std::uint32_t agree(std::uint32_t bits, bool patient, const char* call);
  MpiGroup group() const { return {comm_, rank(), size(), most_}; }

  /// What make(&new_communicator) puts together, once all ranks have come, in a wait that can time out.
  template <class Make>
  std::shared_ptr<MpiHandle> form(Make make);

  MPI_Comm comm_;
  Index most_;
  std::shared_ptr<MpiHandle> handle_;
  std::shared_ptr<MpiNotices> notices_;
  SlotPool<MpiCall> slots_;
  std::vector<int> forgotten_;  // abandoned tickets, to be freed when done
};

// ---- a call's life

/// Calls that MPI may go on with when their communicator is gone: they keep their places.
std::list<SlotPool<MpiCall>>& rests() {
  static auto& all = *new std::list<SlotPool<MpiCall>>;
  return all;
}

MpiCommunicator::~MpiCommunicator() {
  if (!handle_->usable()) return;
  std::erase_if(forgotten_, [&](int ticket) { return tidied(ticket); });
  if (forgotten_.empty() && notified(Notice::failed) < 0 && !(notices_ && notices_->lost())) return;
  handle_->owned = false;  // messages that were not received would reach the next communicator with the same number
  rests().push_back(std::move(slots_));
}

Request MpiCommunicator::start(const Call& call) {
  handle_->check_process();
  if (mpi_finalized()) throw CommunicationError(message(name(call.kind), ": MPI is finalized already"));
  std::erase_if(forgotten_, [&](int ticket) { return tidied(ticket); });
  const int ticket = slots_.take();
  MpiCall& slot = slots_[ticket];
  slot.call = call;
  slot.steps.clear();
  slot.done = 0;
  slot.result.reset();
  const bool to_itself = call.kind == Kind::send && call.peer == rank();  // it cannot receive while it waits
  if (to_itself || std::max(call.in.bytes(), call.out.bytes()) <= kSmall) slot.work_on_copies();
  try {
    slot.post(group());
  } catch (const RankFailed&) {
    forget(ticket);
    lose();
  }
  if (!to_itself) return {this, ticket};
  forget(ticket);
  return {};
}

bool MpiCommunicator::test(int ticket) {
  handle_->check_process();
  if (mpi_finalized()) throw CommunicationError("MPI was finalized during a call");
  MpiCall& slot = slots_[ticket];
  try {
    if (!slot.advance()) return false;
  } catch (const RankFailed&) {
    forget(ticket);
    lose();
  } catch (...) {
    for (std::size_t i = slot.done; i < slot.steps.size(); ++i)  // pieces of a message that is none
      if (slot.steps[i].expected >= 0) MPI_Cancel(&slot.steps[i].request);
    forget(ticket);
    throw;
  }
  slot.deliver(size());
  slots_.give_back(ticket);
  return true;
}

bool MpiCommunicator::tidied(int ticket) {
  MpiCall& slot = slots_[ticket];
  while (slot.done < slot.steps.size()) {
    try {
      if (!slot.advance()) return false;
    } catch (const CommunicationError&) {  // NOLINT: its result is not needed
    }
  }
  slots_.give_back(ticket);
  return true;
}

void MpiCommunicator::forget(int ticket) {
  for (MpiCall::Step& step : slots_[ticket].steps) step.expected = -1;
  forgotten_.push_back(ticket);
}

Call MpiCommunicator::abandon(int ticket) {
  forget(ticket);
  return slots_[ticket].result ? Call{} : slots_[ticket].call;
}

void MpiCommunicator::time_out(int ticket, const char* call_name) {
  const Call& call = slots_[ticket].call;
  const bool one = call.kind == Kind::send || call.kind == Kind::recv;
  give_up(
      time_out_message(call_name ? call_name : name(call.kind), one ? message("rank ", call.peer) : "some other rank"));
}

void MpiCommunicator::give_up(const std::string& message) {
  std::fprintf(stderr, "pdnn: %s\n", message.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

// ---- groups

template <class Make>
std::shared_ptr<MpiHandle> MpiCommunicator::form(Make make) {
  barrier();
  MPI_Comm comm = MPI_COMM_NULL;
  check(make(&comm), Kind::barrier);
  auto handle = std::make_shared<MpiHandle>(comm, true);
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), Kind::barrier);
  return handle;
}

std::shared_ptr<Communicator> MpiCommunicator::duplicate() {
  if (size() == 1) return make_self();
  const auto make = [&](MPI_Comm* comm) { return MPI_Comm_dup(comm_, comm); };
  const auto calls = form(make), notices = form(make);
  const auto same =
      std::make_shared<MpiCommunicator>(calls, std::make_shared<MpiNotices>(notices, notices_), rank(), size(), most_);
  same->inherit(*this, -1);
  return same;
}

std::shared_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  require(color >= 0, "split: color ", color, " is negative");
  const auto handle = form([&](MPI_Comm* comm) { return MPI_Comm_split(comm_, color, key, comm); });
  int rank = 0, size = 1;
  check(MPI_Comm_rank(handle->comm, &rank), Kind::barrier);
  check(MPI_Comm_size(handle->comm, &size), Kind::barrier);
  if (size == 1) return make_self();
  const auto part = std::make_shared<MpiCommunicator>(handle, notices_, rank, size, most_);
  part->inherit(*this, color);
  return part;
}

// ---- deaths

void MpiCommunicator::lose() {
  revoke(group());
  handle_->owned = false;  // MPI_Comm_free would wait for the dead
  if (!notices_) throw RankFailed(dead_ranks(group()));
  notices_->lose();
  throw RankFailed(notices_->dead());
}

std::uint32_t MpiCommunicator::agree(std::uint32_t bits, bool patient) { return agree(bits, patient, "agree"); }

std::uint32_t MpiCommunicator::agree(std::uint32_t bits, bool patient, const char* call) {
  constexpr auto kNap = std::chrono::milliseconds(5);  // of who waits for long
  handle_->check_process();
  if (!survives()) return Communicator::agree(bits, patient);
  const RecordedWait wait = recorded_agreement();
  Waiting waiting;
  return agree_of_living(group(), bits, [&] {
    if (!patient && waiting.seconds() > timeout()) give_up(time_out_message(call, "some other rank"));
    if (waiting.pause()) {
      check_failed(notified(Notice::failed));
      patient ? look_for_ended(waiting.seconds(), wait.entry()) : look_for_stall(waiting.seconds(), wait.entry());
    }
    if (waiting.seconds() > 1) std::this_thread::sleep_for(kNap);
  });
}

std::shared_ptr<Communicator> MpiCommunicator::shrink() {
  if (!survives()) return Communicator::shrink();
  constexpr std::uint32_t kYes = 1;
  agree(kYes, false, "shrink");  // all have come: what follows waits for nobody
  for (;;) {
    const MpiGroup calls = shrunk(group()), notices = shrunk(group());  // by MPI_Comm_dup a death could end some only
    if (agree(calls.size == notices.size ? kYes : 0, false, "shrink") != kYes) continue;  // a death in between
    if (calls.size == 1) return make_self();
    const auto left = std::make_shared<MpiCommunicator>(
        std::make_shared<MpiHandle>(calls.comm, true),
        std::make_shared<MpiNotices>(std::make_shared<MpiHandle>(notices.comm, true), nullptr), calls.rank, calls.size,
        most_);
    left->survive(*this);
    return left;
  }
}

// ---- notices

void MpiCommunicator::notify(Notice notice, std::int64_t about) {
  if (!handle_->usable()) return;
  notices_->hear(notice, about);
  notices_->keep();  // as above: it may not be received
  int ranks = 1, own = 0;
  check(MPI_Comm_size(notices_->comm(), &ranks), Kind::send);
  check(MPI_Comm_rank(notices_->comm(), &own), Kind::send);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own) continue;
    const int ticket = slots_.take();
    MpiCall& slot = slots_[ticket];
    slot.call = {.kind = Kind::send, .in = ConstView(std::span(&about, 1)), .peer = rank};
    slot.work_on_copies();
    slot.done = 0;
    slot.steps.assign(1, {MPI_REQUEST_NULL, -1});
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.*): tidied() tests the request
    check(MPI_Isend(slot.copy.data(), 1, MPI_INT64_T, rank, static_cast<int>(notice), notices_->comm(),
                    &slot.steps[0].request),
          Kind::send);
    forget(ticket);
  }
}

std::int64_t MpiCommunicator::notified(Notice notice) {
  return !handle_->usable() || !notices_ ? -1 : notices_->heard(notice);
}

}  // namespace

std::shared_ptr<Communicator> wrap_mpi(std::int64_t handle, Index most) {
  require(most >= 1 && most <= Index{1} << 30, "wrap_mpi: pieces of ", most, " elements");
  if (mpi_finalized()) throw CommunicationError("MPI is finalized already");
  auto comm = (MPI_Comm)handle;  // NOLINT: a pointer in one MPI, an int in another
  int rank = 0, size = 1;
  if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &size) != MPI_SUCCESS)
    throw CommunicationError("MPI: this is no communicator");
  auto ranks = MpiCommunicator(std::make_shared<MpiHandle>(comm, false), nullptr, rank, size, most).duplicate();
  if (size > 1) start_recording(*ranks);
  return ranks;
}

namespace {

/// Throws if ranks are gone of whose death MPI has told nothing in 5 looks, one a second.
class LookForGone {
 public:
  void operator()() {
    std::this_thread::sleep_for(kNap);
    if (std::chrono::steady_clock::now() < next_) return;
    next_ += kBetween;
    std::vector<int> gone = ranks_gone();
    if (!gone.empty()) {
      const std::vector<int> dead = dead_ranks({.comm = MPI_COMM_WORLD});
      std::erase_if(gone, [&](int rank) { return std::ranges::find(dead, rank) != dead.end(); });
    }
    looks_ = gone.empty() ? 0 : looks_ + 1;
    if (looks_ == kLooks) throw CommunicationError(message("the process of rank ", gone.front(), " is gone"));
  }

 private:
  static constexpr std::chrono::milliseconds kNap{1}, kBetween{1000};
  static constexpr int kLooks = 5;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + kBetween;
  int looks_ = 0;
};

/// Returns when all ranks that live have come: instead of MPI_Finalize, which waits for ever for one that is dead or
/// dies meanwhile.
void meet_the_living() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  try {
    agree_of_living({.comm = MPI_COMM_WORLD}, 0, LookForGone());
  } catch (const CommunicationError& error) {
    std::fprintf(stderr, "pdnn: the ranks did not meet at the end: %s\n", error.what());
  }
}

}  // namespace

bool end_with_exit_code() {
#ifdef __GLIBC__
  static const std::int64_t rank = this_process().number;
  const auto end = [](int code, void*) {
    if (this_process().number != rank || mpi_finalized()) return;  // a process that it forked runs this, too
    if (code == 0) {
      ulfm_is_on() ? meet_the_living() : static_cast<void>(MPI_Finalize());
      end_recording();
    } else {
      MPI_Abort(MPI_COMM_WORLD, code);
    }
  };
  return on_exit(end, nullptr) == 0;
#else
  return false;
#endif
}

}  // namespace pdnn::comm
