#pragma once
/// Source: raw samples and targets from which batches are gathered by index, converted on the way.
#include <optional>

#include "pdnn/data/augmentation.hpp"
#include "pdnn/kernels/products.hpp"
#include "pdnn/nn/model.hpp"

namespace pdnn::data {

using threads::Member;

/// Rows of which most elements are 0: `data` has the others, those of row r from starts[r] on to starts[r + 1], each
/// with its column (compressed sparse rows). Those of one place add up. Null: not these rows.
struct SparseRows {
  const Index* starts = nullptr;
  const std::int32_t* columns = nullptr;
};

/// Samples as they lie in memory; the value of an element is scale · raw + shift.
struct Samples {
  enum class Format { uint8, float32, float64 };
  const void* data = nullptr;
  Format format = Format::float32;
  Index count = 0;
  Index stride = 0;  ///< elements from one sample to the next
  Shape sample{};
  double scale = 1, shift = 0;
  SparseRows sparse{};  ///< of T, with neither format nor stride, scale and shift
};

template <class T>
struct Batch {
  Tensor<const T> x;
  nn::Target<T> target;
};

/// A view: the arrays belong to the caller.
template <class T>
class Source {
 public:
  Source(const Samples& samples, const nn::Target<T>& target);

  Index count() const { return samples_.count; }
  const Shape& sample() const { return samples_.sample; }

  /// What these rows count in the mean of a loss: their number, or the sum of their weights.
  double weight(const nn::Loss<T>& loss, std::span<const Index> rows) const;
  /// Whether it may be another than their number.
  bool weighs(const nn::Loss<T>& loss) const { return loss.weighs(target_); }
  /// Whether rows have weights of their own.
  bool weighted() const { return target_.weights != nullptr; }

  /// From now on samples, which are images, are changed as they are gathered.
  void augment(const PadCropFlip& how);

  /// The batch of these rows in the workspace's buffers, or in place where the array has it ready. Every member gathers
  /// its part; contains the barrier it needs. `sparse`: x may be Tensor::sparse, as it then is if few elements are not
  /// 0.
  Batch<T> gather(const Member& member, std::span<const Index> rows, nn::Workspace<T>& workspace,
                  bool sparse = false) const;
  /// The same for samples or targets alone, without the barrier.
  Tensor<const T> gather_x(Part part, std::span<const Index> rows, nn::Workspace<T>& workspace) const;
  nn::Target<T> gather_target(Part part, std::span<const Index> rows, nn::Workspace<T>& workspace) const;
  /// The batch of these rows in the workspace's buffers, also where the array has it ready.
  Batch<T> copy(std::span<const Index> rows, nn::Workspace<T>& workspace) const;
  /// This part of the samples of these rows. out: [rows, sample]
  void gather_samples(Part part, std::span<const Index> rows, T* out) const;
  /// What gather() will have this worker read for these rows.
  kernels::Upcoming upcoming(Part part, std::span<const Index> rows) const;
  /// Fetches these few samples, and their targets, towards this core.
  void fetch(std::span<const Index> rows) const;

 private:
  nn::Target<T> copy_target(Part part, std::span<const Index> rows, nn::Workspace<T>& workspace) const;
  void gather_sparse(Range part, std::span<const Index> rows, T* out) const;
  void gather_sparse(std::span<const Index> rows, nn::SparseRoom<T>& room, bool by_columns) const;
  /// Whether these rows lie as a batch does.
  bool in_place(std::span<const Index> rows) const;
  Batch<T> view(std::span<const Index> rows) const;

  Samples samples_;
  bool ready_;   // whether a run of rows is a batch
  bool sparse_;  // whether batches may be sparse
  nn::Target<T> target_;
  std::optional<PadCropFlip> augmentation_;
};

}  // namespace pdnn::data
