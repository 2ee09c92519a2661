#include "pdnn/nn/workspace.hpp"

namespace pdnn::nn {

template <class T>
Workspace<T>::Workspace(const Network<T>& network, const Shape& in, Index capacity)
    : in_(in),
      out_(network.output_shape(in)),
      capacity_(capacity),
      x_(capacity * in.count()),
      values_(capacity * out_.count()),
      y_(capacity * out_.count()),
      dy_(capacity * out_.count()),
      classes_(capacity),
      rows_(2 * capacity) {
  const Sizes sizes = network.sizes(in);
  saved_ = Buffer<T>(sizes.saved + capacity * sizes.saved_row);
  scratch_ = Buffer<T>(sizes.scratch + capacity * sizes.scratch_row);
}

template class Workspace<float>;
template class Workspace<double>;

}  // namespace pdnn::nn
