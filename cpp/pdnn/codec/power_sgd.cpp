#include "pdnn/codec/power_sgd.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::codec {

namespace {

template <class T>
double dot(const T* a, const T* b, Index n) {
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

template <class T>
kernels::PanelMatrix<T> at(T* values, const MatrixAt& m) {
  return {values + m.offset, m.rows, m.cols, m.panel > 0 ? m.panel : m.cols};
}

}  // namespace

template <class T>
PowerSgd<T>::PowerSgd(int rank, Index count, const std::vector<MatrixAt>& matrices, std::uint64_t seed)
    : rank_(rank), count_(count), rng_(seed) {
  require(rank > 0, "PowerSGD: rank = ", rank, "; expected at least 1");
  Index end = 0, rest = 0, q_count = 0, most_rows = 0;
  const auto leave = [&](Range range) {
    if (range.size() > 0) others_.push_back(range);
    rest += range.size();
  };
  for (const MatrixAt& m : matrices) {
    require(m.offset >= end && m.rows >= 0 && m.cols >= 0 && m.offset + m.rows * m.cols <= count, "PowerSGD: a ",
            m.rows, "x", m.cols, " matrix at ", m.offset, " of ", count, " values; the one before it ends at ", end);
    if (rank * (m.rows + m.cols) >= m.rows * m.cols) continue;
    leave({end, m.offset});
    end = m.offset + m.rows * m.cols;
    matrices_.push_back(m);
    p_count_ += rank * m.rows;
    q_count += rank * m.cols;
    most_rows = std::max(most_rows, m.rows);
  }
  leave({end, count});
  first_ = AlignedArray<T>(p_count_ + rest);
  second_ = AlignedArray<T>(q_count);
  read_ = AlignedArray<T>(first_.size() + q_count);
  negative_ = AlignedArray<T>(rank * most_rows);
}

template <class T>
Index PowerSgd<T>::bytes(Index n) const {
  require(n == count_, "PowerSGD: got ", n, " values, its matrices lie in ", count_);
  return read_.size() * Index{sizeof(T)};
}

/// A row of a Qᵀ without length has nothing to go on from, nor has one that is not finite: it is drawn anew.
template <class T>
void PowerSgd<T>::draw_what_is_lost() {
  T* row = second_.data();
  for (std::size_t m = 0; m < matrices_.size(); ++m)
    for (int r = 0; r < rank_; ++r, row += matrices_[m].cols) {
      const double square = dot(row, row, matrices_[m].cols);
      if (square > 0 && std::isfinite(square)) continue;
      const Rng rng = rng_.child(m).child(static_cast<std::uint64_t>(r));
      for (Index i = 0; i < matrices_[m].cols; ++i) row[i] = static_cast<T>(rng.normal(static_cast<std::uint64_t>(i)));
    }
}

/// Gram and Schmidt, twice over, which is enough (Giraud, Langou, Rozložník, "The loss of orthogonality in the
/// Gram-Schmidt orthogonalization process", 2005). What depends on the rows before it becomes 0.
template <class T>
void PowerSgd<T>::orthonormalize(T* rows, Index width) const {
  for (Index r = 0; r < rank_; ++r) {
    T* const row = rows + r * width;
    const double before = std::sqrt(dot(row, row, width));
    for (int pass = 0; pass < 2; ++pass)
      for (Index other = 0; other < r; ++other) {
        const T* const unit = rows + other * width;
        const T along = static_cast<T>(dot(row, unit, width));
        for (Index i = 0; i < width; ++i) row[i] -= along * unit[i];
      }
    const double length = std::sqrt(dot(row, row, width));
    const bool dependent = length <= 16 * double{std::numeric_limits<T>::epsilon()} * before;
    if (!std::isfinite(length))  // shown, not hidden: all that is decoded becomes NaN
      std::fill_n(row, width, std::numeric_limits<T>::quiet_NaN());
    else
      for (Index i = 0; i < width; ++i) row[i] = dependent ? T{} : static_cast<T>(double{row[i]} / length);
  }
}

template <class T>
void PowerSgd<T>::make_p(std::span<const T> values) {
  draw_what_is_lost();
  T* p = first_.data();
  const T* q = second_.data();
  for (const MatrixAt& m : matrices_) {
    const kernels::PanelMatrix<const T> matrix = at(values.data(), m);
    kernels::table<T>().product_nt(Part{}, {q, rank_, m.cols}, matrix, kernels::Activation::identity, {},
                                   {p, rank_, m.rows});
    p += rank_ * m.rows;
    q += rank_ * m.cols;
  }
  for (const Range& range : others_) p = std::copy_n(values.data() + range.begin, range.size(), p);
}

template <class T>
void PowerSgd<T>::make_q(std::span<const T> values) {
  T *p = first_.data(), *q = second_.data();
  for (const MatrixAt& m : matrices_) {
    orthonormalize(p, m.rows);
    const kernels::PanelMatrix<const T> matrix = at(values.data(), m);
    kernels::table<T>().product_nn(Part{}, {p, rank_, m.rows}, matrix, nullptr, kernels::Activation::identity,
                                   {q, rank_, m.cols});
    p += rank_ * m.rows;
    q += rank_ * m.cols;
  }
}

template <class T>
void PowerSgd<T>::restore(const T* p, const T* q, const T* others, std::span<T> values, Into into) {
  for (const MatrixAt& m : matrices_) {
    const T* left = p;
    if (into == Into::subtract) {
      std::transform(p, p + rank_ * m.rows, negative_.data(), [](T x) { return -x; });
      left = negative_.data();
    }
    kernels::table<T>().product_tn(Part{}, {left, rank_, m.rows}, {q, rank_, m.cols}, {}, into != Into::store,
                                   at(values.data(), m), nullptr);
    p += rank_ * m.rows;
    q += rank_ * m.cols;
  }
  for (const Range& range : others_)
    for (T& value : slice(values, range.begin, range.size())) {
      const T other = others ? *others++ : value;
      value = into == Into::store ? other : into == Into::add ? value + other : value - other;
    }
}

template <class T>
void PowerSgd<T>::write(std::span<const T> values, std::uint8_t* out) {
  make_p(values);
  make_q(values);
  const std::span<const T> p = slice(first_.span(), 0, p_count_), q = second_.span();
  const std::span<const T> rest = slice(first_.span(), p_count_, first_.size() - p_count_);
  for (const std::span<const T> part : {p, q, rest}) {
    if (!part.empty()) std::memcpy(out, part.data(), part.size_bytes());
    out += part.size_bytes();
  }
}

template <class T>
void PowerSgd<T>::read(const std::uint8_t* data, std::span<T> values, Into into) {
  if (read_.size() > 0) std::memcpy(read_.data(), data, read_.span().size_bytes());
  const T* const q = read_.data() + p_count_;
  restore(read_.data(), q, q + second_.size(), values, into);
}

template class PowerSgd<float>;
template class PowerSgd<double>;

}  // namespace pdnn::codec
