#include "pdnn/engine/leaf_gradients.hpp"

#include <array>
#include <limits>

#include "pdnn/kernels/table.hpp"

namespace pdnn::engine {

template <class T>
LeafGradients<T>::LeafGradients(Index elements, Index leaves) {
  const auto bits = static_cast<std::size_t>(std::bit_width(static_cast<std::size_t>(leaves)));
  while (waiting_.size() + 1 < bits) waiting_.emplace_back(elements);  // as many as a number below `leaves` has ones
}

template <class T>
void LeafGradients<T>::take(Index leaf, AlignedArray<T>& from, T* sum) {
  const int depth = std::popcount(static_cast<std::size_t>(leaf));
  if (depth == 0)
    std::copy_n(from.data(), from.size(), sum);
  else
    std::swap(from, waiting_[static_cast<std::size_t>(depth) - 1]);
}

template <class T>
void LeafGradients<T>::join(const Member& member, Index leaf, Index leaves, Range slice, T* sum) {
  const Range mine = member.range(slice.size());
  const Index at = slice.begin + mine.begin;
  int depth = std::popcount(static_cast<std::size_t>(leaf));
  for (int joins = joins_after(leaf, leaves); joins > 0; --joins, --depth) {
    T* const left = place(depth - 1, sum) + at;
    kernels::table<T>().add(Part{}, mine.size(), left, place(depth, sum) + at, left);
  }
}

nn::LossValue sum_of_leaves(std::span<const nn::LossValue> leaves) {
  std::array<nn::LossValue, std::numeric_limits<std::size_t>::digits + 1> sums{};
  const auto at = [&](Index place) -> nn::LossValue& { return sums[static_cast<std::size_t>(place)]; };
  add_leaves(
      std::ssize(leaves), [&](Index leaf, Index place) { at(place) = leaves[static_cast<std::size_t>(leaf)]; },
      [&](Index to, Index from) {
        at(to).value += at(from).value;
        at(to).correct += at(from).correct;
      });
  return at(0);
}

template class LeafGradients<float>;
template class LeafGradients<double>;

}  // namespace pdnn::engine
