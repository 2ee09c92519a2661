#pragma once
/// BatchNorm: every channel normalized over the batch. Ioffe and Szegedy, ICML 2015.
#include "pdnn/kernels/rows.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y = (x − mean) / √(var + eps) · gamma + beta, a channel at a time: a feature of (features) samples (BatchNorm1d), or
/// a channel of (channels, height, width) samples, which lie channels-last (BatchNorm2d); so x is a matrix of one
/// column a channel. In training the moments are the batch's and the buffers follow them; in evaluation they are the
/// buffers.
///
/// The sums over rows are those of kernels::kChunks chunks, joined in that order, whoever computed them: any team gives
/// the same bits. With `sync` they go on through Pass::batch_sum. Of a batch in leaves, which must be synchronized, the
/// leaves are the chunks, and are joined by their tree. A batch with one value a channel gives y = beta and
/// leaves the buffers alone: of one value there is no variance.
template <class T>
class BatchNorm : public Layer<T> {
 public:
  struct Options {
    Index channels;
    bool images;  // takes (channels, height, width), else (channels)
    double eps = 1e-5, momentum = 0.1;
    bool sync = false;
  };
  explicit BatchNorm(const Options& options);

  std::string_view name() const override { return options_.images ? "BatchNorm2d" : "BatchNorm1d"; }
  std::vector<Parameter> parameters() const override { return {{"weight", {width()}}, {"bias", {width()}}}; }
  std::vector<Parameter> buffers() const override { return {{"running_mean", {width()}}, {"running_var", {width()}}}; }
  Traits traits() const override { return {.synchronized = options_.sync, .own_statistics = !options_.sync}; }
  std::vector<LayerPtr<T>> fused(const LayerPtr<T>& next, const Shape& in) const override;
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;
  void commit(const Pass& pass, std::span<const T> saved, Index rows, std::span<T> buffers) const override;

 private:
  struct Scratch;
  struct OfLeaves;

  Index width() const { return options_.channels; }
  Scratch scratch_of(const Vars<T>& vars) const;
  kernels::NormParams<T> normal(const Pass& pass, const Vars<T>& vars) const;
  OfLeaves of_leaves(const Pass& pass, const Vars<T>& vars) const;
  kernels::Chunks chunks_of(const Pass& pass, const Shape& sample) const;
  void share_leaves(const Pass& pass, const OfLeaves& own) const;
  void take_moments_of_leaves(const Pass& pass, const Vars<T>& vars, Tensor<const T> x) const;
  void take_moments(const Pass& pass, const Vars<T>& vars, Matrix<const T> x) const;
  void agree(const Pass& pass, std::span<double> sums) const;

  Options options_;
  bool relu_ = false;
};

}  // namespace pdnn::nn
