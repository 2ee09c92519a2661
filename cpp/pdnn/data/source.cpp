#include "pdnn/data/source.hpp"

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::data {

namespace {

constexpr Index kFewOf = 8;  // of so many elements one is not 0, at most, where sparse products take less time

/// Whether a batch of these samples may be sparse: few elements, in rising order.
bool few_in_order(const Samples& samples) {
  const auto [starts, columns] = samples.sparse;
  if (!starts || starts[samples.count] - starts[0] > samples.count * samples.sample.count() / kFewOf) return false;
  for (Index r = 0; r < samples.count; ++r)
    for (Index i = starts[r] + 1; i < starts[r + 1]; ++i)
      if (columns[i - 1] >= columns[i]) return false;
  return true;
}

}  // namespace

template <class T>
Source<T>::Source(const Samples& samples, const nn::Target<T>& target)
    : samples_(samples), sparse_(few_in_order(samples)), target_(target) {
  constexpr auto own = sizeof(T) == sizeof(float) ? Samples::Format::float32 : Samples::Format::float64;
  ready_ = !samples.sparse.starts && samples.format == own && samples.scale == 1 && samples.shift == 0 &&
           samples.stride == samples.sample.count();
}

template <class T>
double Source<T>::weight(const nn::Loss<T>& loss, std::span<const Index> rows) const {
  if (!weighs(loss)) return static_cast<double>(rows.size());
  double sum = 0;
  for (const Index row : rows) sum += loss.weight(target_, row);
  return sum;
}

template <class T>
void Source<T>::augment(const PadCropFlip& how) {
  require(samples_.sample.rank() == 3, "augment: samples are ", samples_.sample.text(),
          ", expected images: (channels, height, width)");
  require(how.padding >= 0, "augment: padding is ", how.padding, ", expected 0 or more");
  augmentation_ = how;
  ready_ = false;
}

template <class T>
bool Source<T>::in_place(std::span<const Index> rows) const {
  if (!ready_) return false;
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i] != rows[i - 1] + 1) return false;
  return !rows.empty();
}

template <class T>
Batch<T> Source<T>::view(std::span<const Index> rows) const {
  const Index first = rows[0], count = std::ssize(rows);
  return {{static_cast<const T*>(samples_.data) + first * samples_.stride, count, samples_.sample},
          target_.rows({first, first + count})};
}

template <class T>
void Source<T>::gather_sparse(Range part, std::span<const Index> rows, T* out) const {
  const Index width = samples_.sample.count();
  const T* const values = static_cast<const T*>(samples_.data);
  for (Index r = part.begin; r < part.end; ++r) {
    T* const row = out + r * width;
    std::fill_n(row, width, T{});
    const Index* const bounds = samples_.sparse.starts + rows[static_cast<std::size_t>(r)];
    for (Index i = bounds[0]; i < bounds[1]; ++i) row[samples_.sparse.columns[i]] += values[i];
  }
}

template <class T>
void Source<T>::gather_sparse(std::span<const Index> rows, nn::SparseRoom<T>& room, bool by_columns) const {
  const T* const values = static_cast<const T*>(samples_.data);
  room.rows.clear();
  for (const Index row : rows) {
    const Index* const bounds = samples_.sparse.starts + row;
    room.rows.at.insert(room.rows.at.end(), samples_.sparse.columns + bounds[0], samples_.sparse.columns + bounds[1]);
    room.rows.values.insert(room.rows.values.end(), values + bounds[0], values + bounds[1]);
    room.rows.starts.push_back(std::ssize(room.rows.at));
  }
  if (by_columns) room.columns.assign_transposed(room.rows, samples_.sample.count());
  room.batch = {room.rows.view(), room.columns.view()};
}

template <class T>
void Source<T>::gather_samples(Part part, std::span<const Index> rows, T* out) const {
  const Index width = samples_.sample.count();
  const Range mine = part.range(static_cast<Index>(rows.size()));
  if (samples_.sparse.starts) return gather_sparse(mine, rows, out);
  const auto gather = [&]<class Raw>(const Raw* raw) {
    kernels::table<T>().template gather_rows<Raw>()({}, raw, samples_.stride, rows.data() + mine.begin, mine.size(),
                                                    width, samples_.scale, samples_.shift, out + mine.begin * width);
  };
  switch (samples_.format) {
    case Samples::Format::uint8:
      gather(static_cast<const std::uint8_t*>(samples_.data));
      break;
    case Samples::Format::float32:
      gather(static_cast<const float*>(samples_.data));
      break;
    case Samples::Format::float64:
      gather(static_cast<const double*>(samples_.data));
      break;
  }
  if (!augmentation_) return;
  for (Index r = mine.begin; r < mine.end; ++r)
    augmentation_->cut(rows[static_cast<std::size_t>(r)], samples_.sample, static_cast<T>(samples_.shift),
                       out + r * width);
}

template <class T>
Tensor<const T> Source<T>::gather_x(Part part, std::span<const Index> rows, nn::Workspace<T>& workspace) const {
  if (in_place(rows)) return view(rows).x;
  const Tensor<T> x = workspace.x(static_cast<Index>(rows.size()));
  gather_samples(part, rows, x.data);
  return x;
}

template <class T>
nn::Target<T> Source<T>::gather_target(Part part, std::span<const Index> rows, nn::Workspace<T>& workspace) const {
  return in_place(rows) ? view(rows).target : copy_target(part, rows, workspace);
}

template <class T>
Batch<T> Source<T>::copy(std::span<const Index> rows, nn::Workspace<T>& workspace) const {
  const Tensor<T> x = workspace.x(std::ssize(rows));
  gather_samples({}, rows, x.data);
  return {x, copy_target({}, rows, workspace)};
}

template <class T>
nn::Target<T> Source<T>::copy_target(Part part, std::span<const Index> rows, nn::Workspace<T>& workspace) const {
  const Index count = static_cast<Index>(rows.size());
  nn::Target<T> target;
  if (target_.classes) {
    const Range mine = part.range(count);
    for (Index i = mine.begin; i < mine.end; ++i)
      workspace.classes()[i] = target_.classes[rows[static_cast<std::size_t>(i)]];
    target.classes = workspace.classes();
  } else if (target_.values.data) {
    const Matrix<const T>& values = target_.values;
    kernels::table<T>().template gather_rows<T>()(part, values.data, values.stride, rows.data(), count, values.cols, 1,
                                                  0, workspace.values());
    target.values = {workspace.values(), count, values.cols};
  }
  if (target_.weights) {
    const Range mine = part.range(count);
    for (Index i = mine.begin; i < mine.end; ++i)
      workspace.weights()[i] = target_.weights[rows[static_cast<std::size_t>(i)]];
    target.weights = workspace.weights();
  }
  return target;
}

template <class T>
Batch<T> Source<T>::gather(const Member& member, std::span<const Index> rows, nn::Workspace<T>& workspace,
                           bool sparse) const {
  if (in_place(rows)) return view(rows);
  Batch<T> batch;
  if (sparse && sparse_) {
    nn::SparseRoom<T>& room = workspace.sparse();
    if (member.first()) gather_sparse(rows, room, /*by_columns=*/workspace.use() == nn::Use::training);
    batch.x = {nullptr, std::ssize(rows), samples_.sample, &room.batch};
  } else {
    batch.x = gather_x(member, rows, workspace);
  }
  batch.target = gather_target(member, rows, workspace);
  member.barrier();
  return batch;
}

template <class T>
kernels::Upcoming Source<T>::upcoming(Part part, std::span<const Index> rows) const {
  if (samples_.sparse.starts) return {nullptr, 0, nullptr, 0, 0};
  const Index count = static_cast<Index>(rows.size());
  const Range mine = in_place(rows) ? Range{0, count} : part.range(count);
  const Index element = samples_.format == Samples::Format::uint8     ? Index{sizeof(std::uint8_t)}
                        : samples_.format == Samples::Format::float32 ? Index{sizeof(float)}
                                                                      : Index{sizeof(double)};
  return {static_cast<const char*>(samples_.data), samples_.stride * element, rows.data() + mine.begin, mine.size(),
          samples_.sample.count() * element};
}

template <class T>
void Source<T>::fetch(std::span<const Index> rows) const {
  if (samples_.sparse.starts) return;
  const kernels::Upcoming what = upcoming({}, rows);
  for (const Index row : rows) {
    const char* const sample = what.data + row * what.stride;
    for (Index at = 0; at < what.bytes; at += Index{kCacheLine}) __builtin_prefetch(sample + at);
    __builtin_prefetch(sample + what.bytes - 1);
    if (target_.classes) __builtin_prefetch(target_.classes + row);
    if (target_.values.data) __builtin_prefetch(target_.values.row(row));
  }
  asm volatile("");  // GCC 12 leaves out calls of a function that does no more than this
}

template class Source<float>;
template class Source<double>;

}  // namespace pdnn::data
