#pragma once
/// Ranks as threads whose results are looked at afterwards: Boost.Test's macros are for one thread.
#include <thread>
#include <type_traits>
#include <vector>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::tests {

/// What train(communicator) returns on each rank. The first real error releases the other ranks and comes out.
template <class Train>
auto on_ranks(int ranks, Train train) {
  using Outcome = decltype(train(std::shared_ptr<comm::Communicator>()));
  using Own = std::conditional_t<std::is_same_v<Outcome, bool>, char, Outcome>;  // a vector of bool has eight in a byte
  std::vector<Own> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::exception_ptr> errors(outcomes.size());
  const comm::ThreadGroup group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, own = static_cast<std::size_t>(rank), rank] {
      try {
        outcomes[own] = train(group.communicator(rank));
      } catch (...) {
        errors[own] = std::current_exception();
        group.abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
  pdnn::threads::rethrow_first(errors);
  return outcomes;
}

}  // namespace pdnn::tests
