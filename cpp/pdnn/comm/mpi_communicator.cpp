#include "pdnn/comm/mpi_communicator.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <vector>

#include "pdnn/comm/mpi_call.hpp"
#include "pdnn/comm/slot_pool.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

bool finalized() {
  int flag = 0;
  return MPI_Finalized(&flag) != MPI_SUCCESS || flag;
}

/// An MPI communicator, freed with the last that uses it.
struct Handle {
  Handle(MPI_Comm mpi_comm, bool is_owned) : comm(mpi_comm), owned(is_owned) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (owned && !finalized()) MPI_Comm_free(&comm);
  }

  MPI_Comm comm;
  bool owned;
};

/// What the ranks of a group, and of all that were split off it, tell each other: messages in an MPI communicator of
/// their own.
class Notices {
 public:
  Notices(std::shared_ptr<Handle> handle, std::shared_ptr<Notices> original)
      : handle_(std::move(handle)), original_(std::move(original)) {}

  MPI_Comm comm() const { return handle_->comm; }
  void keep() { handle_->owned = false; }
  void hear(Notice notice, std::int64_t about) {
    std::int64_t& latest = latest_[static_cast<std::size_t>(notice)];
    latest = std::max(latest, about);
  }
  /// Takes what has come.
  std::int64_t heard(Notice notice) {
    for (int there = 1; there;) {
      MPI_Status status;
      if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm(), &there, &status) != MPI_SUCCESS || !there) break;
      std::int64_t about = 0;
      MPI_Recv(&about, 1, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, comm(), MPI_STATUS_IGNORE);
      hear(static_cast<Notice>(status.MPI_TAG), about);
    }
    const std::int64_t own = latest_[static_cast<std::size_t>(notice)];
    return original_ ? std::max(own, original_->heard(notice)) : own;
  }

 private:
  std::shared_ptr<Handle> handle_;
  std::shared_ptr<Notices> original_;
  std::array<std::int64_t, kNotices> latest_{-1, -1};
};

class MpiCommunicator final : public Communicator {
 public:
  /// `notices` are of these ranks and perhaps more; null: it is there to be duplicated only.
  MpiCommunicator(std::shared_ptr<Handle> handle, std::shared_ptr<Notices> notices, int rank, int size, Index most)
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

 private:
  Request start(const Call& call) override;
  bool test(int ticket) override;
  Call abandon(int ticket) override;
  [[noreturn]] void time_out(int ticket, const char* call_name) override;

  /// The result of the call will not be asked for.
  void forget(int ticket);
  /// Whether a forgotten call is over; its slot is then free again.
  bool tidied(int ticket);
  void check(int code, Kind kind) const { check_mpi(code, kind, rank()); }
  MpiGroup group() const { return {comm_, rank(), size(), most_}; }

  /// What make(&new_communicator) puts together, once all ranks have come, in a wait that can time out.
  template <class Make>
  std::shared_ptr<Handle> form(Make make);

  MPI_Comm comm_;
  Index most_;
  std::shared_ptr<Handle> handle_;
  std::shared_ptr<Notices> notices_;
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
  if (finalized()) return;
  std::erase_if(forgotten_, [&](int ticket) { return tidied(ticket); });
  if (forgotten_.empty() && notified(Notice::failed) < 0) return;
  handle_->owned = false;  // messages that were not received would reach the next communicator with the same number
  rests().push_back(std::move(slots_));
}

Request MpiCommunicator::start(const Call& call) {
  if (finalized()) throw CommunicationError(message(name(call.kind), ": MPI is finalized already"));
  std::erase_if(forgotten_, [&](int ticket) { return tidied(ticket); });
  const int ticket = slots_.take();
  MpiCall& slot = slots_[ticket];
  slot.call = call;
  slot.steps.clear();
  slot.done = 0;
  slot.result.reset();
  const bool to_itself = call.kind == Kind::send && call.peer == rank();  // it cannot receive while it waits
  if (to_itself || std::max(call.in.bytes(), call.out.bytes()) <= kSmall) slot.work_on_copies();
  slot.post(group());
  if (!to_itself) return {this, ticket};
  forget(ticket);
  return {};
}

bool MpiCommunicator::test(int ticket) {
  if (finalized()) throw CommunicationError("MPI was finalized during a call");
  MpiCall& slot = slots_[ticket];
  try {
    if (!slot.advance()) return false;
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
std::shared_ptr<Handle> MpiCommunicator::form(Make make) {
  barrier();
  MPI_Comm comm = MPI_COMM_NULL;
  check(make(&comm), Kind::barrier);
  auto handle = std::make_shared<Handle>(comm, true);
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), Kind::barrier);
  return handle;
}

std::shared_ptr<Communicator> MpiCommunicator::duplicate() {
  if (size() == 1) return make_self();
  const auto make = [&](MPI_Comm* comm) { return MPI_Comm_dup(comm_, comm); };
  const auto calls = form(make), notices = form(make);
  const auto same =
      std::make_shared<MpiCommunicator>(calls, std::make_shared<Notices>(notices, notices_), rank(), size(), most_);
  same->inherit(*this);
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
  part->inherit(*this);
  return part;
}

// ---- notices

void MpiCommunicator::notify(Notice notice, std::int64_t about) {
  if (finalized()) return;
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
  return finalized() || !notices_ ? -1 : notices_->heard(notice);
}

}  // namespace

const char* compiled_mpi() {
#ifdef OPEN_MPI
  return "Open MPI";
#else
  return "MPICH";
#endif
}

std::shared_ptr<Communicator> wrap_mpi(std::int64_t handle, Index most) {
  require(most >= 1 && most <= Index{1} << 30, "wrap_mpi: pieces of ", most, " elements");
  if (finalized()) throw CommunicationError("MPI is finalized already");
  auto comm = (MPI_Comm)handle;  // NOLINT: a pointer in one MPI, an int in another
  int rank = 0, size = 1;
  if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &size) != MPI_SUCCESS)
    throw CommunicationError("MPI: this is no communicator");
  return MpiCommunicator(std::make_shared<Handle>(comm, false), nullptr, rank, size, most).duplicate();
}

bool end_with_exit_code() {
#ifdef __GLIBC__
  const auto end = [](int code, void*) {
    if (finalized()) return;
    if (code == 0) {
      MPI_Finalize();
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
