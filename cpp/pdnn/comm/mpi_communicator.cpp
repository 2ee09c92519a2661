#include "pdnn/comm/mpi_communicator.hpp"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "pdnn/comm/slot_pool.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

constexpr int kPieceTag = kMaxTag + 1;  // of gathers and scatters that travel in pieces

bool finalized() {
  int flag = 0;
  return MPI_Finalized(&flag) != MPI_SUCCESS || flag;
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint8:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op op_of(Op op) { return op == Op::max ? MPI_MAX : op == Op::min ? MPI_MIN : MPI_SUM; }

View part(View view, Index at, Index count) {
  return {view.data ? static_cast<std::byte*>(view.data) + at * size_of(view.dtype) : nullptr, count, view.dtype};
}

/// MPI's arguments are not const where a call also writes on other ranks.
View writable(ConstView view) { return {const_cast<void*>(view.data), view.count, view.dtype}; }
ConstView part(ConstView view, Index at, Index count) { return part(writable(view), at, count); }

void copy(ConstView from, View to) {
  if (to.bytes() > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes()));
}

struct Step {
  MPI_Request request;
  int expected;  // elements that arrive; -1: not a recv
};

/// A call under way: the MPI requests it is made of, and what MPI reads until they are done.
struct Slot {
  Call call;
  std::vector<Step> steps;
  std::size_t done = 0;
  std::vector<int> counts, starts;  // of the ranks' parts, in elements
  std::vector<std::byte> copy;      // of a message to this rank itself
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, int rank, int size, Index most, bool owned)
      : Communicator(rank, size), comm_(comm), most_(most), owned_(owned) {}
  ~MpiCommunicator() override {
    if (owned_ && !finalized()) MPI_Comm_free(&comm_);
  }

  std::shared_ptr<Communicator> split(int color, int key) override;
  std::shared_ptr<Communicator> duplicate();
  [[noreturn]] void give_up(const std::string& message) override;

 private:
  Request start(const Call& call) override;
  bool test(int ticket) override;
  void abandon(int ticket) override;
  [[noreturn]] void time_out(int ticket, const char* call_name) override;

  void post(Slot& slot);
  void post_parts(Slot& slot);
  void post_parts_in_pieces(Slot& slot);
  void broadcast(Slot& slot, View data, int root);
  void reduce(Slot& slot, ConstView in, View out, int root);
  void all_reduce(Slot& slot);
  void send(Slot& slot, ConstView data, int to, int tag);
  void recv(Slot& slot, View data, int from, int tag);

  /// Calls post(at, count, request) for each piece of at most `most_` elements, at least once.
  template <class Post>
  void in_pieces(Slot& slot, Index count, Post post);
  /// Whether a forgotten call is over; its slot is then free again.
  bool tidied(int ticket);
  /// True once all of the call's MPI requests are done.
  bool advance(Slot& slot) const;
  void check(int code, Kind kind) const;

  /// The group that make(&new_communicator) puts together, once all ranks have come, in a wait that can time out.
  template <class Make>
  std::shared_ptr<Communicator> form(Make make);

  MPI_Comm comm_;
  Index most_;
  bool owned_;
  SlotPool<Slot> slots_;
  std::vector<int> forgotten_;  // tickets that nobody will ask for, to be tidied when done
};

void MpiCommunicator::check(int code, Kind kind) const {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError(message(name(kind), ": ", text, " (rank ", rank(), ")"));
}

// ---- a call's life

Request MpiCommunicator::start(const Call& call) {
  if (finalized()) throw CommunicationError(message(name(call.kind), ": MPI is finalized already"));
  std::erase_if(forgotten_, [&](int ticket) { return tidied(ticket); });
  const int ticket = slots_.take();
  Slot& slot = slots_[ticket];
  slot.call = call;
  slot.steps.clear();
  slot.done = 0;
  if (call.kind == Kind::send && call.peer == rank()) {  // buffered: this rank cannot receive while it waits
    const auto* bytes = static_cast<const std::byte*>(call.in.data);
    slot.copy.assign(bytes, bytes + call.in.bytes());
    slot.call.in.data = slot.copy.data();
    post(slot);
    abandon(ticket);
    return {};
  }
  post(slot);
  return {this, ticket};
}

bool MpiCommunicator::advance(Slot& slot) const {
  for (; slot.done < slot.steps.size(); ++slot.done) {
    auto& [request, expected] = slot.steps[slot.done];
    int flag = 0, count = 0;
    MPI_Status status;
    check(MPI_Test(&request, &flag, &status), slot.call.kind);
    if (!flag) return false;
    if (expected < 0) continue;
    check(MPI_Get_count(&status, type_of(slot.call.out.dtype), &count), slot.call.kind);
    require(count == expected, name(slot.call.kind), ": rank ", status.MPI_SOURCE, " sent ", count, " ",
            name(slot.call.out.dtype), ", rank ", rank(), " expects ", expected);
  }
  return true;
}

bool MpiCommunicator::test(int ticket) {
  if (finalized()) throw CommunicationError("MPI was finalized during a call");
  Slot& slot = slots_[ticket];
  try {
    if (!advance(slot)) return false;
  } catch (...) {
    slots_.give_back(ticket);
    throw;
  }
  if (slot.call.op == Op::mean && slot.call.out.count > 0)
    with_type(slot.call.out.dtype, [&]<class T>(T) {
      for (T& value : std::span(static_cast<T*>(slot.call.out.data), static_cast<std::size_t>(slot.call.out.count)))
        value = static_cast<T>(value / static_cast<T>(size()));
    });
  slots_.give_back(ticket);
  return true;
}

bool MpiCommunicator::tidied(int ticket) {
  try {
    if (!advance(slots_[ticket])) return false;
  } catch (const CommunicationError&) {  // NOLINT: of a call that was given up; it is over all the same
  }
  slots_.give_back(ticket);
  return true;
}

void MpiCommunicator::abandon(int ticket) {
  for (Step& step : slots_[ticket].steps) step.expected = -1;
  forgotten_.push_back(ticket);
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

// ---- calls as MPI's own, all non-blocking

void MpiCommunicator::post(Slot& slot) {
  const Call& call = slot.call;
  switch (call.kind) {
    case Kind::barrier:
      return in_pieces(slot, 0, [&](Index, int, Step& step) { return MPI_Ibarrier(comm_, &step.request); });
    case Kind::broadcast:
      return broadcast(slot, call.peer == rank() ? writable(call.in) : call.out, call.peer);
    case Kind::reduce:
      return reduce(slot, call.in, call.out, call.peer);
    case Kind::all_reduce:
      return all_reduce(slot);
    case Kind::send:
      return send(slot, call.in, call.peer, call.tag);
    case Kind::recv:
      return recv(slot, call.out, call.peer, call.tag);
    default:
      return post_parts(slot);
  }
}

template <class Post>
void MpiCommunicator::in_pieces(Slot& slot, Index count, Post post) {
  Index at = 0;
  do {
    const int piece = static_cast<int>(std::min(most_, count - at));
    slot.steps.push_back({MPI_REQUEST_NULL, -1});
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.*): advance() tests the request
    check(post(at, piece, slot.steps.back()), slot.call.kind);
    at += piece;
  } while (at < count);
}

void MpiCommunicator::broadcast(Slot& slot, View data, int root) {
  in_pieces(slot, data.count, [&](Index at, int count, Step& step) {
    return MPI_Ibcast(part(data, at, count).data, count, type_of(data.dtype), root, comm_, &step.request);
  });
}

void MpiCommunicator::reduce(Slot& slot, ConstView in, View out, int root) {
  const bool in_place = root == rank() && in.data == out.data;
  in_pieces(slot, in.count, [&](Index at, int count, Step& step) {
    return MPI_Ireduce(in_place ? MPI_IN_PLACE : part(in, at, count).data, part(out, at, count).data, count,
                       type_of(in.dtype), op_of(slot.call.op), root, comm_, &step.request);
  });
}

void MpiCommunicator::all_reduce(Slot& slot) {
  const ConstView in = slot.call.in;
  const View out = slot.call.out;
  const bool in_place = in.data == out.data;
  in_pieces(slot, in.count, [&](Index at, int count, Step& step) {
    return MPI_Iallreduce(in_place ? MPI_IN_PLACE : part(in, at, count).data, part(out, at, count).data, count,
                          type_of(in.dtype), op_of(slot.call.op), comm_, &step.request);
  });
}

void MpiCommunicator::send(Slot& slot, ConstView data, int to, int tag) {
  in_pieces(slot, data.count, [&](Index at, int count, Step& step) {
    return MPI_Isend(part(data, at, count).data, count, type_of(data.dtype), to, tag, comm_, &step.request);
  });
}

void MpiCommunicator::recv(Slot& slot, View data, int from, int tag) {
  in_pieces(slot, data.count, [&](Index at, int count, Step& step) {
    step.expected = count;
    return MPI_Irecv(part(data, at, count).data, count, type_of(data.dtype), from, tag, comm_, &step.request);
  });
}

// ---- calls on parts of a whole

Index part_size(const Call& call, int rank) {
  const bool cuts = call.kind == Kind::scatter || call.kind == Kind::reduce_scatter;
  if (call.counts.empty()) return cuts ? call.out.count : call.in.count;
  return call.counts[static_cast<std::size_t>(rank)];
}

void MpiCommunicator::post_parts(Slot& slot) {
  const Call& call = slot.call;
  Index total = 0;
  for (int rank = 0; rank < size(); ++rank) total += part_size(call, rank);
  if (total > most_) return post_parts_in_pieces(slot);

  slot.counts.clear();
  slot.starts.assign(1, 0);
  for (int rank = 0; rank < size(); ++rank) {
    slot.counts.push_back(static_cast<int>(part_size(call, rank)));
    slot.starts.push_back(slot.starts.back() + slot.counts.back());
  }
  const int *counts = slot.counts.data(), *starts = slot.starts.data();
  MPI_Datatype type = type_of(call.in.dtype);
  in_pieces(slot, 0, [&](Index, int, Step& step) {
    const auto given = static_cast<int>(call.in.count), wanted = static_cast<int>(call.out.count);
    switch (call.kind) {
      case Kind::scatter:
        return MPI_Iscatterv(call.in.data, counts, starts, type, call.out.data, wanted, type, call.peer, comm_,
                             &step.request);
      case Kind::gather:
        return MPI_Igatherv(call.in.data, given, type, call.out.data, counts, starts, type, call.peer, comm_,
                            &step.request);
      case Kind::all_gather:
        return MPI_Iallgatherv(call.in.data, given, type, call.out.data, counts, starts, type, comm_, &step.request);
      default:
        return MPI_Ireduce_scatter(call.in.data, call.out.data, counts, type, op_of(call.op), comm_, &step.request);
    }
  });
}

/// More elements than MPI's int counts and displacements reach: one call for each rank's part.
void MpiCommunicator::post_parts_in_pieces(Slot& slot) {
  const Call& call = slot.call;
  const bool root = call.peer == rank();
  Index at = 0;
  for (int other = 0; other < size(); ++other) {
    const Index count = part_size(call, other);
    const bool own = other == rank();
    if (call.kind == Kind::all_gather) {
      if (own) copy(call.in, part(call.out, at, count));
      broadcast(slot, part(call.out, at, count), other);
    } else if (call.kind == Kind::reduce_scatter) {
      reduce(slot, part(call.in, at, count), own ? call.out : View(), other);
    } else if (call.kind == Kind::scatter) {
      if (root && own) copy(part(call.in, at, count), call.out);
      if (root && !own) send(slot, part(call.in, at, count), other, kPieceTag);
      if (!root && own) recv(slot, call.out, call.peer, kPieceTag);
    } else {
      if (root && own) copy(call.in, part(call.out, at, count));
      if (root && !own) recv(slot, part(call.out, at, count), other, kPieceTag);
      if (!root && own) send(slot, call.in, call.peer, kPieceTag);
    }
    at += count;
  }
}

// ---- groups

template <class Make>
std::shared_ptr<Communicator> MpiCommunicator::form(Make make) {
  barrier();
  MPI_Comm comm = MPI_COMM_NULL;
  check(make(&comm), Kind::barrier);
  int rank = 0, size = 1;
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), Kind::barrier);
  check(MPI_Comm_rank(comm, &rank), Kind::barrier);
  check(MPI_Comm_size(comm, &size), Kind::barrier);
  if (size > 1) return std::make_shared<MpiCommunicator>(comm, rank, size, most_, true);
  check(MPI_Comm_free(&comm), Kind::barrier);
  return make_self();
}

std::shared_ptr<Communicator> MpiCommunicator::duplicate() {
  return form([&](MPI_Comm* comm) { return MPI_Comm_dup(comm_, comm); });
}

std::shared_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  require(color >= 0, "split: color ", color, " is negative");
  const auto part = form([&](MPI_Comm* comm) { return MPI_Comm_split(comm_, color, key, comm); });
  part->at_step(step());
  return part;
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
  return MpiCommunicator(comm, rank, size, most, false).duplicate();
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
