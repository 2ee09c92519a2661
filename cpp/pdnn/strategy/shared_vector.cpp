#include "pdnn/strategy/shared_vector.hpp"

#include <cstring>

#include "pdnn/core/errors.hpp"

namespace pdnn::strategy {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free, "a lock would be each process's own");
static_assert(std::atomic<Index>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

namespace {

constexpr Index kWord = sizeof(std::uint64_t);

/// Calls f(word, first element, bytes of elements in it) for all words of a range.
template <class T, class Each>
void each_word(std::uint64_t* words, Range range, Each&& each) {
  constexpr Index per_word = SharedVector<T>::kAlign;
  const Index whole = range.size() / per_word;
  std::uint64_t* const first = words + range.begin / per_word;
  for (Index i = 0; i < whole; ++i) each(std::atomic_ref(first[i]), i * per_word, std::size_t{kWord});
  if (const Index rest = range.size() - whole * per_word; rest > 0)
    each(std::atomic_ref(first[whole]), whole * per_word, static_cast<std::size_t>(rest) * sizeof(T));
}

}  // namespace

template <class T>
SharedVector<T>::SharedVector(comm::Communicator& comm, Index count)
    : memory_(comm::share(comm, Index{sizeof(Counters)} + (count + kAlign - 1) / kAlign * kWord)) {
  require(memory_ != nullptr,
          "Hogwild: the ranks share no memory: they are on several machines, or may not see one another's processes; ",
          "use ranks of one machine, or a strategy that sends, such as average:8");
  if (comm.rank() == 0) new (memory_->data()) Counters;
  comm.barrier();
  counters_ = std::launder(reinterpret_cast<Counters*>(memory_->data()));
  words_ = reinterpret_cast<std::uint64_t*>(memory_->data() + sizeof(Counters));
}

template <class T>
void SharedVector<T>::load(Range range, T* own) const {
  each_word<T>(words_, range, [own](std::atomic_ref<std::uint64_t> word, Index at, std::size_t bytes) {
    const std::uint64_t bits = word.load(std::memory_order_relaxed);
    std::memcpy(own + at, &bits, bytes);
  });
}

template <class T>
void SharedVector<T>::store(Range range, const T* own) {
  each_word<T>(words_, range, [own](std::atomic_ref<std::uint64_t> word, Index at, std::size_t bytes) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, own + at, bytes);
    word.store(bits, std::memory_order_relaxed);
  });
}

template class SharedVector<float>;
template class SharedVector<double>;

}  // namespace pdnn::strategy
