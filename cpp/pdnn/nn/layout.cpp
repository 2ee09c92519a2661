#include "pdnn/nn/layout.hpp"

#include <algorithm>

#include "pdnn/kernels/panels.hpp"

namespace pdnn::nn {

template <class T>
bool Layout<T>::in_panels(Index offset) const {
  return std::any_of(weights_.begin(), weights_.end(), [&](const PanelWeight& w) { return w.offset == offset; });
}

template <class T>
template <class Run, class Weight>
void Layout<T>::each_piece(Index size, Run run, Weight panels) const {
  Index at = 0;
  for (const PanelWeight& weight : weights_) {
    run(at, weight.offset - at);
    panels(weight);
    at = weight.offset + weight.rows * weight.cols;
  }
  run(at, size - at);
}

template <class T>
void Layout<T>::from_rows(std::span<const T> rows, std::span<T> out) const {
  each_piece(
      std::ssize(rows), [&](Index at, Index count) { std::copy_n(rows.data() + at, count, out.data() + at); },
      [&](const PanelWeight& w) { kernels::to_panels(w.rows, w.cols, rows.data() + w.offset, out.data() + w.offset); });
}

template <class T>
void Layout<T>::to_rows(std::span<const T> from, std::span<T> rows) const {
  each_piece(
      std::ssize(from), [&](Index at, Index count) { std::copy_n(from.data() + at, count, rows.data() + at); },
      [&](const PanelWeight& w) {
        kernels::from_panels(w.rows, w.cols, from.data() + w.offset, rows.data() + w.offset);
      });
}

template class Layout<float>;
template class Layout<double>;

}  // namespace pdnn::nn
