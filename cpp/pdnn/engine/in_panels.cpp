#include "pdnn/engine/in_panels.hpp"

namespace pdnn::engine {

template <class T>
InPanels<T>::InPanels(const nn::Network<T>& network, nn::Model<T>& model, optim::Optimizer<T>& optimizer)
    : layout_(network.layout()), model_(model), optimizer_(optimizer), room_(model.count()) {
  from_rows(model_.params->span());
  for (AlignedArray<T>& array : optimizer_.state()) from_rows(array.span());
}

template <class T>
InPanels<T>::~InPanels() {
  to_rows(model_.params->span());
  to_rows(slice(model_.grads->span(), 0, model_.count()));
  for (AlignedArray<T>& array : optimizer_.state()) to_rows(array.span());
}

template <class T>
void InPanels<T>::from_rows(std::span<T> values) {
  std::ranges::copy(values, room_.data());
  layout_.from_rows(room_.span(), values);
}

template <class T>
void InPanels<T>::to_rows(std::span<T> values) {
  std::ranges::copy(values, room_.data());
  layout_.to_rows(room_.span(), values);
}

template class InPanels<float>;
template class InPanels<double>;

}  // namespace pdnn::engine
