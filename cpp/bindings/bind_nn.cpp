/// Layers, losses and models.
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/comm/waiting.hpp"
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
#include "pdnn/nn/model.hpp"
#include "target.hpp"

namespace pdnn::bindings {

namespace {

nn::Reduction reduction_of(const std::string& name) {
  if (name == "mean") return nn::Reduction::mean;
  if (name == "sum") return nn::Reduction::sum;
  if (name == "batchmean") return nn::Reduction::batchmean;
  throw ValueError(message("reduction \"", name, "\"; expected \"mean\", \"sum\" or \"batchmean\""));
}

nn::Init init_of(const std::pair<std::string, double>& init) {
  if (init.first == "uniform") return {nn::Init::Kind::uniform, init.second};
  if (init.first == "normal") return {nn::Init::Kind::normal, init.second};
  if (init.first == "constant") return {nn::Init::Kind::constant, init.second};
  throw ValueError(message("init \"", init.first, "\"; expected \"uniform\", \"normal\" or \"constant\""));
}

/// A number for each axis of an image, or the one of a line, which is an image of one row.
nn::Pair pair_of(const std::vector<Index>& numbers, Index of_row) {
  return numbers.size() == 1 ? nn::Pair(of_row, numbers[0]) : nn::Pair(numbers.at(0), numbers.at(1));
}

nn::WindowOptions windows_of(const std::vector<Index>& kernel, const std::vector<Index>& stride,
                             const std::vector<Index>& padding = {0, 0}, const std::vector<Index>& dilation = {1, 1}) {
  return {pair_of(kernel, 1), pair_of(stride, 1), pair_of(padding, 0), pair_of(dilation, 1), kernel.size() == 1};
}

kernels::Precision precision_of(bool bfloat16) {
  return bfloat16 ? kernels::Precision::bfloat16 : kernels::Precision::full;
}

kernels::Activation activation_of(const std::string& name) {
  if (name == "relu") return kernels::Activation::relu;
  if (name == "sigmoid") return kernels::Activation::sigmoid;
  if (name == "tanh") return kernels::Activation::tanh;
  throw ValueError(message("activation \"", name, "\"; expected \"relu\", \"sigmoid\" or \"tanh\""));
}

template <class T, class L>
void bind_loss(py::module_& m, const char* name) {
  py::class_<L, nn::Loss<T>, std::shared_ptr<L>>(m, name).def(
      py::init([](const std::string& reduction) { return std::make_shared<L>(reduction_of(reduction)); }),
      py::arg("reduction"));
}

template <class T>
void bind_losses(py::module_& m) {
  py::class_<nn::Loss<T>, std::shared_ptr<nn::Loss<T>>>(m, "Loss")
      .def("classifies", &nn::Loss<T>::classifies, py::arg("target_width"),
           "Whether predictions can be right or wrong with targets of this width (0: classes).")
      .def("reduce", &nn::Loss<T>::reduce, py::arg("value"), py::arg("weight"),
           "The loss of a batch from the sum of its rows' losses, and what these count: their number, unless they "
           "are weighed.");
  const auto loss = [&]<class L>(std::type_identity<L>, const char* name) {
    return py::class_<L, nn::Loss<T>, std::shared_ptr<L>>(m, name);
  };
  loss(std::type_identity<nn::CrossEntropyLoss<T>>{}, "CrossEntropyLoss")
      .def(py::init([](const std::string& reduction, std::vector<double> weight, double label_smoothing) {
             return std::make_shared<nn::CrossEntropyLoss<T>>(reduction_of(reduction), std::move(weight),
                                                              label_smoothing);
           }),
           py::arg("reduction"), py::arg("weight") = std::vector<double>(), py::arg("label_smoothing") = 0.0);
  loss(std::type_identity<nn::SmoothL1Loss<T>>{}, "SmoothL1Loss")
      .def(py::init([](const std::string& reduction, double beta) {
             return std::make_shared<nn::SmoothL1Loss<T>>(reduction_of(reduction), nn::SmoothAbsoluteError{beta});
           }),
           py::arg("reduction"), py::arg("beta"));
  loss(std::type_identity<nn::HuberLoss<T>>{}, "HuberLoss")
      .def(py::init([](const std::string& reduction, double delta) {
             return std::make_shared<nn::HuberLoss<T>>(reduction_of(reduction), nn::HuberError{delta});
           }),
           py::arg("reduction"), py::arg("delta"));
  loss(std::type_identity<nn::PoissonNLLLoss<T>>{}, "PoissonNLLLoss")
      .def(py::init([](const std::string& reduction, bool log_input, bool full, double eps) {
             return std::make_shared<nn::PoissonNLLLoss<T>>(reduction_of(reduction),
                                                            nn::PoissonLikelihood{log_input, full, eps});
           }),
           py::arg("reduction"), py::arg("log_input"), py::arg("full"), py::arg("eps"));
  loss(std::type_identity<nn::QuantileLoss<T>>{}, "QuantileLoss")
      .def(py::init([](const std::string& reduction, std::vector<double> quantiles) {
             return std::make_shared<nn::QuantileLoss<T>>(reduction_of(reduction),
                                                          nn::QuantileError{std::move(quantiles)});
           }),
           py::arg("reduction"), py::arg("quantiles"));
  bind_loss<T, nn::L1Loss<T>>(m, "L1Loss");
  bind_loss<T, nn::NLLLoss<T>>(m, "NLLLoss");
  bind_loss<T, nn::MSELoss<T>>(m, "MSELoss");
  bind_loss<T, nn::BCELoss<T>>(m, "BCELoss");
  bind_loss<T, nn::BCEWithLogitsLoss<T>>(m, "BCEWithLogitsLoss");
}

template <class T>
void bind_layers(py::module_& m) {
  using Init = std::pair<std::string, double>;
  using Numbers = std::vector<Index>;
  py::class_<nn::Layer<T>, std::shared_ptr<nn::Layer<T>>>(m, "Layer")
      .def(
          "output_shape",
          [](const nn::Layer<T>& layer, const std::vector<Index>& sample) {
            return to_extents(layer.output_shape(to_shape(sample)));
          },
          py::arg("sample"))
      .def(
          "initialize",
          [](const nn::Layer<T>& layer, std::uint64_t seed, const std::vector<std::uint64_t>& path, py::array params,
             py::array buffers) {
            Rng rng(seed);
            for (const std::uint64_t number : path) rng = rng.child(number);
            const std::span<T> values = write<T>("initialize: params", params);
            const std::span<T> buffer_values = write<T>("initialize: buffers", buffers);
            const Index count = nn::total(layer.parameters()), buffer_count = nn::total(layer.buffers());
            require(std::ssize(values) == count && std::ssize(buffer_values) == buffer_count,
                    "initialize: ", layer.name(), " has ", count, " parameters and buffers of ", buffer_count,
                    ", got room for ", values.size(), " and ", buffer_values.size());
            layer.initialize(rng, values, buffer_values);
          },
          py::arg("seed"), py::arg("path"), py::arg("params"), py::arg("buffers"),
          "Draws the initial values of the layer at this place: its index in its parent, its parent's, and so on.");
  const auto layer = [&]<class L>(std::type_identity<L>, const char* name) {
    return py::class_<L, nn::Layer<T>, std::shared_ptr<L>>(m, name);
  };
  layer(std::type_identity<nn::Linear<T>>{}, "Linear")
      .def(py::init([](Index inputs, Index outputs, bool bias, const Init& weight_init, const Init& bias_init,
                       bool bfloat16) {
             return std::make_shared<nn::Linear<T>>(inputs, outputs, bias, init_of(weight_init), init_of(bias_init),
                                                    precision_of(bfloat16));
           }),
           py::arg("inputs"), py::arg("outputs"), py::arg("bias"), py::arg("weight_init"), py::arg("bias_init"),
           py::arg("bfloat16") = false);
  layer(std::type_identity<nn::Conv2d<T>>{}, "Conv2d")
      .def(py::init([](Index inputs, Index outputs, const Numbers& kernel, const Numbers& stride,
                       const Numbers& padding, const Numbers& dilation, Index groups, bool bias,
                       const Init& weight_init, const Init& bias_init, bool bfloat16) {
             return std::make_shared<nn::Conv2d<T>>(inputs, outputs, windows_of(kernel, stride, padding, dilation),
                                                    bias, init_of(weight_init), init_of(bias_init),
                                                    precision_of(bfloat16), groups);
           }),
           py::arg("inputs"), py::arg("outputs"), py::arg("kernel"), py::arg("stride"), py::arg("padding"),
           py::arg("dilation"), py::arg("groups"), py::arg("bias"), py::arg("weight_init"), py::arg("bias_init"),
           py::arg("bfloat16") = false);
  layer(std::type_identity<nn::Embedding<T>>{}, "Embedding")
      .def(py::init([](Index count, Index width, std::optional<Index> padding, const Init& init) {
             return std::make_shared<nn::Embedding<T>>(count, width, init_of(init), padding);
           }),
           py::arg("count"), py::arg("width"), py::arg("padding"), py::arg("init"));
  layer(std::type_identity<nn::MaxPool2d<T>>{}, "MaxPool2d")
      .def(py::init([](const Numbers& kernel, const Numbers& stride, const Numbers& padding) {
             return std::make_shared<nn::MaxPool2d<T>>(windows_of(kernel, stride, padding));
           }),
           py::arg("kernel"), py::arg("stride"), py::arg("padding"));
  layer(std::type_identity<nn::AvgPool2d<T>>{}, "AvgPool2d")
      .def(py::init([](const Numbers& kernel, const Numbers& stride, const Numbers& padding) {
             return std::make_shared<nn::AvgPool2d<T>>(windows_of(kernel, stride, padding));
           }),
           py::arg("kernel"), py::arg("stride"), py::arg("padding"));
  layer(std::type_identity<nn::GlobalAvgPool2d<T>>{}, "GlobalAvgPool2d").def(py::init<bool>(), py::arg("line") = false);
  layer(std::type_identity<nn::ActivationLayer<T>>{}, "Activation")
      .def(py::init([](const std::string& function) {
             return std::make_shared<nn::ActivationLayer<T>>(activation_of(function));
           }),
           py::arg("function"));
  layer(std::type_identity<nn::BatchNorm<T>>{}, "BatchNorm")
      .def(py::init([](Index channels, bool images, double eps, double momentum, bool sync) {
             using Options = typename nn::BatchNorm<T>::Options;
             return std::make_shared<nn::BatchNorm<T>>(Options{channels, images, eps, momentum, sync});
           }),
           py::arg("channels"), py::arg("images"), py::arg("eps"), py::arg("momentum"), py::arg("sync"));
  layer(std::type_identity<nn::LayerNorm<T>>{}, "LayerNorm")
      .def(py::init<Index, double>(), py::arg("features"), py::arg("eps"));
  layer(std::type_identity<nn::LeakyReLU<T>>{}, "LeakyReLU").def(py::init<double>(), py::arg("slope"));
  layer(std::type_identity<nn::CurveLayer<T>>{}, "Curve")
      .def(py::init<std::string_view, double, double>(), py::arg("function"), py::arg("a") = 1, py::arg("b") = 20);
  layer(std::type_identity<nn::Residual<T>>{}, "Residual")
      .def(py::init([](const std::shared_ptr<nn::Layer<T>>& f) { return std::make_shared<nn::Residual<T>>(f); }),
           py::arg("f"));
  layer(std::type_identity<nn::Softmax<T>>{}, "Softmax").def(py::init<bool>(), py::arg("log"));
  layer(std::type_identity<nn::Flatten<T>>{}, "Flatten").def(py::init<>());
  layer(std::type_identity<nn::Transpose<T>>{}, "Transpose").def(py::init<>());
  layer(std::type_identity<nn::Dropout<T>>{}, "Dropout").def(py::init<double>(), py::arg("p"));
  layer(std::type_identity<nn::Network<T>>{}, "Network")
      .def(py::init([](const std::vector<std::shared_ptr<nn::Layer<T>>>& layers) {
             return std::make_shared<nn::Network<T>>(std::vector<nn::LayerPtr<T>>(layers.begin(), layers.end()));
           }),
           py::arg("layers"));
}

}  // namespace

template <class T>
void bind_nn(py::module_& m) {
  using Model = nn::Model<T>;
  m.attr("TAIL") = Model::kTail;
  m.def(
      "zeros", [](Index count) { return share_buffer(std::make_shared<AlignedArray<T>>(count), count); },
      py::arg("count"), "An array of zeros that starts on a cache line.");
  bind_layers<T>(m);
  bind_losses<T>(m);

  py::class_<Model, std::shared_ptr<Model>>(m, "Model")
      .def(py::init([](const std::shared_ptr<nn::Network<T>>& network, std::optional<std::uint64_t> seed) {
             return seed ? std::make_shared<Model>(network, *seed) : std::make_shared<Model>(network);
           }),
           py::arg("network"), py::arg("seed"), "Zeros without a seed.")
      .def_property_readonly("params", [](const Model& model) { return share_buffer(model.params, model.count()); })
      .def_property_readonly("grads", [](const Model& model) { return share_buffer(model.grads, model.count()); })
      .def_property_readonly("buffers",
                             [](const Model& model) { return share_buffer(model.buffers, model.buffers->size()); })
      .def(
          "parameters",
          [](const Model& model) {
            std::vector<std::pair<std::string, std::vector<Index>>> all;
            for (const nn::Parameter& parameter : model.parameters()) all.emplace_back(parameter.name, parameter.shape);
            return all;
          },
          "Name and shape of each parameter, in the order of the flat buffer.")
      .def(
          "output_shape",
          [](const Model& model, const std::vector<Index>& sample) {
            return to_extents(model.bound(to_shape(sample))->output_shape(to_shape(sample)));
          },
          py::arg("sample"))
      .def(
          "batch_bytes",
          [](const Model& model, const std::vector<Index>& sample, Index rows) {
            return nn::Workspace<T>::bytes(*model.bound(to_shape(sample)), to_shape(sample), rows);
          },
          py::arg("sample"), py::arg("rows"), "The memory of one pass over a batch.")
      .def(
          "gradient",
          [](const Model& model, const py::array& x, const py::array& target, const nn::Loss<T>& loss, bool training,
             std::uint64_t seed, const std::optional<py::array>& out, const std::optional<py::array>& weight) {
            const Tensor<const T> batch = read_batch<T>("gradient: x", x);
            const nn::Target<T> rows = read_target<T>("gradient: y", target, weight, batch.batch);
            loss.check(model.bound(batch.sample)->output_shape(batch.sample), rows.values.cols);
            py::array grads = out ? *out : py::array_t<T>(model.count());
            const std::span<T> values = write<T>("gradient: out", grads);
            require(grads.ndim() == 1 && grads.size() == model.count(), "gradient: out has shape ", shape_text(grads),
                    ", expected (", model.count(), ",), an element for each parameter");
            const NoGil release;
            const nn::LossValue sums = model.gradient(batch, rows, loss, training, Rng(seed), values);
            const double value = loss.reduce(sums.value, loss.weight_of_rows(rows, batch.batch));
            const Gil acquire;
            return py::make_tuple(value, grads);
          },
          py::arg("x"), py::arg("target"), py::arg("loss"), py::arg("training"), py::arg("seed"), py::arg("out"),
          py::arg("weight") = py::none(),
          "(loss of the batch, flat gradient), the latter in `out` if that is an array; the model is only read.")
      .def(
          "predict",
          [](const Model& model, const py::array& x) {
            const Tensor<const T> batch = read_batch<T>("predict: x", x);
            const auto network = model.bound(batch.sample);
            const Shape out = network->output_shape(batch.sample);
            std::vector<Index> extents = to_extents(out);
            extents.insert(extents.begin(), batch.batch);
            py::array_t<T> y(extents);
            const Tensor<T> outputs{y.mutable_data(), batch.batch, out};
            const NoGil release;
            comm::Interrupts interrupts;
            const Index some = nn::Workspace<T>::rows_at_once(*network, batch.sample, batch.batch);
            for (Index at = 0; at < batch.batch; at += some) {
              interrupts.look();
              const Range rows{at, std::min(at + some, batch.batch)};
              model.forward(batch.rows(rows), false, Rng(), outputs.rows(rows), at);
            }
            return y;
          },
          py::arg("x"), "The network's outputs for a batch, in evaluation mode.");
}

template void bind_nn<float>(py::module_&);
template void bind_nn<double>(py::module_&);

}  // namespace pdnn::bindings
