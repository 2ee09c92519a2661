#include "pdnn/comm/thread_collective.hpp"

#include <cstring>
#include <numeric>

#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

void copy(void* to, const void* from, Index bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

bool has_op(Kind kind) { return kind == Kind::reduce || kind == Kind::all_reduce || kind == Kind::reduce_scatter; }

bool has_root(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::scatter || kind == Kind::gather;
}

/// The count that every rank of a call shares.
Index common_count(const Call& call) {
  if (call.kind == Kind::broadcast) return call.in.count + call.out.count;
  return call.kind == Kind::scatter ? call.out.count : call.in.count;
}

}  // namespace

bool ThreadCollective::Contribution::agrees(const Contribution& other) const {
  return kind == other.kind && op == other.op && dtype == other.dtype && root == other.root && counts == other.counts &&
         (!counts.empty() || count == other.count);
}

std::string ThreadCollective::Contribution::text() const {
  if (kind == Kind::barrier) return "barrier()";
  std::string text = message(name(kind), "(", count, " ", name(dtype));
  if (has_op(kind)) text += message(", ", name(op));
  if (has_root(kind)) text += message(", root ", root);
  for (std::size_t rank = 0; rank < counts.size(); ++rank) text += message(rank == 0 ? ", counts " : " ", counts[rank]);
  return text + ")";
}

void ThreadCollective::post(int rank, const Call& call) {
  Contribution& place = contributions_[static_cast<std::size_t>(rank)];
  place.kind = call.kind;
  place.op = call.op;
  place.dtype = call.in.dtype;
  place.root = call.peer;
  place.count = common_count(call);
  place.counts.assign(call.counts.begin(), call.counts.end());
  place.bytes.resize(static_cast<std::size_t>(call.in.bytes()));
  copy(place.bytes.data(), call.in.data, call.in.bytes());
  place.posted.store(true, std::memory_order_release);
}

bool ThreadCollective::complete() const {
  for (const Contribution& place : contributions_)
    if (!place.posted.load(std::memory_order_acquire)) return false;
  return true;
}

std::string ThreadCollective::missing() const {
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < contributions_.size(); ++rank) {
    if (contributions_[rank].posted.load(std::memory_order_acquire)) continue;
    ranks += message(count++ == 0 ? " " : ", ", rank);
  }
  return (count == 1 ? "rank" : "ranks") + ranks;
}

void ThreadCollective::clear() {
  for (Contribution& place : contributions_) place.posted.store(false, std::memory_order_relaxed);
}

void ThreadCollective::check() const {
  const Contribution& first = contributions_[0];
  for (std::size_t rank = 1; rank < contributions_.size(); ++rank) {
    const Contribution& other = contributions_[rank];
    if (other.agrees(first)) continue;
    throw ValueError(message(other.kind == first.kind ? name(first.kind) : "ranks", ": rank ", rank, " called ",
                             other.text(), ", rank 0 ", first.text(),
                             "; every rank must make the same calls in the same order"));
  }
}

/// out = the op over all ranks' elements from `begin` on, rank 0 first, a block at a time so that it stays in cache.
template <class T>
void ThreadCollective::combine(Index begin, T* out, Index count) const {
  constexpr Index kBlock = 2048;
  const Op op = contributions_[0].op;
  const auto size = static_cast<T>(contributions_.size());
  for (Index at = 0; at < count; at += kBlock) {
    const Index n = std::min(kBlock, count - at);
    T* to = out + at;
    for (std::size_t rank = 0; rank < contributions_.size(); ++rank) {
      const T* from = reinterpret_cast<const T*>(contributions_[rank].bytes.data()) + begin + at;
      if (rank == 0) {
        std::copy_n(from, n, to);
      } else if (op == Op::max) {
        for (Index i = 0; i < n; ++i) to[i] = std::max(to[i], from[i]);
      } else if (op == Op::min) {
        for (Index i = 0; i < n; ++i) to[i] = std::min(to[i], from[i]);
      } else {
        for (Index i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] + from[i]);
      }
    }
    if (op == Op::mean)
      for (Index i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] / size);
  }
}

void ThreadCollective::deliver(int rank, const Call& call) const {
  check();
  const std::span counts = call.counts;
  const Index width = size_of(call.out.dtype);
  const std::vector<std::byte>& root = contributions_[static_cast<std::size_t>(call.peer)].bytes;
  const Index before =
      call.counts.empty() ? rank * call.out.count : std::accumulate(counts.begin(), counts.begin() + rank, Index{0});
  switch (call.kind) {
    case Kind::broadcast:
      copy(call.out.data, root.data(), call.out.bytes());
      break;
    case Kind::scatter:
      copy(call.out.data, root.data() + before * width, call.out.bytes());
      break;
    case Kind::gather:
    case Kind::all_gather:
      if (auto* to = static_cast<std::byte*>(call.out.data))
        for (const Contribution& place : contributions_) {
          copy(to, place.bytes.data(), std::ssize(place.bytes));
          to += place.bytes.size();
        }
      break;
    case Kind::reduce:
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      with_type(call.out.dtype, [&]<class T>(T) {
        const Index begin = call.kind == Kind::reduce_scatter ? before : 0;
        combine(begin, static_cast<T*>(call.out.data), call.out.count);
      });
      break;
    default:
      break;
  }
}

}  // namespace pdnn::comm
