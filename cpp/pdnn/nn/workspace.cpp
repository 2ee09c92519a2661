#include "pdnn/nn/workspace.hpp"

namespace pdnn::nn {

template <class T>
Workspace<T>::Workspace(const Network<T>& network, const Shape& in, Index capacity)
    : in_(in),
      out_(network.output_shape(in)),
      capacity_(capacity),
      x_(capacity * in.count()),
      values_(capacity * out_.count()),
      y_(capacity * out_.count()),
      dy_(capacity * out_.count()),
      classes_(capacity),
      rows_(2 * capacity) {
  const Sizes sizes = network.sizes(in);
  saved_ = Buffer<T>(sizes.saved + capacity * sizes.saved_row);
  scratch_ = Buffer<T>(sizes.scratch + capacity * sizes.scratch_row);
}

template <class T>
Index Workspace<T>::bytes(const Network<T>& network, const Shape& in, Index capacity) {
  const Sizes sizes = network.sizes(in);
  const Index row = in.count() + 3 * network.output_shape(in).count() + sizes.saved_row + sizes.scratch_row;
  return (sizes.saved + sizes.scratch + capacity * row) * Index{sizeof(T)} +
         capacity * Index{sizeof(std::int32_t) + 2 * sizeof(double)};
}

template <class T>
std::unique_ptr<Workspace<T>> WorkspaceStore<T>::take(const Network<T>& network, const Shape& in, Index rows) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& workspace) { return workspace->in() == in && workspace->capacity() >= rows; };
    if (const auto found = std::find_if(idle_.begin(), idle_.end(), fits); found != idle_.end()) {
      auto workspace = std::move(*found);
      idle_.erase(found);
      return workspace;
    }
  }
  return std::make_unique<Workspace<T>>(network, in, rows);
}

template <class T>
void WorkspaceStore<T>::give_back(std::unique_ptr<Workspace<T>> workspace) {
  const std::lock_guard lock(mutex_);
  constexpr std::size_t kMost = 16;
  if (idle_.size() == kMost) idle_.erase(idle_.begin());  // the one idle for longest
  idle_.push_back(std::move(workspace));
}

template class Workspace<float>;
template class Workspace<double>;
template class WorkspaceStore<float>;
template class WorkspaceStore<double>;

}  // namespace pdnn::nn
