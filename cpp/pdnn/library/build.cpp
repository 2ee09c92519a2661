#include "pdnn/library/build.hpp"

#include <algorithm>
#include <cmath>

#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/conv2d.hpp"
#include "pdnn/nn/layers/curves.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/nn/layers/embedding.hpp"
#include "pdnn/nn/layers/flatten.hpp"
#include "pdnn/nn/layers/layer_norm.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/layers/pool2d.hpp"
#include "pdnn/nn/layers/residual.hpp"
#include "pdnn/nn/layers/softmax.hpp"
#include "pdnn/nn/layers/transpose.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/losses/elementwise.hpp"
#include "pdnn/nn/losses/nll.hpp"

namespace pdnn::library {

namespace {

constexpr const char* kWeightInit = "weight_init";
constexpr const char* kBiasInit = "bias_init";

nn::Init read_init(Options& layer, const char* name, Index fan_in, Index fan_out) {
  std::string distribution = "uniform", fan = "in";
  double value = 1;
  if (const Json* const given = layer.find(name)) {
    const auto* const members = given->as<Json::Object>();
    layer.check(members, name, "an object with its distribution, value and fan");
    for (const auto& [key, member] : *members)
      layer.check(key == "value" || ((key == "distribution" || key == "fan") && member.as<std::string>()), name,
                  "its distribution and fan, which are words, and its value alone");
    const auto word = [&](const char* key, const std::string& otherwise) {
      const auto* const found = given->find_as<std::string>(key);
      return found ? *found : otherwise;
    };
    distribution = word("distribution", distribution);
    fan = word("fan", fan);
    if (const Json* const number = given->find("value")) value = as_double(layer.type() + ": " + name, *number);
  }
  using enum nn::Init::Kind;
  const bool known = distribution == "uniform" || distribution == "normal" || distribution == "constant";
  layer.check(known, name, "the distribution uniform, normal or constant");
  layer.check(fan == "none" || fan == "in" || fan == "out" || fan == "sum", name, "the fan none, in, out or sum");
  const Index units = fan == "none" ? 1 : fan == "in" ? fan_in : fan == "out" ? fan_out : fan_in + fan_out;
  return {distribution == "uniform"  ? uniform
          : distribution == "normal" ? normal
                                     : constant,
          value / std::sqrt(static_cast<double>(units))};
}

template <class T>
nn::LayerPtr<T> build_layer(const Json& json, kernels::Precision precision);

template <class T>
std::shared_ptr<nn::Network<T>> build_layers(const Json* layers, kernels::Precision precision) {
  const auto* const all = layers ? layers->as<Json::Array>() : nullptr;
  std::vector<nn::LayerPtr<T>> built;
  for (const Json& layer : existing(all, "Sequential: \"layers\" is no list of layers"))
    built.push_back(build_layer<T>(layer, precision));
  return std::make_shared<nn::Network<T>>(std::move(built));
}

bool on_lines(const Options& of) { return of.type().ends_with("1d"); }

template <class T>
nn::LayerPtr<T> build_linear(Options& of, kernels::Precision precision) {
  const Index inputs = of.integer("in_features", 1), outputs = of.integer("out_features", 1);
  const nn::Init weight = read_init(of, kWeightInit, inputs, outputs), bias = read_init(of, kBiasInit, inputs, outputs);
  return std::make_shared<nn::Linear<T>>(inputs, outputs, of.flag("bias", true), weight, bias, precision);
}

template <class T>
nn::LayerPtr<T> build_embedding(Options& of) {
  const Index count = of.integer("num_embeddings", 1), width = of.integer("embedding_dim", 1);
  std::optional<Index> padding;
  if (of.find("padding_idx")) padding = of.integer("padding_idx", 0);
  of.check(!padding || *padding < count, "padding_idx", "one of its rows");
  const nn::Init init =
      of.find(kWeightInit) ? read_init(of, kWeightInit, count, width) : nn::Init{nn::Init::Kind::normal, 1};
  return std::make_shared<nn::Embedding<T>>(count, width, init, padding);
}

/// A number for both axes of images, or one for each; of lines one, beside the least for their single row.
nn::Pair read_pair(Options& of, const char* name, Index least, std::optional<nn::Pair> otherwise = {}) {
  const Json* const given = of.find(name);
  if (on_lines(of)) return {least, given || !otherwise ? of.integer(name, least) : otherwise->x};
  const auto* const both = given ? given->as<Json::Array>() : nullptr;
  if (!both) return given || !otherwise ? nn::Pair(of.integer(name, least)) : *otherwise;
  of.check(both->size() == 2, name, "a number, or one for each axis");
  const std::string where = of.type() + ": " + name;
  const nn::Pair pair{as_index(where, both->front()), as_index(where, both->back())};
  of.check(std::min(pair.y, pair.x) >= least, name, least == 0 ? "numbers from 0" : "numbers from 1");
  return pair;
}

template <class T>
nn::LayerPtr<T> build_convolution(Options& of, kernels::Precision precision) {
  const Index inputs = of.integer("in_channels", 1), outputs = of.integer("out_channels", 1);
  const Index groups = of.integer("groups", 1, 1);
  of.check(inputs % groups == 0 && outputs % groups == 0, "groups", "a divisor of both numbers of channels");
  const nn::WindowOptions windows{.kernel = read_pair(of, "kernel_size", 1),
                                  .stride = read_pair(of, "stride", 1, 1),
                                  .padding = read_pair(of, "padding", 0, 0),
                                  .dilation = read_pair(of, "dilation", 1, 1),
                                  .line = on_lines(of)};
  const Index taps = windows.kernel.y * windows.kernel.x, fan_in = taps * inputs / groups, fan_out = taps * outputs;
  const nn::Init weight = read_init(of, kWeightInit, fan_in, fan_out);
  const nn::Init bias = read_init(of, kBiasInit, fan_in, fan_out);
  return std::make_shared<nn::Conv2d<T>>(inputs, outputs, windows, of.flag("bias", true), weight, bias, precision,
                                         groups);
}

template <class T>
nn::LayerPtr<T> build_batch_norm(Options& of, bool images) {
  typename nn::BatchNorm<T>::Options options{.channels = of.integer("num_features", 1), .images = images};
  options.eps = of.number("eps", 1e-5);
  options.momentum = of.number("momentum", 0.1);
  options.sync = of.flag("sync", false);
  of.check(options.eps > 0, "eps", "a number above 0");
  of.check(options.momentum >= 0 && options.momentum <= 1, "momentum", "a number in [0, 1]");
  return std::make_shared<nn::BatchNorm<T>>(options);
}

template <class T>
nn::LayerPtr<T> build_known(Options& of, kernels::Precision precision) {
  using kernels::Activation;
  const std::string& type = of.type();
  if (type == "Linear") return build_linear<T>(of, precision);
  if (type == "Embedding") return build_embedding<T>(of);
  if (type == "Conv1d" || type == "Conv2d") return build_convolution<T>(of, precision);
  if (type == "BatchNorm1d") return build_batch_norm<T>(of, false);
  if (type == "BatchNorm2d") return build_batch_norm<T>(of, true);
  if (type == "Sequential") return build_layers<T>(of.find("layers"), precision);
  if (type == "Flatten") return std::make_shared<nn::Flatten<T>>();
  if (type == "Transpose") return std::make_shared<nn::Transpose<T>>();
  if (type == "ReLU") return std::make_shared<nn::ActivationLayer<T>>(Activation::relu);
  if (type == "Sigmoid") return std::make_shared<nn::ActivationLayer<T>>(Activation::sigmoid);
  if (type == "Tanh") return std::make_shared<nn::ActivationLayer<T>>(Activation::tanh);
  if (type == "ELU") return std::make_shared<nn::CurveLayer<T>>(type, of.number("alpha", 1));
  if (type == "Softplus") {
    const double beta = of.number("beta", 1);
    of.check(beta > 0, "beta", "a number above 0");
    return std::make_shared<nn::CurveLayer<T>>(type, beta, of.number("threshold", 20));
  }
  if (type == "GELU" || type == "SiLU") return std::make_shared<nn::CurveLayer<T>>(type);
  if (type == "Softmax") return std::make_shared<nn::Softmax<T>>(false);
  if (type == "LogSoftmax") return std::make_shared<nn::Softmax<T>>(true);
  if (type == "LeakyReLU") return std::make_shared<nn::LeakyReLU<T>>(of.number("negative_slope", 0.01));
  if (type == "Residual") {
    const Json& inner = existing(of.find("fn"), "Residual: fn is missing");
    return std::make_shared<nn::Residual<T>>(build_layer<T>(inner, precision));
  }
  if (type == "Dropout") {
    const double p = of.number("p", 0.5);
    of.check(p >= 0 && p < 1, "p", "a number in [0, 1)");
    return std::make_shared<nn::Dropout<T>>(p);
  }
  if (type == "LayerNorm") {
    const double eps = of.number("eps", 1e-5);
    of.check(eps > 0, "eps", "a number above 0");
    return std::make_shared<nn::LayerNorm<T>>(of.integer("normalized_shape", 1), eps);
  }
  if (type == "MaxPool1d" || type == "MaxPool2d" || type == "AvgPool1d" || type == "AvgPool2d") {
    const nn::Pair kernel = read_pair(of, "kernel_size", 1);
    const nn::Pair stride = read_pair(of, "stride", 1, kernel), padding = read_pair(of, "padding", 0, 0);
    of.check(2 * padding.y <= kernel.y && 2 * padding.x <= kernel.x, "padding", "at most half of kernel_size");
    const nn::WindowOptions windows{.kernel = kernel, .stride = stride, .padding = padding, .line = on_lines(of)};
    if (type.starts_with("Avg")) return std::make_shared<nn::AvgPool2d<T>>(windows);
    of.check(kernel.y * kernel.x <= 256, "kernel_size", "a window of at most 256 elements");
    return std::make_shared<nn::MaxPool2d<T>>(windows);
  }
  if (type == "AdaptiveAvgPool1d" || type == "AdaptiveAvgPool2d") {
    of.check(of.integer("output_size", 1, 1) == 1, "output_size", "1");
    return std::make_shared<nn::GlobalAvgPool2d<T>>(on_lines(of));
  }
  throw ValueError(message("there is no layer \"", type, "\"; pdnn/descriptions.hpp has their names"));
}

template <class T>
nn::LayerPtr<T> build_layer(const Json& json, kernels::Precision precision) {
  Options options(json);
  nn::LayerPtr<T> layer = build_known<T>(options, precision);
  options.done();
  return layer;
}

template <class T>
std::shared_ptr<nn::Loss<T>> build_known_loss(Options& of, nn::Reduction reduction) {
  const std::string& type = of.type();
  if (type == "CrossEntropyLoss") {
    const std::vector<double> weight = of.numbers("weight");
    const double smoothing = of.number("label_smoothing", 0);
    of.check(std::ranges::all_of(weight, [](double w) { return w >= 0; }), "weight", "numbers from 0");
    of.check(smoothing >= 0 && smoothing <= 1, "label_smoothing", "a number in [0, 1]");
    return std::make_shared<nn::CrossEntropyLoss<T>>(reduction, weight, smoothing);
  }
  if (type == "SmoothL1Loss") {
    const double beta = of.number("beta", 1);
    of.check(beta >= 0, "beta", "a number, 0 or more");
    return std::make_shared<nn::SmoothL1Loss<T>>(reduction, nn::SmoothAbsoluteError{beta});
  }
  if (type == "HuberLoss") {
    const double delta = of.number("delta", 1);
    of.check(delta > 0, "delta", "a number above 0");
    return std::make_shared<nn::HuberLoss<T>>(reduction, nn::HuberError{delta});
  }
  if (type == "PoissonNLLLoss") {
    const nn::PoissonLikelihood likelihood{of.flag("log_input", true), of.flag("full", false), of.number("eps", 1e-8)};
    of.check(likelihood.eps > 0, "eps", "a number above 0");
    return std::make_shared<nn::PoissonNLLLoss<T>>(reduction, likelihood);
  }
  if (type == "QuantileLoss") {
    std::vector<double> quantiles = of.numbers("quantile");
    if (!of.find("quantile")) quantiles = {0.5};
    const bool valid = !quantiles.empty() && std::ranges::all_of(quantiles, [](double q) { return q > 0 && q < 1; });
    of.check(valid, "quantile", "numbers in (0, 1)");
    return std::make_shared<nn::QuantileLoss<T>>(reduction, nn::QuantileError{std::move(quantiles)});
  }
  if (type == "NLLLoss") return std::make_shared<nn::NLLLoss<T>>(reduction);
  if (type == "MSELoss") return std::make_shared<nn::MSELoss<T>>(reduction);
  if (type == "L1Loss") return std::make_shared<nn::L1Loss<T>>(reduction);
  if (type == "BCELoss") return std::make_shared<nn::BCELoss<T>>(reduction);
  if (type == "BCEWithLogitsLoss") return std::make_shared<nn::BCEWithLogitsLoss<T>>(reduction);
  throw ValueError(message("there is no loss \"", type, "\"; pdnn/descriptions.hpp has their names"));
}

double share_of(Options& of, const char* name, double otherwise) {
  const double number = of.number(name, otherwise);
  of.check(number >= 0 && number < 1, name, "a number in [0, 1)");
  return number;
}

double positive_or_0(Options& of, const char* name, std::optional<double> otherwise) {
  const double number = of.number(name, otherwise);
  of.check(number >= 0, name, "a number from 0");
  return number;
}

std::array<double, 2> read_betas(Options& of, double second) {
  const std::vector<double> betas = of.numbers("betas");
  if (!of.find("betas")) return {0.9, second};
  const bool valid = betas.size() == 2 && std::ranges::all_of(betas, [](double b) { return b >= 0 && b < 1; });
  of.check(valid, "betas", "two numbers in [0, 1)");
  return {betas[0], betas[1]};
}

}  // namespace

template <class T>
std::shared_ptr<nn::Network<T>> build_network(const Json& architecture, kernels::Precision precision) {
  return build_layers<T>(architecture.find("layers"), precision);
}

Json kept(const Json& architecture) {
  Json all = architecture;
  if (auto* const array = std::get_if<Json::Array>(&all.value))
    for (Json& item : *array) item = kept(item);
  if (auto* const object = std::get_if<Json::Object>(&all.value)) {
    std::erase_if(*object,
                  [](const Json::Member& member) { return member.name == kWeightInit || member.name == kBiasInit; });
    for (auto& [name, member] : *object) member = kept(member);
  }
  return all;
}

template <class T>
std::shared_ptr<nn::Loss<T>> build_loss(const Json& loss) {
  Options options(loss);
  const std::string reduction = options.word("reduction", "mean");
  options.check(reduction == "mean" || reduction == "sum" || reduction == "batchmean", "reduction",
                "\"mean\", \"sum\" or \"batchmean\"");
  using enum nn::Reduction;
  const auto built = build_known_loss<T>(options, reduction == "mean" ? mean : reduction == "sum" ? sum : batchmean);
  options.done();
  return built;
}

OptimizerNumbers read_optimizer(const Json& optimizer) {
  Options of(optimizer);
  const std::string& type = of.type();
  std::optional<double> lr;
  double decay = 0;
  kernels::Rule rule;
  if (type == "SGD") {
    rule = kernels::Sgd{share_of(of, "momentum", 0), of.flag("nesterov", false)};
    const auto& sgd = std::get<kernels::Sgd>(rule);
    of.check(!sgd.nesterov || sgd.momentum > 0, "nesterov", "a momentum above 0 with it");
  } else if (type == "Adam" || type == "AdamW") {
    const auto [first, second] = read_betas(of, 0.999);
    rule = kernels::Adam{first, second, positive_or_0(of, "eps", 1e-8), type == "AdamW"};
    lr = 1e-3;
    decay = type == "AdamW" ? 0.01 : 0;
  } else if (type == "Lion") {
    const auto [first, second] = read_betas(of, 0.99);
    rule = kernels::Lion{first, second};
    lr = 1e-4;
  } else if (type == "RMSprop") {
    rule = kernels::RmsProp{share_of(of, "alpha", 0.99), positive_or_0(of, "eps", 1e-8), share_of(of, "momentum", 0),
                            of.flag("centered", false)};
    lr = 1e-2;
  } else {
    throw ValueError(message("there is no optimizer \"", type, "\"; expected SGD, Adam, AdamW, Lion or RMSprop"));
  }
  const OptimizerNumbers numbers{rule, positive_or_0(of, "lr", lr), positive_or_0(of, "weight_decay", decay)};
  of.done();
  return numbers;
}

template std::shared_ptr<nn::Network<float>> build_network(const Json&, kernels::Precision);
template std::shared_ptr<nn::Network<double>> build_network(const Json&, kernels::Precision);
template std::shared_ptr<nn::Loss<float>> build_loss(const Json&);
template std::shared_ptr<nn::Loss<double>> build_loss(const Json&);

}  // namespace pdnn::library
