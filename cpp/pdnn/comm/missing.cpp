#include "pdnn/comm/missing.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <set>

#include "pdnn/comm/communicator.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

/// One rank's log at one moment.
struct Seen {
  int rank = 0;
  const Log* log = nullptr;
  std::map<std::uint64_t, Entry> entries;  // by their numbers
  std::uint64_t waits = 0;

  const Entry* last() const { return entries.empty() ? nullptr : &entries.rbegin()->second; }
  const Entry* at(std::uint64_t number) const {
    const auto found = entries.find(number);
    return found == entries.end() ? nullptr : &found->second;
  }
  const Entry* collective(std::uint64_t group, Index number) const {
    for (const auto& [own, entry] : entries)
      if (entry.group == group && entry.number == number) return &entry;
    return nullptr;
  }
};

/// Whether a rank of a job of this size can have written it: a file may hold anything.
bool sound(const Entry& entry, int size) {
  constexpr Index kMost = Index{1} << 56;  // elements
  const bool call = entry.kind <= static_cast<std::uint8_t>(Kind::recv) || entry.kind == kMeeting;
  const bool group = entry.size >= 1 && entry.size <= size && entry.rank >= 0 && entry.rank < entry.size;
  const bool values = entry.op <= static_cast<std::uint8_t>(Op::min) &&
                      entry.dtype <= static_cast<std::uint8_t>(DType::uint8) && entry.count >= 0 &&
                      entry.count <= kMost && entry.number >= 0;
  const bool times = entry.entered >= 0 && entry.left >= 0;
  return call && group && values && times && entry.what.back() == 0 && entry.part.back() == 0 && entry.file.back() == 0;
}

Seen read_log(const Log& log) {
  Seen seen{.rank = log.rank, .log = &log, .entries = {}, .waits = log.waits.load()};
  for (const Log::Slot& slot : log.slots) {
    const std::uint64_t number = slot.number.load(std::memory_order_acquire);
    if (number == 0) continue;
    const Entry entry = slot.read();
    if (slot.number.load(std::memory_order_relaxed) == number && sound(entry, log.size)) seen.entries[number] = entry;
  }
  return seen;
}

// ---- words

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  char* const end = text.data() + text.size();
  const auto digits = std::to_chars(text.data(), end, seconds, std::chars_format::fixed, seconds < 10 ? 1 : 0);
  return message(std::string_view(text.data(), digits.ptr), " s");
}

std::string since(std::int64_t then) {
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  return seconds_text(1e-9 * static_cast<double>(now - then));
}

std::string name_of(const Entry& entry) {
  if (entry.announces) return entry.what.data();
  return entry.kind == kMeeting ? "meeting in shared memory" : name(static_cast<Kind>(entry.kind));
}

/// "#1842 all_reduce (bucket 2)".
std::string title(const Entry& entry) {
  std::string name = name_of(entry);
  if (entry.announces) name.resize(std::min(name.size(), name.find('(')));  // without its arguments
  std::string text = entry.number > 0 ? message("#", entry.number, " ", name) : name;
  std::string label = entry.announces ? "" : entry.what.data();
  if (entry.index >= 0) label += message(label.empty() ? "" : " ", entry.index);
  if (entry.part[0]) label += message(label.empty() ? "" : " of ", entry.part.data());
  if (entry.of >= 0) label += message(" ", entry.of);
  if (entry.step >= 0) label += message(label.empty() ? "" : ", ", "step ", entry.step);
  return label.empty() ? text : message(text, " (", label, ")");
}

std::string place(const Entry& entry) {
  return entry.file[0] ? message(" at ", entry.file.data(), ":", entry.line) : "";
}

bool is_message(const Entry& entry) {
  return entry.kind == static_cast<std::uint8_t>(Kind::send) || entry.kind == static_cast<std::uint8_t>(Kind::recv);
}

/// "all_reduce(1000 float32, sum), 4000 bytes": what must be the same on all ranks.
std::string arguments(const Entry& entry) {
  const auto kind = static_cast<Kind>(entry.kind);
  if (entry.announces || entry.kind == kMeeting || kind == Kind::barrier) return name_of(entry);
  const auto dtype = static_cast<DType>(entry.dtype);
  const bool sums = kind == Kind::reduce || kind == Kind::all_reduce || kind == Kind::reduce_scatter;
  const bool rooted = kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::scatter || kind == Kind::gather;
  return message(name(kind), "(", entry.count, " ", name(dtype), sums ? ", " : "",
                 sums ? name(static_cast<Op>(entry.op)) : "", rooted ? message(", root ", entry.peer) : "", "), ",
                 entry.count * size_of(dtype), " bytes");
}

bool same_call(const Entry& a, const Entry& b) {
  const bool uneven =
      !a.announces &&
      (a.kind == static_cast<std::uint8_t>(Kind::gather) || a.kind == static_cast<std::uint8_t>(Kind::all_gather) ||
       a.kind == static_cast<std::uint8_t>(Kind::scatter) || a.kind == static_cast<std::uint8_t>(Kind::reduce_scatter));
  return a.kind == b.kind && a.announces == b.announces && (!a.announces || a.what == b.what) && a.op == b.op &&
         a.dtype == b.dtype && a.peer == b.peer && (uneven || a.count == b.count);
}

struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  }
};
using Names = std::set<std::string, ByNumber>;  // of ranks

/// "rank 1", "ranks 0, 2".
std::string ranks_text(const Names& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  const char* between = " ";
  for (const std::string& rank : ranks) {
    text += between + rank;
    between = ", ";
  }
  return text;
}

/// Whether a rank that is in a wait will see what it waits for.
bool goes_on(const std::string& doing) { return doing == "sleeping" || doing.starts_with("running"); }

// ---- a job

class Job {
 public:
  Job(const Logs& logs, bool in_files) : in_files_(in_files) {
    for (const auto& log : logs) {
      ranks_.push_back(read_log(**log));
      Seen& seen = ranks_.back();
      for (const Log::Group& group : (*log)->groups)
        if (const std::uint64_t id = group.id.load(); id > 1) members_[id][group.rank.load()] = &log - logs.data();
      for (const auto& [number, entry] : seen.entries) members_[entry.group][entry.rank] = &log - logs.data();
    }
  }

  const std::vector<Seen>& ranks() const { return ranks_; }
  const Seen* rank(int number) const {
    const auto found = std::ranges::find(ranks_, number, &Seen::rank);
    return found == ranks_.end() ? nullptr : &*found;
  }

  /// About a wait: names go to `missing`, sentences to `text`.
  void explain(const Seen& who, const Entry& entry, Names& missing, std::string& text);
  std::string side_by_side(std::uint64_t group, Index number) const;
  /// The earliest call before this one that is on record and not the same, or not from the same line; 0: none.
  Index first_difference(const Entry& entry) const;
  std::string doing(const Seen& rank, int looks = 5) const;
  /// Whether one of those that were told has ended its program, or its process is gone.
  void add_ends(Missing& missing) const { missing.ended = ended_, missing.died = died_; }

 private:
  const Seen* member(std::uint64_t group, int rank) const {
    const auto found = members_.find(group);
    if (found == members_.end() || !found->second.contains(rank)) return nullptr;
    return &ranks_[static_cast<std::size_t>(found->second.at(rank))];
  }
  /// As the world counts, where that is known.
  std::string name_of_member(const Entry& entry, int rank) const;
  std::string in_group(const Entry& entry) const;
  void explain_unknown(const Names& unknown, std::string& text) const;
  /// What a missing rank did last, and what it is doing; follows it to those that it waits for.
  void tell(const Seen& rank, const std::string& what, std::string& text);

  bool in_files_;
  std::vector<Seen> ranks_;
  std::map<std::uint64_t, std::map<int, std::ptrdiff_t>> members_;
  std::set<int> told_;
  bool ended_ = false, died_ = false;
};

std::string Job::name_of_member(const Entry& entry, int rank) const {
  if (const Seen* seen = member(entry.group, rank)) return message(seen->rank);
  const bool world = !ranks_.empty() && ranks_.front().log->size == entry.size;
  return world ? message(rank) : message(rank, " of its group of ", entry.size);
}

/// Nothing for a group of all ranks.
std::string Job::in_group(const Entry& entry) const {
  if (ranks_.empty() || ranks_.front().log->size == entry.size) return "";
  Names names;
  for (int rank = 0; rank < entry.size; ++rank) names.insert(name_of_member(entry, rank));
  return message(" of ", ranks_text(names));
}

std::string Job::doing(const Seen& rank, int looks) const {
  if (std::string end = rank.log->how_it_ended(); !end.empty()) return end;
  Process process = rank.log->process;
  if (!in_files_) process.thread = rank.log->thread.load();
  return pdnn::comm::doing(process, looks);
}

void Job::tell(const Seen& rank, const std::string& what, std::string& text) {
  const Entry* const last = rank.last();
  const Entry* const waits = rank.at(rank.waits);
  std::string line = message("rank ", rank.rank, " ", what);
  const std::string now = doing(rank);
  ended_ |= rank.log->ended.load() != 0;
  died_ |= now.starts_with("died");
  if (waits && goes_on(now)) {
    text += message("\n  ", line, ": it waits in ", title(*waits), in_group(*waits), place(*waits), " for ",
                    since(waits->entered));
    Names others;
    explain(rank, *waits, others, text);
    return;
  }
  if (!last) {
    line += ", was not seen in any call";
  } else {
    const std::string when = last->left == 0 ? message("entered ", since(last->entered)) : since(last->left);
    line += message(", last seen", place(*last), " (", title(*last), ", ", when, " ago)");
  }
  text += message("\n  ", line, ", ", now);
}

void Job::explain_unknown(const Names& unknown, std::string& text) const {
  if (unknown.empty()) return;
  text += message("\n  nothing is known of ", ranks_text(unknown),
                  in_files_ ? ": on another machine, or without a record" : ": not begun, or ended");
}

void Job::explain(const Seen& who, const Entry& entry, Names& missing, std::string& text) {
  if (!told_.insert(who.rank).second) return;
  Names unknown;
  if (is_message(entry)) {
    missing.insert(name_of_member(entry, entry.peer));
    const bool sends = entry.kind == static_cast<std::uint8_t>(Kind::send);
    const Seen* const peer = member(entry.group, entry.peer);
    if (!peer) {
      unknown.insert(name_of_member(entry, entry.peer));
    } else if (!told_.contains(peer->rank)) {
      tell(*peer, message(sends ? "has not received the message" : "has not sent the message", " of tag ", entry.tag),
           text);
    }
    return explain_unknown(unknown, text);
  }
  bool differ = false;
  Names gone;  // who waited, too: perhaps the job ended them
  std::string of_gone;
  for (int other = 0; other < entry.size; ++other) {
    if (other == entry.rank) continue;
    const Seen* const seen = member(entry.group, other);
    if (!seen) {
      unknown.insert(name_of_member(entry, other));
      continue;
    }
    const Entry* const same = seen->collective(entry.group, entry.number);
    Index calls = 0;
    for (const auto& [number, each] : seen->entries)
      if (each.group == entry.group) calls = std::max(calls, each.number);
    for (const Log::Group& group : seen->log->groups)
      if (group.id.load() == entry.group) calls = std::max(calls, static_cast<Index>(group.calls.load()));
    if (calls < entry.number) {
      missing.insert(message(seen->rank));
      if (!told_.contains(seen->rank)) tell(*seen, message("never entered ", title(entry), in_group(entry)), text);
    } else if (same && !same_call(entry, *same)) {
      differ = true;
      missing.insert(message(seen->rank));
    } else if (same && same->left == 0 && seen->waits == 0 && !told_.contains(seen->rank)) {
      missing.insert(message(seen->rank));
      tell(*seen, message("has entered ", title(entry), ", and does not wait for it"), text);
    } else if (same && same->left == 0) {
      const std::string now = doing(*seen, 1);  // of hundreds, perhaps
      if (goes_on(now)) continue;               // it waits, too
      const bool died = now.starts_with("died");
      (died ? gone : missing).insert(message(seen->rank));
      (died ? of_gone : text) += message("\n  rank ", seen->rank, " waits in ", title(entry), place(*same), ", ", now);
    }
  }
  if (missing.empty() && unknown.empty()) {
    missing = gone;
    text += of_gone;
  }
  if (differ) {
    text += "\n  the ranks' calls differ:" + side_by_side(entry.group, entry.number);
  } else if (const Index first = first_difference(entry); first > 0) {
    text += "\n  the ranks' calls first differ here:" + side_by_side(entry.group, first);
  }
  if (!unknown.empty() && missing.empty()) missing = unknown;
  explain_unknown(unknown, text);
}

std::string Job::side_by_side(std::uint64_t group, Index number) const {
  std::vector<std::pair<const Entry*, Names>> kinds;
  for (const Seen& seen : ranks_) {
    const Entry* const entry = seen.collective(group, number);
    if (!entry) continue;
    const auto same = std::ranges::find_if(
        kinds, [&](const auto& kind) { return same_call(*kind.first, *entry) && place(*kind.first) == place(*entry); });
    if (same == kinds.end()) {
      kinds.push_back({entry, {message(seen.rank)}});
    } else {
      same->second.insert(message(seen.rank));
    }
  }
  if (kinds.size() < 2) return "";
  std::string text;
  for (const auto& [entry, ranks] : kinds)
    text += message("\n  ", ranks_text(ranks), ": #", number, " ", arguments(*entry), place(*entry));
  return text;
}

Index Job::first_difference(const Entry& entry) const {
  std::map<Index, const Entry*> first;  // by number: of any rank
  Index found = 0;
  for (const Seen& seen : ranks_)
    for (const auto& [number, own] : seen.entries) {
      if (own.group != entry.group || own.number == 0 || own.number >= entry.number) continue;
      const Entry* const other = first.try_emplace(own.number, &own).first->second;
      if (same_call(*other, own) && place(*other) == place(own)) continue;
      if (found == 0 || own.number < found) found = own.number;
    }
  return found;
}

}  // namespace

std::uint64_t wait_number(const Log& log, std::uint64_t entry) {
  const Entry waits = log.slots[entry % kEntries].read();
  if (is_message(waits)) return mixed(entry, static_cast<std::uint64_t>(log.rank));
  return mixed(waits.group, static_cast<std::uint64_t>(waits.number));
}

Missing who_is_missing(const Logs& logs, int rank, std::uint64_t entry, bool in_files) {
  Job job(logs, in_files);
  const Seen* const own = job.rank(rank);
  const Entry* const waits = own ? own->at(entry) : nullptr;
  if (!waits) return {};
  Names ranks;
  Missing missing{.call = title(*waits) + place(*waits), .ranks = {}, .sentences = {}};
  job.explain(*own, *waits, ranks, missing.sentences);
  if (!ranks.empty()) missing.ranks = ranks_text(ranks);
  job.add_ends(missing);
  return missing;
}

std::string calls_side_by_side(const Logs& logs, int rank, std::uint64_t entry) {
  const Job job(logs, true);
  const Seen* const own = job.rank(rank);
  const Entry* const call = own ? own->at(entry) : nullptr;
  return call && call->number > 0 ? job.side_by_side(call->group, call->number) : "";
}

std::string ranks_of_job(const Logs& logs) {
  const Job job(logs, true);
  std::string text;
  for (const Seen& seen : job.ranks()) {
    const Entry* const last = seen.last();
    const Entry* const waits = seen.at(seen.waits);
    const std::string now = job.doing(seen, waits ? 1 : 5);
    text += message("rank ", seen.rank, " of ", seen.log->size, ", process ", seen.log->process.number, ": ");
    if (!waits || !goes_on(now)) text += now + ", ";
    if (waits) {
      text += message("waits in ", title(*waits), place(*waits), ", entered ", since(waits->entered), " ago");
    } else if (last) {
      const std::string when = last->left == 0 ? message("entered ", since(last->entered)) : since(last->left);
      text += message("last call ", title(*last), place(*last), ", ", when, " ago");
    } else {
      text += "no call yet";
    }
    text += '\n';
  }
  return text;
}

std::string waits_of_job(const Logs& logs) {
  Job job(logs, true);
  std::string text;
  std::set<std::pair<std::uint64_t, Index>> explained;
  for (const Seen& seen : job.ranks()) {
    const Entry* const waits = seen.at(seen.waits);
    if (!waits || (!is_message(*waits) && !explained.emplace(waits->group, waits->number).second)) continue;
    Names ranks;
    std::string sentences;
    job.explain(seen, *waits, ranks, sentences);
    if (sentences.empty()) continue;
    text +=
        message("rank ", seen.rank, " waits for ", ranks.empty() ? "others" : ranks_text(ranks), ":", sentences, "\n");
  }
  return text;
}

}  // namespace pdnn::comm
