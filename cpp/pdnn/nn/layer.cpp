#include "pdnn/nn/layer.hpp"

#include <functional>
#include <numeric>

namespace pdnn::nn {

Index Parameter::count() const { return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>()); }

Index total(const std::vector<Parameter>& parameters) {
  return std::accumulate(parameters.begin(), parameters.end(), Index{0},
                         [](Index sum, const Parameter& parameter) { return sum + parameter.count(); });
}

}  // namespace pdnn::nn
