#include "pdnn/comm/communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/core/memory.hpp"

namespace pdnn::comm {

const char* name(DType dtype) {
  static constexpr const char* kNames[] = {"float32", "float64", "int32", "int64", "uint8"};
  return kNames[static_cast<int>(dtype)];
}

const char* name(Op op) {
  static constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<int>(op)];
}

const char* name(Kind kind) {
  static constexpr const char* kNames[] = {"broadcast",  "reduce",         "all_reduce", "scatter", "gather",
                                           "all_gather", "reduce_scatter", "barrier",    "send",    "recv"};
  return kNames[static_cast<int>(kind)];
}

// ---- traffic

namespace {

thread_local Traffic thread_traffic;
thread_local std::int64_t calls_to_live = 0;  // 0: not limited

}  // namespace

const Traffic& traffic_of_this_thread() { return thread_traffic; }

Traffic& Traffic::operator+=(const Traffic& other) {
  bytes += other.bytes;
  shared_bytes += other.shared_bytes;
  seconds += other.seconds;
  return *this;
}

Traffic Traffic::operator-(const Traffic& before) const {
  return {bytes - before.bytes, shared_bytes - before.shared_bytes, seconds - before.seconds};
}

void Communicator::count(const Traffic& more) {
  traffic_ += more;
  thread_traffic += more;
}

/// An all_reduce is a reduce_scatter of even shares and an all_gather of their sums. Who need not pass on what others
/// give is not taken to do so.
Index Communicator::bytes_sent(const Call& call) const {
  const bool root = call.peer == rank_;
  const Index given = call.in.bytes(), kept = call.out.bytes();
  switch (call.kind) {
    case Kind::broadcast:
      return root ? given : 0;
    case Kind::reduce:
    case Kind::gather:
    case Kind::send:
      return root ? 0 : given;
    case Kind::all_reduce: {
      const Index own = share(call.in.count, rank_, size_).size() * size_of(call.in.dtype);
      return given - own + own * (size_ - 1);
    }
    case Kind::scatter:
      return root ? given - kept : 0;
    case Kind::all_gather:
      return given * (size_ - 1);
    case Kind::reduce_scatter:
      return given - kept;
    default:
      return 0;
  }
}

// ---- requests

Request::Request(Request&& other) noexcept
    : owner_(other.owner_.exchange(nullptr)),
      failure_(std::move(other.failure_)),
      ticket_(other.ticket_),
      entry_(other.entry_) {}

Request& Request::operator=(Request&& other) noexcept {
  owner_ = other.owner_.exchange(owner_);
  std::swap(failure_, other.failure_);
  std::swap(ticket_, other.ticket_);
  std::swap(entry_, other.entry_);
  return *this;
}

bool Request::test() {
  if (Communicator* const owner = owner_.load(std::memory_order_acquire)) {
    const std::lock_guard turn(owner->turn_);
    if (pending()) try {  // another thread may just have seen the end
        if (!owner->test(ticket_)) return false;
        owner->record_.leave(entry_);
        owner_.store(nullptr, std::memory_order_release);
      } catch (...) {
        try {
          owner->rethrow(entry_);
        } catch (...) {
          failure_ = std::current_exception();
          owner_.store(nullptr, std::memory_order_release);
        }
      }
  }
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

void Request::wait(const char* call) {
  Communicator* const waited = owner_.load(std::memory_order_acquire);
  if (!waited) {
    test();
    return;
  }
  Communicator& owner = *waited;
  Waiting waiting;
  while (!test()) {
    if (entry_ != 0) owner.record_.recorder()->waits(entry_);
    try {
      const bool late = waiting.seconds() > owner.timeout_;
      if (!late && !waiting.pause()) continue;
      const std::lock_guard turn(owner.turn_);
      if (!pending()) continue;
      if (late) owner.time_out(ticket_, call);
      owner.check_others();
      owner.look_for_stall(waiting.seconds(), entry_);
    } catch (...) {
      abandon(std::current_exception());
      throw;
    }
  }
  const std::lock_guard turn(owner.turn_);
  owner.count({.seconds = waiting.until_now()});
}

void Request::abandon(const std::exception_ptr& failure) {
  Communicator* const owner = owner_.load(std::memory_order_acquire);
  if (!owner) return;
  const std::lock_guard turn(owner->turn_);
  if (!pending()) return;
  owner->record_.leave(entry_);
  failure_ = failure;
  owner_.store(nullptr, std::memory_order_release);
  const Call left = owner->abandon(ticket_);
  pin(left.in.data, left.in.bytes());
  pin(left.out.data, left.out.bytes());
}

// ---- calls

namespace {

View nothing(ConstView like) { return {nullptr, 0, like.dtype}; }

}  // namespace

Communicator::Communicator(int rank, int size)
    : rank_(rank),
      size_(size),
      timeout_(timeout_from_environment()),
      stall_warning_(stall_warning_from_environment()) {}

Request Communicator::start_broadcast(View data, int root) {
  return root == rank_ ? begin({.kind = Kind::broadcast, .in = data, .out = nothing(data), .peer = root})
                       : begin({.kind = Kind::broadcast, .in = nothing(data), .out = data, .peer = root});
}

Request Communicator::start_reduce(ConstView in, View out, int root, Op op) {
  return begin({.kind = Kind::reduce, .in = in, .out = root == rank_ ? out : nothing(in), .peer = root, .op = op});
}

Request Communicator::start_all_reduce(ConstView in, View out, Op op) {
  return begin({.kind = Kind::all_reduce, .in = in, .out = out, .op = op});
}

Request Communicator::start_scatter(ConstView all, std::span<const Index> counts, View mine, int root) {
  const ConstView given = root == rank_ ? all : nothing(mine);
  return begin({.kind = Kind::scatter, .in = given, .out = mine, .counts = counts, .peer = root});
}

Request Communicator::start_gather(ConstView mine, View all, std::span<const Index> counts, int root) {
  const View wanted = root == rank_ ? all : nothing(mine);
  return begin({.kind = Kind::gather, .in = mine, .out = wanted, .counts = counts, .peer = root});
}

Request Communicator::start_all_gather(ConstView mine, View all, std::span<const Index> counts) {
  return begin({.kind = Kind::all_gather, .in = mine, .out = all, .counts = counts});
}

Request Communicator::start_reduce_scatter(ConstView all, View mine, std::span<const Index> counts, Op op) {
  return begin({.kind = Kind::reduce_scatter, .in = all, .out = mine, .counts = counts, .op = op});
}

Request Communicator::start_send(ConstView data, int dest, int tag) {
  return begin({.kind = Kind::send, .in = data, .out = nothing(data), .peer = dest, .tag = tag});
}

Request Communicator::start_recv(View data, int source, int tag) {
  return begin({.kind = Kind::recv, .in = nothing(data), .out = data, .peer = source, .tag = tag});
}

Request Communicator::start_barrier() { return begin({.kind = Kind::barrier}); }

Request Communicator::begin(const Call& call) {
  check(call);
  count_down();
  if (made_outside(call)) {
    make_outside(call);
    return {};
  }
  if (size_ > 1 || call.kind == Kind::send || call.kind == Kind::recv) {
    const std::lock_guard turn(turn_);
    count({.bytes = bytes_sent(call)});
    RecordedCall recorded(record_, enter(call));
    Request request = start(call);
    if (request.pending()) request.entry_ = recorded.keep();
    return request;
  }
  if (call.in.bytes() > 0 && call.out.bytes() > 0 && call.out.data != call.in.data)
    std::memcpy(call.out.data, call.in.data, static_cast<std::size_t>(call.in.bytes()));
  return {};
}

bool Communicator::made_outside(const Call& call) const {
  return all_reduce_ && size_ > 1 && call.kind == Kind::all_reduce && is_floating(call.out.dtype) &&
         (call.op == Op::sum || call.op == Op::mean);
}

void Communicator::make_outside(const Call& call) {
  if (call.out.bytes() > 0 && call.out.data != call.in.data)
    std::memcpy(call.out.data, call.in.data, static_cast<std::size_t>(call.in.bytes()));
  struct Meanwhile {
    explicit Meanwhile(Communicator& comm) : owner(comm), outside(std::exchange(comm.all_reduce_, nullptr)) {}
    Meanwhile(const Meanwhile&) = delete;
    Meanwhile& operator=(const Meanwhile&) = delete;
    ~Meanwhile() { owner.all_reduce_ = outside; }

    Communicator& owner;
    std::shared_ptr<const AllReduce> outside;
  };
  {
    const Meanwhile meanwhile(*this);
    meanwhile.outside->sum(*this, call.out);
  }
  if (call.op != Op::mean) return;
  with_type(call.out.dtype, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>)
      for (T& value : std::span(static_cast<T*>(call.out.data), static_cast<std::size_t>(call.out.count)))
        value /= static_cast<T>(size_);
  });
}

void Communicator::inherit(const Communicator& other, int color) {
  step_ = other.step_;
  all_reduce_ = other.all_reduce_;
  record(other.record_.recorder(), other.record_.id_of_part(color));
}

void Communicator::survive(const Communicator& other) {
  step_ = other.step_;
  all_reduce_ = other.all_reduce_;
  record(other.record_.recorder(), mixed(other.record_.id(), static_cast<std::uint64_t>(size_)));
}

namespace {

[[noreturn]] void cannot_go_on(const char* call) {
  throw CommunicationError(message(call,
                                   ": this MPI ends the job when a rank dies; start it with Open MPI 5 or later, "
                                   "mpiexec --with-ft ulfm, or pdnn launch --elastic"));
}

}  // namespace

void Communicator::fail() {
  const std::int64_t before = notified(Notice::failed);
  const auto& recorder = record_.recorder();
  notify(Notice::failed, before >= 0 || !recorder ? std::max(before, std::int64_t{0}) : 1 + recorder->log().rank);
}

void Communicator::check_others() {
  const std::int64_t failed = notified(Notice::failed);
  check_living();
  check_failed(failed);
}

void Communicator::check_failed(std::int64_t notice) {
  if (notice < 0) return;
  throw Aborted(message("communicator: ", notice == 0 ? "another rank" : message("rank ", notice - 1), " failed"));
}

std::uint32_t Communicator::agree(std::uint32_t /*bits*/, bool /*patient*/) { cannot_go_on("agree"); }

std::shared_ptr<Communicator> Communicator::shrink() { cannot_go_on("shrink"); }

void Communicator::die() {
  ::kill(::getpid(), SIGKILL);
  std::abort();  // not reached
}

void Communicator::die_after(std::int64_t calls) { calls_to_live = calls; }

void Communicator::count_down() {
  if (size_ == 1 || calls_to_live == 0) return;
  --calls_to_live;
  if (calls_to_live == 0) die();
}

void Communicator::check(const Call& call) const {
  const char* what = name(call.kind);
  require(call.peer >= 0 && call.peer < size_, what, ": rank ", call.peer, " is not one of the ", size_, " ranks");
  require(call.tag >= 0 && call.tag <= kMaxTag, what, ": tag ", call.tag, " is not in 0 … ", kMaxTag);
  require(call.in.dtype == call.out.dtype, what, ": input is ", name(call.in.dtype), ", output ", name(call.out.dtype));
  if (call.op == Op::mean)
    require(is_floating(call.in.dtype), what, ": the mean of ", name(call.in.dtype), " values is no ",
            name(call.in.dtype), "; use sum");

  const bool cuts = call.kind == Kind::scatter || call.kind == Kind::reduce_scatter;
  const bool joins = call.kind == Kind::gather || call.kind == Kind::all_gather;
  if (cuts || joins) {
    const Index mine = cuts ? call.out.count : call.in.count, whole = cuts ? call.in.count : call.out.count;
    const bool rooted = call.kind == Kind::scatter || call.kind == Kind::gather;
    Index total = mine * size_;
    if (!call.counts.empty()) {
      require(std::ssize(call.counts) == size_, what, ": ", call.counts.size(), " counts for ", size_, " ranks");
      for (const Index count : call.counts) require(count >= 0, what, ": a count of ", count);
      const Index share = call.counts[static_cast<std::size_t>(rank_)];
      require(mine == share, what, ": this rank's part has ", mine, " elements, its count is ", share);
      total = std::accumulate(call.counts.begin(), call.counts.end(), Index{0});
    }
    if (!rooted || call.peer == rank_)
      require(whole == total, what, ": the whole has ", whole, " elements, its parts have ", total);
  } else if (call.kind == Kind::all_reduce || (call.kind == Kind::reduce && call.peer == rank_)) {
    require(call.in.count == call.out.count, what, ": input has ", call.in.count, " elements, output ", call.out.count);
  }
}

}  // namespace pdnn::comm
