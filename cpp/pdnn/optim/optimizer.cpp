#include "pdnn/optim/optimizer.hpp"

namespace pdnn::optim {

template <class T>
Optimizer<T>::Optimizer(Index count, int arrays) : count_(count) {
  for (int i = 0; i < arrays; ++i) memory_.emplace_back(count);
}

template <class T>
std::unique_ptr<Optimizer<T>> Optimizer<T>::clone() const {
  std::unique_ptr<Optimizer> other = like(count_);
  other->segments_ = segments_;
  other->steps_ = steps_;
  if (clip_) other->clip_ = std::make_unique<Clip<T>>(*clip_);
  for (std::size_t i = 0; i < memory_.size(); ++i) other->memory_[i] = memory_[i].copy();
  return other;
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
}

template <class T>
void Optimizer<T>::set_rates(std::span<const double> rates) {
  for (Segment& segment : segments_) {
    if (segment.frozen) continue;
    require(segment.group < rates.size(), name(), ": got ", rates.size(), " learning rates, group ", segment.group,
            " has none");
    segment.lr = rates[segment.group];
  }
}

template <class T>
std::optional<kernels::Update<T>> Optimizer<T>::update(Range slice, T* w) {
  Index begin = 0;
  for (const Segment& segment : segments_) {
    if (begin <= slice.begin && slice.end <= segment.end)
      return segment.frozen ? std::nullopt : std::optional(rule(segment, slice.begin, w));
    begin = segment.end;
  }
  return std::nullopt;
}

template <class T>
void Optimizer<T>::apply(Index offset, T* w, const T* g, Index n) {
  Index begin = 0;
  for (const Segment& segment : segments_) {
    const Index end = std::min(segment.end - offset, n);
    if (end <= begin) continue;
    if (!segment.frozen) kernels::update<T>(Part{}, rule(segment, offset + begin, w + begin), end - begin, g + begin);
    begin = end;
  }
}

template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace pdnn::optim
