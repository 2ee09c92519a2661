#include "pdnn/nn/layers/batch_norm.hpp"

#include <cmath>

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

namespace {

using kernels::kChunks;

/// A batch as a matrix of one column a channel.
template <class T>
Matrix<T> by_channel(const Tensor<T>& x, Index channels) {
  return {x.data, x.count() / channels, channels};
}

/// The rows of each chunk, as numbers to weigh their means with.
std::array<double, kChunks> rows_of_chunks(Index rows) {
  std::array<double, kChunks> all{};
  for (Index q = 0; q < kChunks; ++q)
    all[static_cast<std::size_t>(q)] = static_cast<double>(share(rows, q, kChunks).size());
  return all;
}

}  // namespace

/// The number of values behind them, `sums` and `squares` (backward: Σ dz and Σ dz (x − mean)), one after the other for
/// those who share the batch to agree on; and what kernels leave or take.
template <class T>
struct BatchNorm<T>::Scratch {
  std::span<double> all, sums, squares;  // all: rows, sums, squares
  T *chunks, *shift, *slope;             // [kChunks, 2, channels], [channels], [channels]
};

template <class T>
BatchNorm<T>::BatchNorm(const Options& options) : options_(options) {
  require(options.channels >= 1, "BatchNorm: ", options.channels, " features; expected at least 1");
  require(options.eps > 0, "BatchNorm: eps = ", options.eps, "; expected a number above 0");
  require(options.momentum >= 0 && options.momentum <= 1, "BatchNorm: momentum = ", options.momentum,
          "; expected a number in [0, 1]");
}

/// A ReLU after this layer is computed here.
template <class T>
std::vector<LayerPtr<T>> BatchNorm<T>::fused(const LayerPtr<T>& next, const Shape&) const {
  if (relu_ || next->traits().activation != kernels::Activation::relu) return {};
  auto fused = std::make_shared<BatchNorm>(*this);
  fused->relu_ = true;
  return {fused};
}

template <class T>
Shape BatchNorm<T>::output_shape(const Shape& in) const {
  require(options_.images ? in.rank() == 3 : in.rank() <= 2, name(), ": input samples are ", in.text(), ", expected ",
          options_.images ? "(channels, height, width); use BatchNorm1d for features or lines"
                          : "(features) or (channels, length); use BatchNorm2d for images, or nn.Flatten() before it");
  require(in[0] == width(), name(), ": input has ", in[0], options_.images ? " channels" : " features",
          ", this layer takes ", width());
  return in;
}

template <class T>
Sizes BatchNorm<T>::sizes(const Shape&) const {
  const Index doubles = (2 * width() + 1) * Index{sizeof(double)};
  return {.saved = 2 * width() + 1,  // mean, variance, number of values a channel
          .scratch = doubles / Index{sizeof(T)} + (2 * kChunks + 2) * width(),
          .leaf = 2 * width() + 2 * width() * Index{sizeof(double)} / Index{sizeof(T)}};
}

template <class T>
void BatchNorm<T>::initialize(Rng, std::span<T> params, std::span<T> buffers) const {
  std::fill_n(params.data(), width(), T{1});
  std::fill_n(params.data() + width(), width(), T{0});
  std::fill_n(buffers.data(), width(), T{0});
  std::fill_n(buffers.data() + width(), width(), T{1});
}

template <class T>
typename BatchNorm<T>::Scratch BatchNorm<T>::scratch_of(const Vars<T>& vars) const {
  const Index c = width();
  const std::span<double> doubles(reinterpret_cast<double*>(vars.scratch.data()), static_cast<std::size_t>(2 * c + 1));
  T* const chunks = reinterpret_cast<T*>(doubles.data() + doubles.size());
  return {doubles, slice(doubles, 1, c),     slice(doubles, c + 1, c),
          chunks,  chunks + 2 * kChunks * c, chunks + (2 * kChunks + 1) * c};
}

template <class T>
kernels::NormParams<T> BatchNorm<T>::normal(const Pass& pass, const Vars<T>& vars) const {
  const T* const moments = pass.training ? vars.saved.data() : vars.buffers.data();
  return {moments, moments + width(), vars.params.data(), vars.params.data() + width(), options_.eps};
}

/// Adds up over all who share the batch, if it is more than x.
template <class T>
void BatchNorm<T>::agree(const Pass& pass, std::span<double> sums) const {
  if (!options_.sync || !pass.batch_sum) return;
  pass.team->barrier();
  if (pass.team->first()) pass.batch_sum->sum(sums);
  pass.team->barrier();
}

/// Two numbers of each leaf and channel: T, as kernels leave them of the leaves of this pass, and double, of all
/// leaves.
template <class T>
struct BatchNorm<T>::OfLeaves {
  std::span<double> all;  // [leaves, 2, channels]
  T* chunks;              // [leaves of the pass, 2, channels]
};

template <class T>
typename BatchNorm<T>::OfLeaves BatchNorm<T>::of_leaves(const Pass& pass, const Vars<T>& vars) const {
  const std::span<double> all(reinterpret_cast<double*>(vars.leaf_room.data()),
                              static_cast<std::size_t>(2 * width() * pass.leaves->leaves().count));
  return {all, reinterpret_cast<T*>(all.data() + all.size())};
}

/// The chunks of this pass: its leaves, if it has any.
template <class T>
kernels::Chunks BatchNorm<T>::chunks_of(const Pass& pass, const Shape& sample) const {
  if (!pass.leaves) return {};
  const std::span<const Index> ends = pass.leaves->ends();
  return {ends.data(), std::ssize(ends), sample.count() / width()};
}

/// The numbers of all leaves, from those of this pass: what others have is 0 here, so the sum is exact in any order.
template <class T>
void BatchNorm<T>::share_leaves(const Pass& pass, const OfLeaves& own) const {
  const Leaves& leaves = pass.leaves->leaves();
  const Index each = 2 * width();
  const Range mine = pass.team->range(leaves.count * each);
  for (Index i = mine.begin; i < mine.end; ++i) {
    const Index leaf = i / each - leaves.run.begin;
    own.all[static_cast<std::size_t>(i)] =
        leaf >= 0 && leaf < leaves.run.size() ? static_cast<double>(own.chunks[leaf * each + i % each]) : 0;
  }
  pass.team->barrier();
  agree(pass, own.all);
}

/// The same moments by leaves: n_q mean_q and the squares about the mean of all are joined by the tree.
template <class T>
void BatchNorm<T>::take_moments_of_leaves(const Pass& pass, const Vars<T>& vars, Tensor<const T> x) const {
  const Leaves& leaves = pass.leaves->leaves();
  require(options_.sync, name(), ": the sums of a batch in leaves are those of the whole batch; pass sync=True");
  require(pass.batch_sum || pass.leaves->whole(), name(), ": got leaves ", leaves.run.begin, " to ", leaves.run.end,
          " of ", leaves.count, " and nobody who has the others");
  const OfLeaves own = of_leaves(pass, vars);
  const kernels::Chunks chunks = chunks_of(pass, x.sample);
  kernels::table<T>().column_moments(*pass.team, by_channel(x, width()), chunks, own.chunks);
  pass.team->barrier();
  share_leaves(pass, own);

  const Index c = width();
  const Range mine = pass.team->range(c);
  const double rows = static_cast<double>(leaves.batch * chunks.places);
  const auto rows_of = [&](Index leaf) { return static_cast<double>(leaves.rows(leaf).size() * chunks.places); };
  const auto number = [&](Index leaf, Index i) { return own.all[static_cast<std::size_t>(2 * leaf * c + i)]; };
  for (Index i = mine.begin; i < mine.end; ++i) {
    const double sum = tree_sum<double>(leaves.count, [&](Index leaf) { return rows_of(leaf) * number(leaf, i); });
    const double mean = rows > 0 ? sum / rows : 0;
    const double squares = tree_sum<double>(leaves.count, [&](Index leaf) {
      const double apart = number(leaf, i) - mean;
      return number(leaf, c + i) + rows_of(leaf) * apart * apart;
    });
    vars.saved[static_cast<std::size_t>(i)] = static_cast<T>(mean);
    vars.saved[static_cast<std::size_t>(c + i)] = static_cast<T>(rows > 0 ? squares / rows : 0);
  }
  if (pass.team->first()) vars.saved[static_cast<std::size_t>(2 * c)] = static_cast<T>(rows);
  pass.team->barrier();
}

/// Mean and variance of the batch into `saved`. Every member joins the chunks of its channels; a chunk's squares are
/// taken about its own mean, so n_q (mean_q − mean)² brings them to the mean of all.
template <class T>
void BatchNorm<T>::take_moments(const Pass& pass, const Vars<T>& vars, Matrix<const T> x) const {
  const Scratch scratch = scratch_of(vars);
  const Index c = width();
  const Range mine = pass.team->range(c);
  kernels::table<T>().column_moments(*pass.team, x, {}, scratch.chunks);
  pass.team->barrier();

  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  const std::array<double, kChunks> rows_of = rows_of_chunks(x.rows);
  for (Index i = mine.begin; i < mine.end; ++i) {
    double sum = 0;
    for (Index q = 0; q < kChunks; ++q) sum += rows_of[at(q)] * static_cast<double>(scratch.chunks[2 * q * c + i]);
    scratch.sums[at(i)] = sum;
  }
  double rows = static_cast<double>(x.rows);
  if (options_.sync && pass.batch_sum) {
    if (pass.team->first()) scratch.all[0] = rows;
    agree(pass, scratch.all.first(at(c + 1)));
    rows = scratch.all[0];
  }
  for (Index i = mine.begin; i < mine.end; ++i) {
    const double mean = rows > 0 ? scratch.sums[at(i)] / rows : 0;
    double squares = 0;
    for (Index q = 0; q < kChunks; ++q) {
      const double apart = static_cast<double>(scratch.chunks[2 * q * c + i]) - mean;
      squares += static_cast<double>(scratch.chunks[(2 * q + 1) * c + i]) + rows_of[at(q)] * apart * apart;
    }
    scratch.squares[at(i)] = squares;
    vars.saved[at(i)] = static_cast<T>(mean);
  }
  agree(pass, scratch.squares);
  for (Index i = mine.begin; i < mine.end; ++i)
    vars.saved[at(c + i)] = static_cast<T>(rows > 0 ? scratch.squares[at(i)] / rows : 0);
  if (pass.team->first()) vars.saved[at(2 * c)] = static_cast<T>(rows);
  pass.team->barrier();
}

template <class T>
void BatchNorm<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  if (pass.training && pass.leaves)
    take_moments_of_leaves(pass, vars, x);
  else if (pass.training)
    take_moments(pass, vars, by_channel(x, width()));
  kernels::table<T>().normalize(*pass.team, by_channel(x, width()), normal(pass, vars), relu_, by_channel(y, width()));
}

/// With z = (x − mean) / √(var + eps) and sums over the n values of a channel in the batch:
///
///     dgamma = Σ dy z      dbeta = Σ dy      dx = gamma / √(var + eps) · (dy − Σ dy / n − z Σ dy z / n)
///
/// In evaluation the moments are constants, and the two sums leave dx. Gradients are this call's own share: whoever
/// adds up gradients adds these.
template <class T>
void BatchNorm<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                            Tensor<T> dx, std::span<T> grads) const {
  const Scratch scratch = scratch_of(vars);
  const Index c = width();
  const Range mine = pass.team->range(c);
  const kernels::NormParams<T> by = normal(pass, vars);
  const Matrix<const T> xs = by_channel(x, c), ys = by_channel(y, c), dys = by_channel(dy, c);
  const kernels::Chunks chunks = chunks_of(pass, x.sample);
  T* const kept = pass.leaves ? of_leaves(pass, vars).chunks : scratch.chunks;
  kernels::table<T>().normalize_sums(*pass.team, xs, ys, dys, by.mean, relu_, chunks, kept);
  pass.team->barrier();

  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  const auto squared_scale = [&](Index i) { return 1 / (static_cast<double>(by.var[i]) + options_.eps); };
  Index first = 0;
  each_node(pass, vars, x.batch, grads, [&](Range, const kernels::LeafSums<T>& leaves, std::span<T> own) {
    for (Index i = mine.begin; i < mine.end; ++i) {
      const auto sum_at = [&](Index q) { return static_cast<double>(kept[2 * (first + q) * c + i]); };
      const auto tilt_at = [&](Index q) { return static_cast<double>(kept[(2 * (first + q) + 1) * c + i]); };
      const double scale = std::sqrt(squared_scale(i));
      T dgamma, dbeta;
      if (pass.leaves) {
        dgamma = tree_sum<T>(leaves.count, [&](Index q) { return static_cast<T>(tilt_at(q) * scale); });
        dbeta = tree_sum<T>(leaves.count, [&](Index q) { return static_cast<T>(sum_at(q)); });
      } else {
        double sum = 0, tilt = 0;
        for (Index q = 0; q < kChunks; ++q) sum += sum_at(q), tilt += tilt_at(q);
        scratch.sums[at(i)] = sum;
        scratch.squares[at(i)] = tilt;
        dgamma = static_cast<T>(tilt * scale), dbeta = static_cast<T>(sum);
      }
      own[at(i)] = pass.add ? own[at(i)] + dgamma : dgamma;
      own[at(c + i)] = pass.add ? own[at(c + i)] + dbeta : dbeta;
    }
    first += leaves.count;
  });
  if (!dx.wanted()) return;
  if (pass.training && pass.leaves) {
    const OfLeaves own = of_leaves(pass, vars);
    share_leaves(pass, own);
    for (Index i = mine.begin; i < mine.end; ++i) {
      const auto sum_of = [&](Index column) {
        return tree_sum<double>(pass.leaves->leaves().count,
                                [&](Index leaf) { return own.all[at(2 * leaf * c + column)]; });
      };
      scratch.sums[at(i)] = sum_of(i);
      scratch.squares[at(i)] = sum_of(c + i);
    }
  } else if (pass.training) {
    agree(pass, scratch.all.last(at(2 * c)));
  }
  const double rows = pass.training ? static_cast<double>(vars.saved[at(2 * c)]) : 0;
  for (Index i = mine.begin; i < mine.end; ++i) {
    scratch.shift[i] = static_cast<T>(rows > 0 ? scratch.sums[at(i)] / rows : 0);
    scratch.slope[i] = static_cast<T>(rows > 0 ? scratch.squares[at(i)] / rows * squared_scale(i) : 0);
  }
  pass.team->barrier();
  kernels::table<T>().normalize_backward(*pass.team, xs, ys, dys, by, scratch.shift, scratch.slope, relu_,
                                         by_channel(dx, c));
}

/// The buffers move towards the batch's mean and unbiased variance by `momentum`.
template <class T>
void BatchNorm<T>::commit(const Pass& pass, std::span<const T> saved, Index, std::span<T> buffers) const {
  const Index c = width();
  const double rows = static_cast<double>(saved[static_cast<std::size_t>(2 * c)]);
  if (!pass.training || rows < 2) return;
  const T momentum = static_cast<T>(options_.momentum), unbiased = static_cast<T>(rows / (rows - 1));
  for (std::size_t i = 0; i < static_cast<std::size_t>(c); ++i) {
    const std::size_t v = i + static_cast<std::size_t>(c);
    if (momentum == 1) buffers[i] = buffers[v] = 0;  // else what they were would round the batch's
    buffers[i] += momentum * (saved[i] - buffers[i]);
    buffers[v] += momentum * (saved[v] * unbiased - buffers[v]);
  }
}

template class BatchNorm<float>;
template class BatchNorm<double>;

}  // namespace pdnn::nn
