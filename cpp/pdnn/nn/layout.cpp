#include "pdnn/nn/layout.hpp"

#include <algorithm>

#include "pdnn/kernels/panels.hpp"

namespace pdnn::nn {

template <class T>
bool Layout<T>::in_panels(Index offset) const {
  return std::any_of(weights_.begin(), weights_.end(), [&](const PanelWeight& w) { return w.offset == offset; });
}

template <class T>
void Layout<T>::from_rows(std::span<const T> rows, std::span<T> out) const {
  std::ranges::copy(rows, out.data());
  for (const PanelWeight& weight : weights_)
    kernels::to_panels(weight.rows, weight.cols, rows.data() + weight.offset, out.data() + weight.offset);
}

template <class T>
void Layout<T>::to_rows(std::span<const T> from, std::span<T> rows) const {
  std::ranges::copy(from, rows.data());
  for (const PanelWeight& weight : weights_)
    kernels::from_panels(weight.rows, weight.cols, from.data() + weight.offset, rows.data() + weight.offset);
}

template class Layout<float>;
template class Layout<double>;

}  // namespace pdnn::nn
