#pragma once
/// LivingThreads: which ranks of a group of threads have died, and what those that live agree on.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pdnn/core/types.hpp"

namespace pdnn::comm {

class LivingThreads {
 public:
  /// What the ranks of a group that live have agreed on.
  struct Agreement {
    std::uint32_t bits = ~std::uint32_t{0};  ///< given by all of them
    std::vector<int> living{};               ///< in order
    int deaths = 0;                          ///< known when it was made
  };

  /// All of them live; nobody else has heard of them.
  explicit LivingThreads(int ranks);
  /// Those of these ranks, in this order. They hear of deaths in all of this group.
  std::shared_ptr<LivingThreads> part(const std::vector<int>& ranks) const;
  /// Those that lived when they agreed. They hear of later deaths among themselves.
  std::shared_ptr<LivingThreads> left(const Agreement& agreement) const;

  void die(int rank);
  /// Throws RankFailed if anybody has died of whom these ranks hear.
  void check() const;

  /// A rank comes to the `number`-th agreement.
  void come(Index number, int rank, std::uint32_t bits);
  /// Once every rank that lives has come. Each of them takes it once.
  std::optional<Agreement> take(Index number);
  /// "ranks 1, 3": those that live and have not come.
  std::string missing(Index number);

 private:
  /// Of all groups of threads that began as one.
  struct Deaths {
    explicit Deaths(int ranks) : dead(static_cast<std::size_t>(ranks)) {}

    bool of(int member) const { return dead[static_cast<std::size_t>(member)].load(); }

    std::vector<std::atomic<bool>> dead;
    std::atomic<int> count{0};
  };
  /// Those who hear of one another's deaths.
  struct Family {
    std::vector<int> members;
    int known;  // deaths before it was made: none of a member
  };
  struct Meeting {
    std::map<int, std::uint32_t> given;
    std::optional<Agreement> agreement{};
    std::size_t taken = 0;
  };

  LivingThreads(std::shared_ptr<Deaths> deaths, std::shared_ptr<const Family> family, std::vector<int> members)
      : deaths_(std::move(deaths)), family_(std::move(family)), members_(std::move(members)) {}
  bool dead(int rank) const { return deaths_->of(members_[static_cast<std::size_t>(rank)]); }

  std::shared_ptr<Deaths> deaths_;
  std::shared_ptr<const Family> family_;
  std::vector<int> members_;  // of this group, as deaths are counted
  std::mutex mutex_;
  std::map<Index, Meeting> meetings_;
};

}  // namespace pdnn::comm
