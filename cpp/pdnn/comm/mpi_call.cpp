#include "pdnn/comm/mpi_call.hpp"

#include <algorithm>
#include <cstddef>

#include "pdnn/comm/mpi_ulfm.hpp"
#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

constexpr int kPieceTag = kMaxTag + 1;  // of gathers and scatters that travel in pieces

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

void copy_elements(ConstView from, View to) {
  std::copy_n(static_cast<const std::byte*>(from.data), to.bytes(), static_cast<std::byte*>(to.data));
}

Index part_size(const Call& call, int rank) {
  const bool cuts = call.kind == Kind::scatter || call.kind == Kind::reduce_scatter;
  if (call.counts.empty()) return cuts ? call.out.count : call.in.count;
  return call.counts[static_cast<std::size_t>(rank)];
}

}  // namespace

void check_mpi(int code, Kind kind, const MpiGroup& group) {
  if (code == MPI_SUCCESS) return;
  if (tells_of_death(code, group)) throw RankFailed({});
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError(message(name(kind), ": ", text, " (rank ", group.rank, ")"));
}

void MpiCall::work_on_copies() {
  constexpr Index kAlign = alignof(std::max_align_t);
  const bool in_place = call.in.data == call.out.data;
  const Index out_at = in_place ? 0 : (call.in.bytes() + kAlign - 1) / kAlign * kAlign;
  copy.reserve(static_cast<std::size_t>(3 * kSmall));  // no call of its like will allocate
  copy.resize(static_cast<std::size_t>(std::max(call.in.bytes(), out_at + call.out.bytes())));
  copy_elements(call.in, {copy.data(), call.in.count, call.in.dtype});
  result = call.out;
  if (call.in.data) call.in.data = copy.data();
  if (call.out.data) call.out.data = copy.data() + out_at;
}

bool MpiCall::advance() {
  while (done < steps.size()) {
    auto& [request, expected] = steps[done];
    int flag = 0, count = 0;
    MPI_Status status;
    const int code = MPI_Test(&request, &flag, &status);
    if (code == MPI_SUCCESS && !flag) return false;
    ++done;  // it is over, however it ended
    check_mpi(code, call.kind, group_);
    if (expected < 0) continue;
    check_mpi(MPI_Get_count(&status, type_of(call.out.dtype), &count), call.kind, group_);
    require(count == expected, name(call.kind), ": rank ", status.MPI_SOURCE, " sent ", count, " ",
            name(call.out.dtype), ", rank ", group_.rank, " expects ", expected);
  }
  return true;
}

void MpiCall::deliver(int ranks) {
  if (call.op == Op::mean && call.out.count > 0)
    with_type(call.out.dtype, [&]<class T>(T) {
      for (T& value : std::span(static_cast<T*>(call.out.data), static_cast<std::size_t>(call.out.count)))
        value = static_cast<T>(value / static_cast<T>(ranks));
    });
  if (result) copy_elements(call.out, *result);
}

// ---- calls as MPI's own, all non-blocking

void MpiCall::post(const MpiGroup& group) {
  group_ = group;
  switch (call.kind) {
    case Kind::barrier:
      return in_pieces(0, [&](Index, int, Step& step) { return MPI_Ibarrier(group_.comm, &step.request); });
    case Kind::broadcast:
      return broadcast(call.peer == group_.rank ? writable(call.in) : call.out, call.peer);
    case Kind::reduce:
      return reduce(call.in, call.out, call.peer);
    case Kind::all_reduce:
      return all_reduce();
    case Kind::send:
      return send(call.in, call.peer, call.tag);
    case Kind::recv:
      return recv(call.out, call.peer, call.tag);
    default:
      return post_parts();
  }
}

template <class Post>
void MpiCall::in_pieces(Index count, Post post) {
  Index at = 0;
  do {
    const int piece = static_cast<int>(std::min(group_.most, count - at));
    steps.push_back({MPI_REQUEST_NULL, -1});
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.*): advance() tests the request
    check_mpi(post(at, piece, steps.back()), call.kind, group_);
    at += piece;
  } while (at < count);
}

void MpiCall::broadcast(View data, int root) {
  in_pieces(data.count, [&](Index at, int count, Step& step) {
    return MPI_Ibcast(part(data, at, count).data, count, type_of(data.dtype), root, group_.comm, &step.request);
  });
}

void MpiCall::reduce(ConstView in, View out, int root) {
  const bool in_place = root == group_.rank && in.data == out.data;
  in_pieces(in.count, [&](Index at, int count, Step& step) {
    return MPI_Ireduce(in_place ? MPI_IN_PLACE : part(in, at, count).data, part(out, at, count).data, count,
                       type_of(in.dtype), op_of(call.op), root, group_.comm, &step.request);
  });
}

void MpiCall::all_reduce() {
  const ConstView in = call.in;
  const View out = call.out;
  const bool in_place = in.data == out.data;
  in_pieces(in.count, [&](Index at, int count, Step& step) {
    return MPI_Iallreduce(in_place ? MPI_IN_PLACE : part(in, at, count).data, part(out, at, count).data, count,
                          type_of(in.dtype), op_of(call.op), group_.comm, &step.request);
  });
}

void MpiCall::send(ConstView data, int to, int tag) {
  in_pieces(data.count, [&](Index at, int count, Step& step) {
    return MPI_Isend(part(data, at, count).data, count, type_of(data.dtype), to, tag, group_.comm, &step.request);
  });
}

void MpiCall::recv(View data, int from, int tag) {
  in_pieces(data.count, [&](Index at, int count, Step& step) {
    step.expected = count;
    return MPI_Irecv(part(data, at, count).data, count, type_of(data.dtype), from, tag, group_.comm, &step.request);
  });
}

// ---- calls on parts of a whole

void MpiCall::post_parts() {
  Index total = 0;
  for (int rank = 0; rank < group_.size; ++rank) total += part_size(call, rank);
  if (total > group_.most) return post_parts_in_pieces();

  counts_.clear();
  starts_.assign(1, 0);
  for (int rank = 0; rank < group_.size; ++rank) {
    counts_.push_back(static_cast<int>(part_size(call, rank)));
    starts_.push_back(starts_.back() + counts_.back());
  }
  const int *counts = counts_.data(), *starts = starts_.data();
  MPI_Datatype type = type_of(call.in.dtype);
  in_pieces(0, [&](Index, int, Step& step) {
    const auto given = static_cast<int>(call.in.count), wanted = static_cast<int>(call.out.count);
    switch (call.kind) {
      case Kind::scatter:
        return MPI_Iscatterv(call.in.data, counts, starts, type, call.out.data, wanted, type, call.peer, group_.comm,
                             &step.request);
      case Kind::gather:
        return MPI_Igatherv(call.in.data, given, type, call.out.data, counts, starts, type, call.peer, group_.comm,
                            &step.request);
      case Kind::all_gather:
        return MPI_Iallgatherv(call.in.data, given, type, call.out.data, counts, starts, type, group_.comm,
                               &step.request);
      default:
        return MPI_Ireduce_scatter(call.in.data, call.out.data, counts, type, op_of(call.op), group_.comm,
                                   &step.request);
    }
  });
}

/// More elements than MPI's int counts and displacements reach: one call for each rank's part.
void MpiCall::post_parts_in_pieces() {
  const bool root = call.peer == group_.rank;
  Index at = 0;
  for (int other = 0; other < group_.size; ++other) {
    const Index count = part_size(call, other);
    const bool own = other == group_.rank;
    if (call.kind == Kind::all_gather) {
      if (own) copy_elements(call.in, part(call.out, at, count));
      broadcast(part(call.out, at, count), other);
    } else if (call.kind == Kind::reduce_scatter) {
      reduce(part(call.in, at, count), own ? call.out : View(), other);
    } else if (call.kind == Kind::scatter) {
      if (root && own) copy_elements(part(call.in, at, count), call.out);
      if (root && !own) send(part(call.in, at, count), other, kPieceTag);
      if (!root && own) recv(call.out, call.peer, kPieceTag);
    } else {
      if (root && own) copy_elements(call.in, part(call.out, at, count));
      if (root && !own) recv(part(call.out, at, count), other, kPieceTag);
      if (!root && own) send(call.in, call.peer, kPieceTag);
    }
    at += count;
  }
}

}  // namespace pdnn::comm
