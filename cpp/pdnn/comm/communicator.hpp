#pragma once
/// Communicator: a group of ranks that pass arrays to one another. Its implementations: ranks as threads, ranks as MPI
/// processes; a group of one is the identity.
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "pdnn/comm/recorder.hpp"
#include "pdnn/comm/view.hpp"
#include "pdnn/threads/mutex.hpp"

namespace pdnn::comm {

class Communicator;

enum class Op : std::uint8_t { sum, mean, max, min };  ///< mean: the sum over the size; floating types only
enum class Kind : std::uint8_t {
  broadcast,
  reduce,
  all_reduce,
  scatter,
  gather,
  all_gather,
  reduce_scatter,
  barrier,
  send,
  recv
};
const char* name(Op op);
const char* name(Kind kind);

inline constexpr int kMaxTag = 32766;
inline constexpr Index kSmall = 4096;  ///< bytes up to which a call works on copies, and can be forgotten by anybody

/// Messages between ranks beside their calls: a rank has failed, so no rank may wait for it (about its number in the
/// job, and 1 more; 0: unknown); this rank wishes that all come to an end.
enum class Notice : std::uint8_t { failed, stop };
inline constexpr std::size_t kNotices = 2;

/// One call as data: what an implementation is asked to do, checked already.
struct Call {
  Kind kind = Kind::barrier;
  ConstView in{};                   ///< null where this rank gives nothing
  View out{};                       ///< null where this rank receives nothing; of the same type as in
  std::span<const Index> counts{};  ///< elements of each rank; empty: equal shares
  int peer = 0;                     ///< root, destination or source
  int tag = 0;
  Op op = Op::sum;
};

/// What a rank has sent to others, and how long it has waited.
struct Traffic {
  Index bytes = 0;         ///< sent; of a collective call what a good algorithm for it sends (docs/algorithms.md)
  Index shared_bytes = 0;  ///< read where other ranks wrote, in memory that they share
  double seconds = 0;      ///< in waits for calls

  Traffic& operator+=(const Traffic& other);
  Traffic operator-(const Traffic& before) const;
};

/// An all-reduce from outside: leaves in `data` its sum over the ranks of `group`, by the group's other calls.
struct AllReduce {
  std::string name;
  std::function<void(Communicator& group, View data)> sum;
};

/// Of all communicators that this thread has used: a rank is one thread.
const Traffic& traffic_of_this_thread();

/// A call under way. Its buffers belong to it until test() says true or wait() returns; the communicator must outlive
/// it. Dropped before, it forgets the call. Several threads may test it and wait for it; an error is thrown in each.
class Request {
 public:
  Request() = default;  ///< done already
  Request(Communicator* owner, int ticket) : owner_(owner), ticket_(ticket) {}
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request() { abandon(); }

  /// True once the call is done; moves it along. Throws what wait() would throw.
  bool test();
  /// Returns when the call is done. Requests may be waited for in any order. `call` is its name in the message of a
  /// wait that lasts too long; null: its own.
  void wait(const char* call = nullptr);
  /// Forgets the call. Between threads nothing is left of it. MPI may go on with it: then
  /// AlignedArrays that it was to read or fill stay allocated; other memory of more than kSmall bytes must stay.
  void abandon() { abandon(nullptr); }
  /// Of the rank's record; 0: there is none.
  std::uint64_t entry() const { return entry_; }
  /// False once test() or wait() has said that the call is done.
  bool pending() const { return owner_.load(std::memory_order_acquire) != nullptr; }

 private:
  friend class Communicator;

  void abandon(const std::exception_ptr& failure);

  std::atomic<Communicator*> owner_ = nullptr;  // null: done
  std::exception_ptr failure_;                  // then: what ended it
  int ticket_ = 0;
  std::uint64_t entry_ = 0;  // of the record
};

/// One rank's end of a group. Every rank makes the same collective calls in the same order, one thread of it at a time;
/// meanwhile others may send, receive, and wait for what was started. All forms without start_ return when this rank's
/// part is done; start_ forms never wait. No call allocates once its like was made before.
///
/// ValueError: this rank's arguments are wrong (between threads also: the ranks' arguments differ). CommunicationError:
/// MPI failed, or a wait between threads lasted longer than PDNN_TIMEOUT seconds (MPI: that ends the job). RankFailed:
/// another rank died. Aborted: another rank failed.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  virtual ~Communicator() = default;  ///< no call may be waited for any more
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Root's data on every rank.
  Request start_broadcast(View data, int root);
  /// op over the ranks, in the order of ranks between threads. `in` and `out` are the same memory or apart; `out`
  /// matters at the root only.
  Request start_reduce(ConstView in, View out, int root, Op op = Op::sum);
  Request start_all_reduce(ConstView in, View out, Op op = Op::sum);
  Request start_all_reduce(View data, Op op = Op::sum) { return start_all_reduce(data, data, op); }
  /// Root's `all`, cut by `counts` (the same on every rank; none: equal shares), to the ranks in order. `all` matters
  /// at the root only.
  Request start_scatter(ConstView all, std::span<const Index> counts, View mine, int root);
  /// The ranks' `mine` in order, `counts` elements from each, into root's `all`.
  Request start_gather(ConstView mine, View all, std::span<const Index> counts, int root);
  Request start_all_gather(ConstView mine, View all, std::span<const Index> counts = {});
  /// op over the ranks, of which each keeps its part.
  Request start_reduce_scatter(ConstView all, View mine, std::span<const Index> counts = {}, Op op = Op::sum);
  /// Messages between the same two ranks with the same tag (0 to kMaxTag) keep their order; lengths must agree. A send
  /// between threads, or to the own rank, never waits for the receiver.
  Request start_send(ConstView data, int dest, int tag = 0);
  Request start_recv(View data, int source, int tag = 0);
  Request start_barrier();

  void broadcast(View data, int root) { start_broadcast(data, root).wait(); }
  void reduce(ConstView in, View out, int root, Op op = Op::sum) { start_reduce(in, out, root, op).wait(); }
  void all_reduce(ConstView in, View out, Op op = Op::sum) { start_all_reduce(in, out, op).wait(); }
  void all_reduce(View data, Op op = Op::sum) { start_all_reduce(data, op).wait(); }
  void scatter(ConstView all, std::span<const Index> counts, View mine, int root) {
    start_scatter(all, counts, mine, root).wait();
  }
  void gather(ConstView mine, View all, std::span<const Index> counts, int root) {
    start_gather(mine, all, counts, root).wait();
  }
  void all_gather(ConstView mine, View all, std::span<const Index> counts = {}) {
    start_all_gather(mine, all, counts).wait();
  }
  void reduce_scatter(ConstView all, View mine, std::span<const Index> counts = {}, Op op = Op::sum) {
    start_reduce_scatter(all, mine, counts, op).wait();
  }
  void send(ConstView data, int dest, int tag = 0) { start_send(data, dest, tag).wait(); }
  void recv(View data, int source, int tag = 0) { start_recv(data, source, tag).wait(); }
  void barrier() { start_barrier().wait(); }

  /// Collective: a group of the ranks that gave the same color, ordered by (key, rank).
  virtual std::shared_ptr<Communicator> split(int color, int key) = 0;
  /// Collective: a group of the same ranks, whose calls and notices are its own: what becomes of it does not concern
  /// this one. (The failures of this one concern it.)
  virtual std::shared_ptr<Communicator> duplicate() = 0;

  /// From now on this rank's sums and means of floating numbers in all_reduce() are made by `all_reduce`, which waits
  /// where the group's own only starts, and whose calls count in place of it; null: by the group's own. Inherited by
  /// groups split off later. While it runs, all_reduce() is the group's own.
  void use(std::shared_ptr<const AllReduce> all_reduce) { all_reduce_ = std::move(all_reduce); }
  /// The one in use; null for the group's own.
  const AllReduce* all_reduce_in_use() const { return all_reduce_.get(); }

  /// Tells the other ranks of this group, and of all groups split off it, without waiting for them. Not counted.
  virtual void notify(Notice notice, std::int64_t about = 0) = 0;
  /// The largest `about` of such notices so far, of this rank's own, too; -1 if there was none. Makes progress with
  /// what this rank has sent.
  virtual std::int64_t notified(Notice notice) = 0;
  /// Gives the notice that this rank has failed, or passes on which one had done so before.
  void fail();
  /// Throws RankFailed if a rank has died, Aborted if one has given the notice that it failed. Waits look themselves,
  /// 20 times a second at least.
  void check_others();

  // When a rank has died, every call of this group, of those split off or duplicated from it and of those that it was
  // split off or duplicated from throws RankFailed, under way or later. The ranks that are left can go on:

  /// Whether they can; else the death of a rank ends the job, and the calls below throw CommunicationError.
  virtual bool survives() const { return false; }
  /// Collective over the ranks of this group that live: the bits that all of them have given, the same on all of them.
  /// Those of a rank that dies meanwhile count or not. `patient`: waits longer than PDNN_TIMEOUT.
  virtual std::uint32_t agree(std::uint32_t bits, bool patient = false);
  /// Collective in the same way: a group of the ranks that live, in their order. Its notices are its own, and it hears
  /// of later deaths only.
  virtual std::shared_ptr<Communicator> shrink();

  /// This rank dies: a process by SIGKILL, a thread by throwing Died, which no other rank waits for.
  [[noreturn]] virtual void die();
  /// This thread, which is a rank, dies at its `calls`-th call from now on, of any group of several; 0: it does not.
  static void die_after(std::int64_t calls);
  /// One call less.
  void count_down();

  /// Tells where this rank is, for the message of a wait that lasts too long. Inherited by groups split off later.
  void at_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }

  /// Of all calls of this rank in this group so far; bytes count when a call starts.
  const Traffic& traffic() const { return traffic_; }

  // For waits outside of calls, in memory that ranks share:

  /// Seconds after which a wait has lasted too long.
  double timeout() const { return timeout_; }
  /// A wait lasted too long: ends the job, or releases the other ranks and throws CommunicationError.
  [[noreturn]] virtual void give_up(const std::string& message) = 0;
  /// This rank has read so many bytes that others wrote.
  void has_read(Index bytes) { count({.shared_bytes = bytes}); }
  /// "all_reduce: no answer from ranks 1, 3 for 60 s (rank 0 waits at step 812); see PDNN_TIMEOUT", and a line about
  /// each rank that is missing. `silent`: where the record does not name them. Aborted if another rank says it.
  std::string time_out_message(const char* call, const std::string& silent);

  // The record of this rank's calls:

  /// From now on the calls in this group, and in groups split off later, are kept. `id`: the same on all of its ranks.
  void record(std::shared_ptr<Recorder> recorder, std::uint64_t id);
  const RecordedGroup& recorded() const { return record_; }
  /// This rank makes no more calls, as those are told that wait for it.
  void end_record(const std::string& how) {
    if (record_.recorder()) record_.recorder()->ended(how);
  }
  /// For waits that have lasted so long, about 20 times a second: after PDNN_STALL_WARNING seconds one of the ranks
  /// that wait in the same call writes to standard error who is missing. CommunicationError if a rank for which this
  /// one waits has ended its program.
  void look_for_stall(double seconds, std::uint64_t entry);
  /// The ranks' calls at this collective one if they differ, a line each after a new line; else empty.
  std::string calls_side_by_side(std::uint64_t entry) const;

 protected:
  Communicator(int rank, int size);

  /// The part of check_others() that throws Aborted.
  static void check_failed(std::int64_t notice);
  /// The part of look_for_stall() that throws.
  void look_for_ended(double seconds, std::uint64_t entry);
  /// Of those that live: an agreement, on record beside the group's calls, of which the ranks may have made more or
  /// less.
  RecordedWait recorded_agreement();

  /// The step, the all-reduce and the record of the group that this one was split off by `color`.
  void inherit(const Communicator& other, int color);
  /// Throws RankFailed if a rank has died.
  virtual void check_living() {}
  /// In place of inherit(): the group of those who live, of which each may have made another number of calls.
  void survive(const Communicator& other);

  /// Starts a checked call; never waits. A default Request if it is done already.
  virtual Request start(const Call& call) = 0;
  /// Moves a call along; once it is done, or throws, the ticket is free again.
  virtual bool test(int ticket) = 0;
  /// This ticket will not be tested again. Returns the call if its memory may yet be used.
  virtual Call abandon(int ticket) = 0;
  /// A wait for this ticket lasted too long: gives up.
  [[noreturn]] virtual void time_out(int ticket, const char* call) = 0;

 private:
  friend class Request;
  Request begin(const Call& call);
  std::uint64_t enter(const Call& call);
  /// In a handler: throws again what a call threw, with the ranks' calls if these differ.
  [[noreturn]] void rethrow(std::uint64_t entry);
  void wait_for_the_end();
  void check(const Call& call) const;
  Index bytes_sent(const Call& call) const;
  bool made_outside(const Call& call) const;
  void make_outside(const Call& call);
  void count(const Traffic& more);

  threads::Mutex turn_;  // of threads to start calls and to look for their ends
  int rank_, size_;
  double timeout_;
  std::int64_t step_ = -1;  // unknown
  Traffic traffic_;
  std::shared_ptr<const AllReduce> all_reduce_;  // null: the group's own

  double stall_warning_;
  std::uint64_t warned_ = 0;  // the entry of the last wait that was told
  double looked_ = 0;         // seconds of a wait at the last look for ranks that have ended
  std::uint64_t vain_ = 0;    // the entry of the last wait for one
  int vain_looks_ = 0;        // in that wait
  RecordedGroup record_, agreements_;
};

/// The group of this rank alone.
std::shared_ptr<Communicator> make_self();

}  // namespace pdnn::comm
