#pragma once
/// Custom: a layer that an extension brings, by the functions of pdnn/custom/layer.hpp.
#include <memory>

#include "pdnn/custom/layer.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// Every call goes to the extension, which knows no leaves and no batches without rows: what it adds up over rows is
/// asked for leaf by leaf here, and joined by their tree.
template <class T>
class Custom : public Layer<T> {
 public:
  /// ValueError if it is of another version or another type of numbers; then it is left alone. Else it is destroyed
  /// with this object. `name` is for messages.
  Custom(std::string name, custom::abi::Layer* layer);

  std::string_view name() const override { return name_; }
  std::vector<Parameter> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 private:
  struct Destroy {
    void operator()(custom::abi::Layer* layer) const { layer->destroy(layer); }
  };
  using Function = decltype(custom::abi::Layer::forward);

  Index saved_elements(const Shape& in) const;
  void check(const custom::abi::Outcome& outcome) const;
  void call(Function function, const Pass& pass, custom::abi::Call call, const Shape& in, const Shape& out) const;
  void add_gradients(const Pass& pass, custom::abi::Call call, Range rows, const Shape& in, const Shape& out,
                     T* grads) const;

  std::string name_;
  std::unique_ptr<custom::abi::Layer, Destroy> layer_;
  std::vector<Parameter> parameters_;
  Index count_ = 0;  // of parameters
};

}  // namespace pdnn::nn
