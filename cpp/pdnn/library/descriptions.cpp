#include "pdnn/descriptions.hpp"

#include <cmath>

#include "pdnn/library/json.hpp"

namespace pdnn {

namespace {

/// A JSON object being written: its type, then its options.
class Text {
 public:
  explicit Text(std::string_view type) : type_(type), text_("{\"type\": " + library::json_string(type)) {}

  Text& add(std::string_view name, Index number) { return add_json(name, std::to_string(number)); }
  Text& add(std::string_view name, double number) { return add_json(name, written(name, number)); }
  Text& add(std::string_view name, const Pair& pair) {
    if (pair.y == pair.x) return add(name, pair.y);
    return add_json(name, "[" + std::to_string(pair.y) + ", " + std::to_string(pair.x) + "]");
  }
  Text& add(std::string_view name, bool flag) { return add_json(name, flag ? "true" : "false"); }
  Text& add(std::string_view name, const std::string& word) { return add_json(name, library::json_string(word)); }
  Text& add(std::string_view name, const Init& init) {
    return add_json(name, "{\"distribution\": " + library::json_string(init.distribution) + ", \"value\": " +
                              written(name, init.value) + ", \"fan\": " + library::json_string(init.fan) + "}");
  }
  Text& add(std::string_view name, const std::vector<double>& numbers) {
    std::string all = "[";
    for (const double number : numbers) all += (all.size() > 1 ? ", " : "") + written(name, number);
    return add_json(name, all + "]");
  }
  Text& add_json(std::string_view name, const std::string& json) {
    text_ += ", " + library::json_string(name) + ": " + json;
    return *this;
  }
  std::string done() const { return text_ + "}"; }

 private:
  std::string written(std::string_view name, double number) const {
    require(std::isfinite(number), type_, ": ", name, " = ", number, "; expected a finite number");
    return library::written(number);
  }

  std::string_view type_;
  std::string text_;
};

std::string reduced(const char* type, const std::string& reduction) {
  return Text(type).add("reduction", reduction).done();
}

std::string normalized(const char* type, Index features, const BatchNormOptions& options) {
  return Text(type)
      .add("num_features", features)
      .add("eps", options.eps)
      .add("momentum", options.momentum)
      .add("sync", options.sync)
      .done();
}

std::string looked_up(Index count, Index width, const EmbeddingOptions& options) {
  Text text("Embedding");
  text.add("num_embeddings", count).add("embedding_dim", width);
  if (options.padding_idx) text.add("padding_idx", *options.padding_idx);
  return text.add("weight_init", options.weight_init).done();
}

struct Channels {
  Index in, out;
};

struct Windows {
  Pair kernel_size, stride, padding;
};

std::string convolved(const char* type, const Channels& channels, const Windows& windows, const ConvOptions& options) {
  return Text(type)
      .add("in_channels", channels.in)
      .add("out_channels", channels.out)
      .add("kernel_size", windows.kernel_size)
      .add("stride", windows.stride)
      .add("padding", windows.padding)
      .add("dilation", options.dilation)
      .add("groups", options.groups)
      .add("bias", options.bias)
      .add("weight_init", options.weight_init)
      .add("bias_init", options.bias_init)
      .done();
}

std::string pooled(const char* type, const Pair& kernel, const std::optional<Pair>& stride, const Pair& padding) {
  Text text(type);
  text.add("kernel_size", kernel).add("stride", stride.value_or(kernel));
  if (padding.y != 0 || padding.x != 0) text.add("padding", padding);
  return text.done();
}

template <class AnyOptions>
std::string adam(const char* type, const AnyOptions& options) {
  return Text(type)
      .add("lr", options.lr)
      .add("betas", std::vector{options.beta1, options.beta2})
      .add("eps", options.eps)
      .add("weight_decay", options.weight_decay)
      .done();
}

std::string chained(const std::vector<Layer>& layers) {
  std::string all = "[";
  for (const Layer& layer : layers) all += (all.size() > 1 ? ", " : "") + layer.json;
  return Text("Sequential").add_json("layers", all + "]").done();
}

}  // namespace

Init kaiming_uniform(double a) { return {"uniform", std::sqrt(6 / (1 + a * a)), "in"}; }
Init xavier_uniform(double gain) { return {"uniform", gain * std::sqrt(6.0), "sum"}; }

Linear::Linear(Index in_features, Index out_features, const LinearOptions& options)
    : Layer(Text("Linear")
                .add("in_features", in_features)
                .add("out_features", out_features)
                .add("bias", options.bias)
                .add("weight_init", options.weight_init)
                .add("bias_init", options.bias_init)
                .done()) {}
Embedding::Embedding(Index num_embeddings, Index embedding_dim, const EmbeddingOptions& options)
    : Layer(looked_up(num_embeddings, embedding_dim, options)) {}
Conv1d::Conv1d(Index in_channels, Index out_channels, Index kernel_size, Index stride, Index padding,
               const ConvOptions& options)
    : Layer(convolved("Conv1d", {in_channels, out_channels}, {kernel_size, stride, padding}, options)) {}
Conv2d::Conv2d(Index in_channels, Index out_channels, Pair kernel_size, Pair stride, Pair padding,
               const ConvOptions& options)
    : Layer(convolved("Conv2d", {in_channels, out_channels}, {kernel_size, stride, padding}, options)) {}
MaxPool1d::MaxPool1d(Index kernel_size, std::optional<Index> stride, Index padding)
    : Layer(pooled("MaxPool1d", kernel_size, stride, padding)) {}
AvgPool1d::AvgPool1d(Index kernel_size, std::optional<Index> stride, Index padding)
    : Layer(pooled("AvgPool1d", kernel_size, stride, padding)) {}
AdaptiveAvgPool1d::AdaptiveAvgPool1d() : Layer(Text("AdaptiveAvgPool1d").add("output_size", Index{1}).done()) {}
MaxPool2d::MaxPool2d(Pair kernel_size, std::optional<Pair> stride, Pair padding)
    : Layer(pooled("MaxPool2d", kernel_size, stride, padding)) {}
AvgPool2d::AvgPool2d(Pair kernel_size, std::optional<Pair> stride, Pair padding)
    : Layer(pooled("AvgPool2d", kernel_size, stride, padding)) {}
AdaptiveAvgPool2d::AdaptiveAvgPool2d() : Layer(Text("AdaptiveAvgPool2d").add("output_size", Index{1}).done()) {}
BatchNorm1d::BatchNorm1d(Index num_features, const BatchNormOptions& options)
    : Layer(normalized("BatchNorm1d", num_features, options)) {}
BatchNorm2d::BatchNorm2d(Index num_features, const BatchNormOptions& options)
    : Layer(normalized("BatchNorm2d", num_features, options)) {}
LayerNorm::LayerNorm(Index features, double eps)
    : Layer(Text("LayerNorm").add("normalized_shape", features).add("eps", eps).done()) {}
ReLU::ReLU() : Layer(Text("ReLU").done()) {}
Sigmoid::Sigmoid() : Layer(Text("Sigmoid").done()) {}
Tanh::Tanh() : Layer(Text("Tanh").done()) {}
LeakyReLU::LeakyReLU(double negative_slope) : Layer(Text("LeakyReLU").add("negative_slope", negative_slope).done()) {}
ELU::ELU(double alpha) : Layer(Text("ELU").add("alpha", alpha).done()) {}
Softplus::Softplus(double beta, double threshold)
    : Layer(Text("Softplus").add("beta", beta).add("threshold", threshold).done()) {}
GELU::GELU() : Layer(Text("GELU").done()) {}
SiLU::SiLU() : Layer(Text("SiLU").done()) {}
Softmax::Softmax() : Layer(Text("Softmax").done()) {}
LogSoftmax::LogSoftmax() : Layer(Text("LogSoftmax").done()) {}
Flatten::Flatten() : Layer(Text("Flatten").done()) {}
Transpose::Transpose() : Layer(Text("Transpose").done()) {}
Dropout::Dropout(double p) : Layer(Text("Dropout").add("p", p).done()) {}
Chain::Chain(const std::vector<Layer>& layers) : Layer(chained(layers)) {}
Residual::Residual(const Layer& fn) : Layer(Text("Residual").add_json("fn", fn.json).done()) {}

CrossEntropyLoss::CrossEntropyLoss(const std::string& reduction, const CrossEntropyOptions& options)
    : Loss(Text("CrossEntropyLoss")
               .add("reduction", reduction)
               .add("weight", options.weight)
               .add("label_smoothing", options.label_smoothing)
               .done()) {}
NLLLoss::NLLLoss(const std::string& reduction) : Loss(reduced("NLLLoss", reduction)) {}
MSELoss::MSELoss(const std::string& reduction) : Loss(reduced("MSELoss", reduction)) {}
L1Loss::L1Loss(const std::string& reduction) : Loss(reduced("L1Loss", reduction)) {}
SmoothL1Loss::SmoothL1Loss(const std::string& reduction, double beta)
    : Loss(Text("SmoothL1Loss").add("reduction", reduction).add("beta", beta).done()) {}
HuberLoss::HuberLoss(const std::string& reduction, double delta)
    : Loss(Text("HuberLoss").add("reduction", reduction).add("delta", delta).done()) {}
BCELoss::BCELoss(const std::string& reduction) : Loss(reduced("BCELoss", reduction)) {}
BCEWithLogitsLoss::BCEWithLogitsLoss(const std::string& reduction) : Loss(reduced("BCEWithLogitsLoss", reduction)) {}
PoissonNLLLoss::PoissonNLLLoss(const PoissonOptions& options, const std::string& reduction)
    : Loss(Text("PoissonNLLLoss")
               .add("reduction", reduction)
               .add("log_input", options.log_input)
               .add("full", options.full)
               .add("eps", options.eps)
               .done()) {}
QuantileLoss::QuantileLoss(const std::vector<double>& quantiles, const std::string& reduction)
    : Loss(Text("QuantileLoss").add("reduction", reduction).add("quantile", quantiles).done()) {}

SGD::SGD(const SgdOptions& options)
    : Optimizer(Text("SGD")
                    .add("lr", library::existing(options.lr ? &*options.lr : nullptr,
                                                 "SGD: lr is missing; pass a number, as in SGD({.lr = 0.1})"))
                    .add("momentum", options.momentum)
                    .add("weight_decay", options.weight_decay)
                    .add("nesterov", options.nesterov)
                    .done()) {}
Adam::Adam(const AdamOptions& options) : Optimizer(adam("Adam", options)) {}
AdamW::AdamW(const AdamWOptions& options) : Optimizer(adam("AdamW", options)) {}
Lion::Lion(const LionOptions& options)
    : Optimizer(Text("Lion")
                    .add("lr", options.lr)
                    .add("betas", std::vector{options.beta1, options.beta2})
                    .add("weight_decay", options.weight_decay)
                    .done()) {}
RMSprop::RMSprop(const RmsPropOptions& options)
    : Optimizer(Text("RMSprop")
                    .add("lr", options.lr)
                    .add("alpha", options.alpha)
                    .add("eps", options.eps)
                    .add("weight_decay", options.weight_decay)
                    .add("momentum", options.momentum)
                    .add("centered", options.centered)
                    .done()) {}

}  // namespace pdnn
