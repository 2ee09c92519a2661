#include "pdnn/optim/optimizer.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>

#include "pdnn/core/finite.hpp"
#include "pdnn/kernels/table.hpp"
#include "pdnn/optim/inverse_hessian.hpp"

namespace pdnn::optim {

template <class T>
Optimizer<T>::Optimizer(Index count, const kernels::Rule& rule)
    : rule_(rule),
      keeps_(std::visit([](const auto& own) { return own.keeps(); }, rule)),
      count_(count),
      by_step_(std::visit([]<class R>(const R&) { return kernels::ByStep<R>; }, rule)) {
  for (const bool kept : keeps_)
    if (kept) state_.emplace_back(count);
}

template <class T>
std::string_view Optimizer<T>::name() const {
  return std::visit([](const auto& rule) { return rule.name(); }, rule_);
}

template <class T>
std::unique_ptr<Optimizer<T>> Optimizer<T>::clone() const {
  std::unique_ptr<Optimizer> other = like(count_);
  other->follow(*this);
  if (clip_) other->clip_ = std::make_unique<Clip<T>>(*clip_);
  return other;
}

template <class T>
void Optimizer<T>::follow(const Optimizer& other) {
  segments_ = other.segments_;
  numbers_ = other.numbers_;
  steps_ = other.steps_;
  for (std::size_t i = 0; i < state_.size(); ++i) std::ranges::copy(other.state_[i].span(), state_[i].data());
}

template <class T>
void Optimizer<T>::set_segments(std::vector<Segment> segments) {
  Index end = 0;
  for (const Segment& segment : segments) {
    require(segment.end >= end, name(), ": segments end at ", end, " and then at ", segment.end);
    end = segment.end;
  }
  require(end == count_, name(), ": segments cover ", end, " parameters of ", count_);
  segments_ = std::move(segments);
  // Neighbors with the same numbers are one, which ends where the last of them does.
  const auto like = [](const Segment& a, const Segment& b) { return a.like(b); };
  segments_.erase(segments_.begin(), std::unique(segments_.rbegin(), segments_.rend(), like).base());
  take_numbers();
}

template <class T>
void Optimizer<T>::set_rates(std::span<const double> rates) {
  for (Segment& segment : segments_) {
    if (segment.frozen) continue;
    require(segment.group < rates.size(), name(), ": got ", rates.size(), " learning rates, group ", segment.group,
            " has none");
    segment.lr = rates[segment.group];
  }
  take_numbers();
}

template <class T>
void Optimizer<T>::begin_step() {
  ++steps_;
  if (by_step_) take_numbers();
}

/// The rule's numbers for this step, a segment.
template <class T>
void Optimizer<T>::take_numbers() {
  numbers_.clear();
  std::visit(
      [&]<class R>(const R& rule) {
        for (const Segment& segment : segments_) {
          if constexpr (kernels::ByStep<R>) {
            numbers_.emplace_back(rule.at(steps_, segment.lr, segment.weight_decay));
          } else {
            numbers_.emplace_back(rule.at(segment.lr, segment.weight_decay));
          }
        }
      },
      rule_);
}

template <class T>
kernels::Update<T> Optimizer<T>::update_of(std::size_t segment, Index offset, T* w) {
  kernels::Update<T> update{numbers_[segment], w, {}};
  auto array = state_.begin();
  for (std::size_t i = 0; i < keeps_.size(); ++i)
    if (keeps_[i]) update.state[i] = (array++)->data() + offset;
  return update;
}

template <class T>
std::optional<kernels::Update<T>> Optimizer<T>::update(Range slice, T* w) {
  Index begin = 0;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    if (begin <= slice.begin && slice.end <= segment.end)
      return segment.frozen ? std::nullopt : std::optional(update_of(i, slice.begin, w));
    begin = segment.end;
  }
  return std::nullopt;
}

template <class T>
void Optimizer<T>::apply(Index offset, T* w, const T* g, Index n) {
  Index begin = 0;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const Index end = std::min(segment.end - offset, n);
    if (end <= begin) continue;
    if (!segment.frozen)
      kernels::table<T>().update(Part{}, update_of(i, offset + begin, w + begin), end - begin, g + begin);
    begin = end;
  }
}

template <class T>
void Optimizer<T>::scale_state(double factor) {
  for (AlignedArray<T>& array : state_) kernels::table<T>().scale(Part{}, count_, static_cast<T>(factor), array.data());
}

template <class T>
std::size_t Optimizer<T>::state_hash() const {
  auto hash = static_cast<std::size_t>(steps_);
  for (const AlignedArray<T>& array : state_) {
    const std::span<const std::byte> bytes = std::as_bytes(array.span());
    hash = 31 * hash + std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return hash;
}

template <class T>
Index Optimizer<T>::first_nonfinite(std::span<const T> grads) const {
  Index begin = 0;
  for (const Segment& segment : segments_) {
    const Index count = segment.end - begin;
    const Index at = segment.frozen ? count : pdnn::first_nonfinite(slice(grads, begin, count));
    if (at < count) return begin + at;
    begin = segment.end;
  }
  return count_;
}

template <class T>
std::vector<double> Optimizer<T>::squares(std::span<const T> w) const {
  require(std::ssize(w) == count_, name(), ": got ", w.size(), " parameters, expected ", count_);
  std::vector<double> sums;
  Index begin = 0;
  for (const Segment& segment : segments_) {
    const std::span<const T> own = slice(w, begin, segment.end - begin);
    begin = segment.end;
    if (segment.frozen) continue;
    sums.resize(std::max(sums.size(), segment.group + 1));
    sums[segment.group] += dot(own, own);
  }
  return sums;
}

template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace pdnn::optim
