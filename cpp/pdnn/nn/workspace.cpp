#include "pdnn/nn/workspace.hpp"

#include <numeric>

namespace pdnn::nn {

namespace {

template <class T>
Sizes sizes_of(const Network<T>& network, const Shape& in, Use use) {
  return use == Use::forward ? network.forward_sizes() : network.sizes(in);
}

constexpr Index kMost = Index{1} << 59U;                              // elements whose bytes are still a number
constexpr Index kCounts = sizeof(std::int32_t) + 3 * sizeof(double);  // bytes of a row beside its elements

template <class T>
Index elements_of_row(const Network<T>& network, const Shape& in, const Sizes& sizes, Use use) {
  const Index outputs = use == Use::forward ? 2 : 3;
  return in.count() + outputs * network.output_shape(in).count() + sizes.saved_row + sizes.scratch_row;
}

}  // namespace

template <class T>
void SparseRoom<T>::Lines::clear() {
  starts.assign(1, 0);
  at.clear();
  values.clear();
}

template <class T>
void SparseRoom<T>::Lines::assign_transposed(const Lines& rows, Index columns) {
  // The starts are two places further on while values are counted, and one while they are put in place.
  starts.assign(static_cast<std::size_t>(columns) + 2, 0);
  for (const std::int32_t column : rows.at) ++starts[static_cast<std::size_t>(column) + 2];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  at.resize(rows.at.size());
  values.resize(rows.at.size());
  for (std::size_t row = 0; row + 1 < rows.starts.size(); ++row)
    for (auto from = static_cast<std::size_t>(rows.starts[row]); from < static_cast<std::size_t>(rows.starts[row + 1]);
         ++from) {
      const auto to = static_cast<std::size_t>(starts[static_cast<std::size_t>(rows.at[from]) + 1]++);
      at[to] = static_cast<std::int32_t>(row);
      values[to] = rows.values[from];
    }
}

template <class T>
Workspace<T>::Workspace(const Network<T>& network, const Shape& in, Index capacity, Use use)
    : in_(in),
      out_(network.output_shape(in)),
      capacity_(capacity),
      bytes_(bytes(network, in, capacity, use)),
      use_(use),
      sizes_(sizes_of(network, in, use)),
      x_(capacity * in.count(), Contents::anything),
      values_(capacity * out_.count()),
      y_(capacity * out_.count()),
      dy_(use == Use::forward ? 0 : capacity * out_.count()),
      classes_(capacity),
      rows_(2 * capacity),
      weights_(capacity) {
  saved_ = AlignedArray<T>(sizes_.saved + capacity * sizes_.saved_row);
  scratch_ = AlignedArray<T>(sizes_.scratch + capacity * sizes_.scratch_row);
}

template <class T>
void Workspace<T>::make_leaf_room(Index leaves) {
  const Index room = sizes_.leaf_room(leaves);
  if (leaf_room_.size() < room) leaf_room_ = AlignedArray<T>(room, Contents::anything);
}

template <class T>
Index Workspace<T>::bytes(const Network<T>& network, const Shape& in, Index capacity, Use use) {
  const Sizes sizes = sizes_of(network, in, use);
  const Index row = elements_of_row(network, in, sizes, use);
  if (capacity > kMost / std::max<Index>(row, 1)) throw OutOfMemory(kMost, sizeof(T));
  return (sizes.saved + sizes.scratch + capacity * row) * Index{sizeof(T)} + capacity * kCounts;
}

template <class T>
Index Workspace<T>::rows_at_once(const Network<T>& network, const Shape& in, Index rows) {
  constexpr Index kMostRows = 256, kMostBytes = Index{256} << 20;
  if (rows <= 1) return 1;
  const Index row = std::min(elements_of_row(network, in, network.forward_sizes(), Use::forward), kMostBytes);
  return std::clamp<Index>(std::min(rows, kMostBytes / (row * Index{sizeof(T)} + kCounts)), 1, kMostRows);
}

template <class T>
std::unique_ptr<Workspace<T>> WorkspaceStore<T>::take(const Network<T>& network, const Shape& in, Index rows, Use use) {
  {
    const auto lock = threads::lock_list(mutex_, idle_);
    auto found = idle_.end();  // the smallest that fits
    for (auto at = idle_.begin(); at != idle_.end(); ++at)
      if ((*at)->in() == in && (*at)->use() == use && (*at)->capacity() >= rows &&
          (found == idle_.end() || (*at)->capacity() < (*found)->capacity()))
        found = at;
    // A large one for a few rows is left to go as others come.
    if (found != idle_.end() && ((*found)->bytes() <= kMostBytes || (*found)->capacity() / 4 <= rows)) {
      auto workspace = std::move(*found);
      idle_.erase(found);
      return workspace;
    }
  }
  return std::make_unique<Workspace<T>>(network, in, rows, use);
}

template <class T>
void WorkspaceStore<T>::give_back(std::unique_ptr<Workspace<T>> workspace) {
  const auto lock = threads::lock_list(mutex_, idle_);
  idle_.push_back(std::move(workspace));
  Index bytes = 0;
  for (const auto& each : idle_) bytes += each->bytes();
  auto first = idle_.begin();
  for (; bytes > kMostBytes && first + 1 != idle_.end(); ++first) bytes -= (*first)->bytes();
  idle_.erase(idle_.begin(), first);
}

template struct SparseRoom<float>;
template struct SparseRoom<double>;
template class Workspace<float>;
template class Workspace<double>;
template class WorkspaceStore<float>;
template class WorkspaceStore<double>;

}  // namespace pdnn::nn
