#include "pdnn/comm/thread_group.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "pdnn/comm/living_threads.hpp"
#include "pdnn/comm/mailbox.hpp"
#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/comm/slot_pool.hpp"
#include "pdnn/comm/thread_collective.hpp"
#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::comm {

/// What the ranks of a group share.
struct ThreadGroup::State {
  /// The notices of a group and of all that were split off it; a duplicate hears those of its original, too.
  struct Notices {
    explicit Notices(std::shared_ptr<const Notices> original) : outer(std::move(original)) {}

    std::atomic<std::int64_t>& of(Notice notice) { return latest[static_cast<std::size_t>(notice)]; }
    void give(Notice notice, std::int64_t about) {
      std::int64_t before = of(notice).load(std::memory_order_relaxed);
      while (before < about && !of(notice).compare_exchange_weak(before, about, std::memory_order_acq_rel)) {
      }
    }
    std::int64_t heard(Notice notice) const {
      const std::int64_t own = latest[static_cast<std::size_t>(notice)].load(std::memory_order_acquire);
      return outer ? std::max(own, outer->heard(notice)) : own;
    }

    std::array<std::atomic<std::int64_t>, kNotices> latest{-1, -1};
    std::shared_ptr<const Notices> outer;
  };

  State(int ranks, std::shared_ptr<Notices> all, std::shared_ptr<LivingThreads> who)
      : size(ranks), notices(std::move(all)), living(std::move(who)) {}

  /// The meeting of the `number`-th collective call, opened by the first rank that comes to it.
  ThreadCollective& meeting(Index number);
  /// A rank has finished with it; the last one clears it for another call.
  void leave(Index number);
  /// The group of some ranks, made by the first of them that comes; the `number`-th call and the color tell it apart.
  std::shared_ptr<State> child(Index number, int color, const std::shared_ptr<Notices>& of_child,
                               const std::shared_ptr<LivingThreads>& who, std::size_t members);

  struct Open {
    Index number;
    int left;
    std::unique_ptr<ThreadCollective> meeting;
  };
  struct Child {
    int taken = 0;
    std::shared_ptr<State> state;
  };

  const int size;
  bool is_process = false;  // its only rank is no thread among others
  const std::shared_ptr<Notices> notices;
  const std::shared_ptr<LivingThreads> living;
  const std::shared_ptr<RecordedJob> record = std::make_shared<RecordedJob>();  // of the ranks of a job
  Mailbox mailbox;
  std::mutex mutex;
  std::vector<Open> open;
  std::vector<std::unique_ptr<ThreadCollective>> spare;
  std::map<std::pair<Index, int>, Child> children;
};

ThreadCollective& ThreadGroup::State::meeting(Index number) {
  const std::lock_guard lock(mutex);
  for (Open& other : open)
    if (other.number == number) return *other.meeting;
  if (spare.empty()) spare.push_back(std::make_unique<ThreadCollective>(size));
  open.push_back({number, 0, std::move(spare.back())});
  spare.pop_back();
  return *open.back().meeting;
}

void ThreadGroup::State::leave(Index number) {
  const std::lock_guard lock(mutex);
  const auto at = std::find_if(open.begin(), open.end(), [&](const Open& other) { return other.number == number; });
  if (++at->left < size) return;
  at->meeting->clear();
  spare.push_back(std::move(at->meeting));
  *at = std::move(open.back());
  open.pop_back();
}

std::shared_ptr<ThreadGroup::State> ThreadGroup::State::child(Index number, int color,
                                                              const std::shared_ptr<Notices>& of_child,
                                                              const std::shared_ptr<LivingThreads>& who,
                                                              std::size_t members) {
  const int child_size = static_cast<int>(members);
  const std::lock_guard lock(mutex);
  Child& child = children[{number, color}];
  if (!child.state) child.state = std::make_shared<State>(child_size, of_child, who);
  const std::shared_ptr<State> state = child.state;
  if (++child.taken == child_size) children.erase({number, color});
  return state;
}

namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup::State> group, int rank)
      : Communicator(rank, group->size), group_(std::move(group)) {}

  std::shared_ptr<Communicator> split(int color, int key) override;
  std::shared_ptr<Communicator> duplicate() override;
  void notify(Notice notice, std::int64_t about) override { group_->notices->give(notice, about); }
  std::int64_t notified(Notice notice) override { return group_->notices->heard(notice); }
  [[noreturn]] void give_up(const std::string& message) override {
    fail();
    throw CommunicationError(message);
  }
  bool survives() const override { return true; }
  std::uint32_t agree(std::uint32_t bits, bool patient) override { return meet(bits, patient, "agree").second.bits; }
  std::shared_ptr<Communicator> shrink() override;
  [[noreturn]] void die() override {
    if (group_->is_process) Communicator::die();
    group_->living->die(rank());
    throw Died();  // NOLINT(bugprone-std-exception-baseclass): nobody who handles errors shall handle it
  }

 private:
  struct Slot {
    Call call;
    std::vector<Index> counts;
    ThreadCollective* meeting = nullptr;  // null: a recv
    Index number = 0;                     // of the collective call
    Address address;                      // of the message
    Index looked = -1;                    // the mailbox's count at the last look
  };

  Request start(const Call& call) override;
  bool test(int ticket) override;
  Call abandon(int ticket) override;
  [[noreturn]] void time_out(int ticket, const char* call) override;
  void check_living() override { group_->living->check(); }

  /// Waits for those that live; the number of the meeting, and what they agree on.
  std::pair<Index, LivingThreads::Agreement> meet(std::uint32_t bits, bool patient, const char* call);

  std::shared_ptr<ThreadGroup::State> group_;
  SlotPool<Slot> slots_;
  Index calls_ = 0;                                       // collective ones so far
  Index meetings_ = 0;                                    // of those that live
  std::map<std::pair<int, int>, Index> sent_, received_;  // messages so far, by (peer, tag)
};

Request ThreadCommunicator::start(const Call& call) {
  check_others();
  if (call.kind == Kind::send) {
    group_->mailbox.put({rank(), call.peer, call.tag, sent_[{call.peer, call.tag}]++}, call.in);
    return {};
  }
  const int ticket = slots_.take();
  Slot& slot = slots_[ticket];
  slot.call = call;
  slot.counts.assign(call.counts.begin(), call.counts.end());
  slot.call.counts = slot.counts;
  slot.meeting = nullptr;
  slot.looked = -1;
  if (call.kind == Kind::recv) {
    slot.address = {call.peer, rank(), call.tag, received_[{call.peer, call.tag}]++};
  } else {
    slot.number = calls_++;
    slot.meeting = &group_->meeting(slot.number);
    slot.meeting->post(rank(), call);
  }
  return {this, ticket};
}

bool ThreadCommunicator::test(int ticket) {
  Slot& slot = slots_[ticket];
  try {
    if (slot.meeting) {
      if (!slot.meeting->complete()) {
        check_others();
        return false;
      }
      slot.meeting->deliver(rank(), slot.call);
    } else {
      const Index count = group_->mailbox.count();
      const bool news = count != std::exchange(slot.looked, count);
      if (!news || !group_->mailbox.take(slot.address, slot.call.out)) {
        check_others();
        return false;
      }
    }
  } catch (...) {
    abandon(ticket);
    throw;
  }
  abandon(ticket);
  return true;
}

Call ThreadCommunicator::abandon(int ticket) {
  if (slots_[ticket].meeting) group_->leave(slots_[ticket].number);
  slots_.give_back(ticket);
  return {};
}

void ThreadCommunicator::time_out(int ticket, const char* call) {
  const Slot& slot = slots_[ticket];
  const std::string silent = slot.meeting ? slot.meeting->missing() : message("rank ", slot.address.from);
  give_up(time_out_message(call ? call : name(slot.call.kind), silent));
}

std::shared_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  require(color >= 0, "split: color ", color, " is negative");
  const std::array<std::int32_t, 2> mine{color, key};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(size()));
  const Index number = calls_;
  all_gather(std::span(mine), std::span(all));
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int rank = 0; rank < size(); ++rank) {
    const std::int32_t* other = &all[2 * static_cast<std::size_t>(rank)];
    if (other[0] == color) members.emplace_back(other[1], rank);
  }
  std::ranges::sort(members);
  std::vector<int> ranks(members.size());
  std::ranges::transform(members, ranks.begin(), [](const auto& member) { return member.second; });
  const auto own = static_cast<int>(std::ranges::find(ranks, this->rank()) - ranks.begin());
  const auto state = group_->child(number, color, group_->notices, group_->living->part(ranks), ranks.size());
  auto part = std::make_shared<ThreadCommunicator>(state, own);
  part->inherit(*this, color);
  return part;
}

std::shared_ptr<Communicator> ThreadCommunicator::duplicate() {
  const Index number = calls_;
  barrier();
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  const auto notices = std::make_shared<ThreadGroup::State::Notices>(group_->notices);
  const auto state = group_->child(number, 0, notices, group_->living->part(all), all.size());
  auto same = std::make_shared<ThreadCommunicator>(state, rank());
  same->inherit(*this, -1);
  return same;
}

std::pair<Index, LivingThreads::Agreement> ThreadCommunicator::meet(std::uint32_t bits, bool patient,
                                                                    const char* call) {
  constexpr auto kNap = std::chrono::milliseconds(1);  // of who waits for long
  const Index number = meetings_++;
  group_->living->come(number, rank(), bits);
  for (Waiting waiting;; waiting.pause()) {
    if (auto agreement = group_->living->take(number)) return {number, std::move(*agreement)};
    check_failed(notified(Notice::failed));
    if (!patient && waiting.seconds() > timeout()) give_up(time_out_message(call, group_->living->missing(number)));
    if (waiting.seconds() > 1) std::this_thread::sleep_for(kNap);
  }
}

std::shared_ptr<Communicator> ThreadCommunicator::shrink() {
  constexpr int kNoColor = -1;
  const auto [number, agreement] = meet(0, false, "shrink");
  const std::vector<int>& living = agreement.living;
  const auto state = group_->child(number, kNoColor, std::make_shared<ThreadGroup::State::Notices>(nullptr),
                                   group_->living->left(agreement), living.size());
  const auto own = static_cast<int>(std::ranges::find(living, rank()) - living.begin());
  auto left = std::make_shared<ThreadCommunicator>(state, own);
  left->survive(*this);
  return left;
}

}  // namespace

ThreadGroup::ThreadGroup(int size) : size_(size) {
  require(size >= 1, "ThreadGroup: size ", size, "; a group has at least one rank");
  state_ =
      std::make_shared<State>(size, std::make_shared<State::Notices>(nullptr), std::make_shared<LivingThreads>(size));
}

std::shared_ptr<Communicator> ThreadGroup::communicator(int rank) const {
  require(rank >= 0 && rank < size_, "ThreadGroup: rank ", rank, " is not one of the ", size_, " ranks");
  auto comm = std::make_shared<ThreadCommunicator>(state_, rank);
  if (size_ > 1) comm->record(std::make_shared<Recorder>(state_->record, rank, size_), 2);
  return comm;
}

void ThreadGroup::abort(std::optional<int> rank) const { state_->notices->give(Notice::failed, rank ? 1 + *rank : 0); }

std::shared_ptr<Communicator> make_self() {
  const auto notices = std::make_shared<ThreadGroup::State::Notices>(nullptr);
  const auto alone = std::make_shared<ThreadGroup::State>(1, notices, std::make_shared<LivingThreads>(1));
  alone->is_process = true;
  return std::make_shared<ThreadCommunicator>(alone, 0);
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& f) {
  const ThreadGroup group(ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  // Kept until all have returned, so that those who wait for one of them know its group.
  std::vector<std::shared_ptr<Communicator>> all(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  const auto join = [&] {
    for (std::thread& thread : threads) thread.join();
  };
  for (int rank = 0; rank < ranks; ++rank) try {
      threads.emplace_back([&, rank] {
        try {
          std::shared_ptr<Communicator>& comm = all[static_cast<std::size_t>(rank)];
          comm = group.communicator(rank);
          f(*comm);
          comm->end_record("has returned");
        } catch (const Died&) {  // NOLINT(bugprone-empty-catch): no error of the ranks that are left
        } catch (const Aborted&) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
          group.abort();
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
          group.abort(rank);
        }
      });
    } catch (const std::exception& error) {
      group.abort();
      join();
      threads::throw_refused(message("run_ranks: the thread of rank ", rank), ranks, error);
    }
  join();
  threads::rethrow_first(errors);
}

}  // namespace pdnn::comm
