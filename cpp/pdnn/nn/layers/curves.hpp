#pragma once
/// Activations whose derivative is computed from x: LeakyReLU and the curves. They stand alone, where those of
/// activation.hpp are fused.
#include <algorithm>
#include <array>

#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// y = x where x > 0, else slope · x.
template <class T>
class LeakyReLU : public Layer<T> {
 public:
  explicit LeakyReLU(double slope) : slope_(static_cast<T>(slope)) {}

  std::string_view name() const override { return "LeakyReLU"; }
  Traits traits() const override { return {.elementwise = true}; }
  void forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const override {
    kernels::table<T>().leaky_relu(*pass.team, slope_, x.count(), x.data, x.data, y.data);
  }
  void backward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy, Tensor<T> dx,
                std::span<T>) const override {
    if (dx.wanted()) kernels::table<T>().leaky_relu(*pass.team, slope_, x.count(), x.data, dy.data, dx.data);
  }

 private:
  T slope_;
};

/// The names of kernels::Curve, in its order.
inline constexpr std::array<std::string_view, 4> kCurves = {"GELU", "SiLU", "ELU", "Softplus"};

/// y = f(x), f being one of them, with the numbers a and b if it has any.
template <class T>
class CurveLayer : public Layer<T> {
 public:
  /// Throws ValueError if the name is none of kCurves.
  explicit CurveLayer(std::string_view name, double a = 1, double b = 20) : curve_(kernels::Curve::gelu, a, b) {
    const auto* const at = std::find(kCurves.begin(), kCurves.end(), name);
    require(at != kCurves.end(), "Curve: ", name, " is none that the core has");
    curve_.kind = static_cast<kernels::Curve::Kind>(at - kCurves.begin());
  }

  std::string_view name() const override { return kCurves[curve_.kind]; }
  Traits traits() const override { return {.elementwise = true}; }
  void forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const override {
    kernels::table<T>().curve(*pass.team, curve_, x.count(), x.data, y.data);
  }
  void backward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy, Tensor<T> dx,
                std::span<T>) const override {
    if (dx.wanted()) kernels::table<T>().curve_backward(*pass.team, curve_, x.count(), x.data, dy.data, dx.data);
  }

 private:
  kernels::Curve curve_;
};

}  // namespace pdnn::nn
