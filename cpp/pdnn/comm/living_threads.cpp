#include "pdnn/comm/living_threads.hpp"

#include <numeric>

#include "pdnn/comm/rank_failed.hpp"

namespace pdnn::comm {

LivingThreads::LivingThreads(int ranks) : deaths_(std::make_shared<Deaths>(ranks)) {
  members_.resize(static_cast<std::size_t>(ranks));
  std::iota(members_.begin(), members_.end(), 0);
  family_ = std::make_shared<Family>(members_, 0);
}

std::shared_ptr<LivingThreads> LivingThreads::part(const std::vector<int>& ranks) const {
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(members_[static_cast<std::size_t>(rank)]);
  return std::shared_ptr<LivingThreads>(new LivingThreads(deaths_, family_, std::move(members)));
}

std::shared_ptr<LivingThreads> LivingThreads::left(const Agreement& agreement) const {
  const std::shared_ptr<LivingThreads> others = part(agreement.living);
  others->family_ = std::make_shared<Family>(others->members_, agreement.deaths);
  return others;
}

void LivingThreads::die(int rank) {
  deaths_->dead[static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)])].store(true);
  deaths_->count.fetch_add(1);
}

void LivingThreads::check() const {
  if (deaths_->count.load(std::memory_order_acquire) == family_->known) return;
  std::vector<int> dead;
  for (std::size_t rank = 0; rank < family_->members.size(); ++rank)
    if (deaths_->of(family_->members[rank])) dead.push_back(static_cast<int>(rank));
  if (!dead.empty()) throw RankFailed(std::move(dead));
}

void LivingThreads::come(Index number, int rank, std::uint32_t bits) {
  const std::lock_guard lock(mutex_);
  meetings_[number].given[rank] = bits;
}

std::optional<LivingThreads::Agreement> LivingThreads::take(Index number) {
  const std::lock_guard lock(mutex_);
  Meeting& meeting = meetings_[number];
  if (!meeting.agreement) {
    Agreement agreement{.deaths = deaths_->count.load()};  // before looking who lives
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
      if (dead(rank)) continue;
      const auto given = meeting.given.find(rank);
      if (given == meeting.given.end()) return std::nullopt;
      agreement.bits &= given->second;
      agreement.living.push_back(rank);
    }
    meeting.agreement = std::move(agreement);
  }
  Agreement agreement = *meeting.agreement;
  if (++meeting.taken == agreement.living.size()) meetings_.erase(number);
  return agreement;
}

std::string LivingThreads::missing(Index number) {
  const std::lock_guard lock(mutex_);
  std::string ranks;
  int count = 0;
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank)
    if (!dead(rank) && !meetings_[number].given.contains(rank)) ranks += message(count++ == 0 ? " " : ", ", rank);
  return (count == 1 ? "rank" : "ranks") + ranks;
}

}  // namespace pdnn::comm
