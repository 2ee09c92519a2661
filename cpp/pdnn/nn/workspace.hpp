#pragma once
/// Workspace: the memory of one pass in flight.
#include "pdnn/core/memory.hpp"
#include "pdnn/nn/network.hpp"
#include "pdnn/threads/mutex.hpp"

namespace pdnn::nn {

/// What passes a workspace is for: there and back, or forward_only ones, which need less.
enum class Use { training, forward };

/// Memory of a sparse batch, which grows as batches need it.
template <class T>
struct SparseRoom {
  struct Lines {
    std::vector<Index> starts;
    std::vector<std::int32_t> at;
    std::vector<T> values;

    void clear();
    /// The same values by their `columns` columns, of lines that are rows.
    void assign_transposed(const Lines& rows, Index columns);
    typename SparseBatch<T>::Lines view() const { return {starts.data(), at.data(), values.data()}; }
  };
  Lines rows, columns;
  SparseBatch<T> batch;  ///< what is in it
};

template <class T>
class Workspace {
 public:
  /// For batches of up to `capacity` rows of `in`, through a network bound to that shape.
  Workspace(const Network<T>& network, const Shape& in, Index capacity, Use use = Use::training);

  /// The memory that such a workspace takes.
  static Index bytes(const Network<T>& network, const Shape& in, Index capacity, Use use = Use::training);
  /// How many rows a forward pass takes at once, of a batch of so many: 256, or fewer where these have much memory.
  static Index rows_at_once(const Network<T>& network, const Shape& in, Index rows);
  /// Makes room for passes over leaves of batches that are cut into so many.
  void make_leaf_room(Index leaves);

  Index bytes() const { return bytes_; }
  Use use() const { return use_; }
  Index capacity() const { return capacity_; }
  const Shape& in() const { return in_; }
  /// Where a batch may be gathered to.
  Tensor<T> x(Index rows) { return {x_.data(), rows, in_}; }
  SparseRoom<T>& sparse() { return sparse_; }
  std::int32_t* classes() { return classes_.data(); }
  /// Target rows as wide as the output.
  T* values() { return values_.data(); }
  double* weights() { return weights_.data(); }
  Tensor<T> y(Index rows) { return {y_.data(), rows, out_}; }
  Tensor<T> dy(Index rows) { return {dy_.data(), rows, out_}; }
  double* rows() { return rows_.data(); }
  Vars<T> vars(std::span<const T> params, std::span<const T> buffers, const FusedUpdate<T>* updates,
               std::span<T> more_nodes = {}) {
    return {params, buffers, saved_.span(), scratch_.span(), updates, leaf_room_.span(), more_nodes};
  }
  /// What the last pass has for commit().
  std::span<const T> saved() const { return saved_.span(); }

 private:
  Shape in_, out_;
  Index capacity_, bytes_;
  Use use_;
  Sizes sizes_;
  AlignedArray<T> x_, values_, y_, dy_, saved_, scratch_, leaf_room_;
  AlignedArray<std::int32_t> classes_;
  AlignedArray<double> rows_, weights_;
  SparseRoom<T> sparse_;
};

/// Workspaces kept between calls that come from any number of threads: the one used last, and as many more as fit into
/// 64 MiB with it.
template <class T>
class WorkspaceStore {
 public:
  /// One for `rows` rows, made if none of those at hand fits.
  std::unique_ptr<Workspace<T>> take(const Network<T>& network, const Shape& in, Index rows, Use use = Use::training);
  void give_back(std::unique_ptr<Workspace<T>> workspace);

 private:
  static constexpr Index kMostBytes = Index{64} << 20;

  threads::Mutex mutex_;
  std::vector<std::unique_ptr<Workspace<T>>> idle_;  // the one idle for longest first
};

}  // namespace pdnn::nn
