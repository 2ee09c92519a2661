#include "pdnn/engine/in_panels.hpp"

namespace pdnn::engine {

template <class T>
InPanels<T>::InPanels(const nn::Network<T>& network, nn::Model<T>& model, optim::Optimizer<T>& optimizer)
    : network_(network), model_(model), optimizer_(optimizer), room_(model.count()) {
  network_.to_panels(model_.params->span(), room_.span());
  for (Buffer<T>& memory : optimizer_.memory()) network_.to_panels(memory.span(), room_.span());
}

template <class T>
InPanels<T>::~InPanels() {
  network_.from_panels(model_.params->span(), room_.span());
  network_.from_panels(model_.grads->span(), room_.span());
  for (Buffer<T>& memory : optimizer_.memory()) network_.from_panels(memory.span(), room_.span());
}

template class InPanels<float>;
template class InPanels<double>;

}  // namespace pdnn::engine
