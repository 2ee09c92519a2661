#include "pdnn/nn/layer.hpp"

#include <numeric>

namespace pdnn::nn {

Index Parameter::count() const { return element_count(shape); }

Index total(const std::vector<Parameter>& arrays) {
  return std::accumulate(arrays.begin(), arrays.end(), Index{0},
                         [](Index sum, const Parameter& array) { return sum + array.count(); });
}

}  // namespace pdnn::nn
