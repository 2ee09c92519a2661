#pragma once
/// Descriptions of layers, losses and optimizers: what a model file says of them, as text.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pdnn/export.h"

namespace pdnn {

/// Counts and positions.
using Index = std::ptrdiff_t;

/// How a weight or a bias gets its first values: a function of the seed, the layer and the element alone.
struct Init {
  /// "uniform" in [−a, a), "normal" with standard deviation a, or "constant" a.
  std::string distribution = "uniform";
  /// a; or, divided by the root of the fan, a.
  double value = 1;
  /// What a depends on: "none", the number of a unit's inputs ("in"), of its outputs ("out"), or both ("sum").
  std::string fan = "in";
};
/// Uniform in ±√(6/((1 + a²) fan_in)), for ReLU networks (He et al., ICCV 2015, eq. 10).
PDNN_API Init kaiming_uniform(double a = 0);
/// Uniform in ±gain √(6/(fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010, eq. 16).
PDNN_API Init xavier_uniform(double gain = 1);

/// A layer, described: a JSON object with its "type" and its arguments under their names in Python, as a model file has
/// it. `Layer(R"({"type": "Linear", "in_features": 784, "out_features": 10})")` is `Linear(784, 10)`.
struct PDNN_API Layer {
  explicit Layer(std::string text) : json(std::move(text)) {}
  std::string json;
};

/// What a Linear may be given beside its sizes.
struct LinearOptions {
  bool bias = true;
  Init weight_init{}, bias_init{};  ///< PyTorch's defaults, uniform in ±1/√fan_in
};

/// y = x W + b. x: (n, in_features), W: (in_features, out_features).
struct PDNN_API Linear : Layer {
  Linear(Index in_features, Index out_features, const LinearOptions& options = {});
};
struct EmbeddingOptions {
  std::optional<Index> padding_idx{};                         ///< its row is 0 at first and gets no gradient
  Init weight_init{.distribution = "normal", .fan = "none"};  ///< PyTorch's default
};
/// A row of the weight, (num_embeddings, embedding_dim), for each index: (indices) becomes (indices, embedding_dim).
/// Samples are whole numbers in [0, num_embeddings); anything else is refused.
struct PDNN_API Embedding : Layer {
  Embedding(Index num_embeddings, Index embedding_dim, const EmbeddingOptions& options = {});
};
/// A number for both axes of images, or one for each: rows, then columns.
struct Pair {
  Index y, x;
  Pair(Index both) : y(both), x(both) {}  // NOLINT(google-explicit-constructor)
  Pair(Index rows, Index columns) : y(rows), x(columns) {}
};
/// What a convolution may be given beside its windows.
struct ConvOptions {
  Pair dilation = 1;  ///< from an element of a window to the next; lines have one axis
  Index groups = 1;   ///< divides both numbers of channels; each group of outputs sees its group of inputs only
  bool bias = true;
  Init weight_init{}, bias_init{};  ///< PyTorch's defaults, uniform in ±1/√fan_in
};
/// Windows of weights, (kernel, kernel, in_channels / groups, out_channels), moved over images (n, channels, height,
/// width).
struct PDNN_API Conv2d : Layer {
  Conv2d(Index in_channels, Index out_channels, Pair kernel_size, Pair stride = 1, Pair padding = 0,
         const ConvOptions& options = {});
};
/// Conv2d of lines: windows of weights, (kernel, in_channels / groups, out_channels), moved over (n, channels, length).
struct PDNN_API Conv1d : Layer {
  Conv1d(Index in_channels, Index out_channels, Index kernel_size, Index stride = 1, Index padding = 0,
         const ConvOptions& options = {});
};
/// The largest element of each window; no stride: kernel_size. Padding, at most half of it, is never the largest.
struct PDNN_API MaxPool2d : Layer {
  explicit MaxPool2d(Pair kernel_size, std::optional<Pair> stride = {}, Pair padding = 0);
};
/// The mean of each window; no stride: kernel_size. Padding, at most half of it, counts as zeros.
struct PDNN_API AvgPool2d : Layer {
  explicit AvgPool2d(Pair kernel_size, std::optional<Pair> stride = {}, Pair padding = 0);
};
/// The mean of each channel: (channels, h, w) becomes (channels, 1, 1).
struct PDNN_API AdaptiveAvgPool2d : Layer {
  AdaptiveAvgPool2d();
};
/// MaxPool2d of lines.
struct PDNN_API MaxPool1d : Layer {
  explicit MaxPool1d(Index kernel_size, std::optional<Index> stride = {}, Index padding = 0);
};
/// AvgPool2d of lines.
struct PDNN_API AvgPool1d : Layer {
  explicit AvgPool1d(Index kernel_size, std::optional<Index> stride = {}, Index padding = 0);
};
/// The mean of each channel of a line: (channels, length) becomes (channels, 1).
struct PDNN_API AdaptiveAvgPool1d : Layer {
  AdaptiveAvgPool1d();
};
struct BatchNormOptions {
  double eps = 1e-5, momentum = 0.1;
  bool sync = false;  ///< under ranks: mean and variance are those of the whole batch
};
/// Each feature of (n, num_features), or channel of lines, normalized over the batch (Ioffe and Szegedy, ICML 2015).
struct PDNN_API BatchNorm1d : Layer {
  explicit BatchNorm1d(Index num_features, const BatchNormOptions& options = {});
};
/// Each channel of images normalized over rows and pixels.
struct PDNN_API BatchNorm2d : Layer {
  explicit BatchNorm2d(Index num_features, const BatchNormOptions& options = {});
};
/// Each sample normalized over its features (arXiv 1607.06450).
struct PDNN_API LayerNorm : Layer {
  explicit LayerNorm(Index features, double eps = 1e-5);
};
/// max(x, 0), element by element.
struct PDNN_API ReLU : Layer {
  ReLU();
};
/// 1 / (1 + exp(−x)), element by element.
struct PDNN_API Sigmoid : Layer {
  Sigmoid();
};
/// tanh(x), element by element.
struct PDNN_API Tanh : Layer {
  Tanh();
};
/// x where x > 0, else negative_slope · x.
struct PDNN_API LeakyReLU : Layer {
  explicit LeakyReLU(double negative_slope = 0.01);
};
/// x where x > 0, else alpha · (exp(x) − 1) (arXiv 1511.07289).
struct PDNN_API ELU : Layer {
  explicit ELU(double alpha = 1);
};
/// log(1 + exp(beta · x)) / beta, or x where beta · x > threshold.
struct PDNN_API Softplus : Layer {
  explicit Softplus(double beta = 1, double threshold = 20);
};
/// x Φ(x) with the normal distribution Φ (arXiv 1606.08415, the exact form).
struct PDNN_API GELU : Layer {
  GELU();
};
/// x / (1 + exp(−x)) (arXiv 1702.03118).
struct PDNN_API SiLU : Layer {
  SiLU();
};
/// exp(x_j) / Σ_k exp(x_k) over the features of a sample. Classifiers end in logits and take CrossEntropyLoss instead.
struct PDNN_API Softmax : Layer {
  Softmax();
};
/// The logarithm of Softmax; what NLLLoss takes.
struct PDNN_API LogSoftmax : Layer {
  LogSoftmax();
};
/// A sample of any shape as features.
struct PDNN_API Flatten : Layer {
  Flatten();
};
/// (a, b) becomes (b, a): (places, features) of an Embedding as the (channels, length) of lines.
struct PDNN_API Transpose : Layer {
  Transpose();
};
/// Zeroes elements with probability p while training and scales the others by 1 / (1 − p).
struct PDNN_API Dropout : Layer {
  explicit Dropout(double p = 0.5);
};
/// Layers one after another, as one layer; for Residual.
struct PDNN_API Chain : Layer {
  explicit Chain(const std::vector<Layer>& layers);
};
/// y = x + fn(x), whose shapes are the same (He, Zhang, Ren, Sun, CVPR 2016).
struct PDNN_API Residual : Layer {
  explicit Residual(const Layer& fn);
};

/// A loss, described: a JSON object with its "type" and its options under their names in Python. Every loss has a
/// "reduction": "mean" over rows, "sum", or "batchmean".
struct PDNN_API Loss {
  explicit Loss(std::string text) : json(std::move(text)) {}
  std::string json;
};
struct CrossEntropyOptions {
  std::vector<double> weight{};  ///< of the classes; none: all are 1
  double label_smoothing = 0;
};
/// Softmax and negative log-likelihood in one, of logits (n, classes); targets are classes or probabilities.
struct PDNN_API CrossEntropyLoss : Loss {
  explicit CrossEntropyLoss(const std::string& reduction = "mean", const CrossEntropyOptions& options = {});
};
/// −y[class] of log-probabilities, as LogSoftmax makes them.
struct PDNN_API NLLLoss : Loss {
  explicit NLLLoss(const std::string& reduction = "mean");
};
/// Squared error (y − t)².
struct PDNN_API MSELoss : Loss {
  explicit MSELoss(const std::string& reduction = "mean");
};
/// Absolute error |y − t|.
struct PDNN_API L1Loss : Loss {
  explicit L1Loss(const std::string& reduction = "mean");
};
/// (y − t)² / (2 beta) where |y − t| < beta, elsewhere |y − t| − beta / 2.
struct PDNN_API SmoothL1Loss : Loss {
  explicit SmoothL1Loss(const std::string& reduction = "mean", double beta = 1);
};
/// (y − t)² / 2 where |y − t| ≤ delta, elsewhere delta (|y − t| − delta / 2).
struct PDNN_API HuberLoss : Loss {
  explicit HuberLoss(const std::string& reduction = "mean", double delta = 1);
};
/// Binary cross-entropy of probabilities.
struct PDNN_API BCELoss : Loss {
  explicit BCELoss(const std::string& reduction = "mean");
};
/// Binary cross-entropy of sigmoid(y), from the logits y.
struct PDNN_API BCEWithLogitsLoss : Loss {
  explicit BCEWithLogitsLoss(const std::string& reduction = "mean");
};
struct PoissonOptions {
  bool log_input = true, full = false;
  double eps = 1e-8;
};
/// e^y − t y for counts t; without log_input y − t log(y + eps).
struct PDNN_API PoissonNLLLoss : Loss {
  explicit PoissonNLLLoss(const PoissonOptions& options = {}, const std::string& reduction = "mean");
};
/// Pinball loss max(q (t − y), (q − 1) (t − y)), an output for each quantile q.
struct PDNN_API QuantileLoss : Loss {
  explicit QuantileLoss(const std::vector<double>& quantiles = {0.5}, const std::string& reduction = "mean");
};

/// An optimizer, described: a JSON object with its "type" and its options under their names in Python.
struct PDNN_API Optimizer {
  explicit Optimizer(std::string text) : json(std::move(text)) {}
  std::string json;
};
struct SgdOptions {
  std::optional<double> lr{};  ///< must be given
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
/// d = g + λw; v = μv + d; w ← w − η v.
struct PDNN_API SGD : Optimizer {
  explicit SGD(const SgdOptions& options);
};
struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
/// Kingma and Ba, ICLR 2015, algorithm 1.
struct PDNN_API Adam : Optimizer {
  explicit Adam(const AdamOptions& options = {});
};
struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
/// Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, algorithm 2).
struct PDNN_API AdamW : Optimizer {
  explicit AdamW(const AdamWOptions& options = {});
};
struct LionOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};
/// Steps of one size: the sign of a running mean (arXiv 2302.06675, algorithm 2).
struct PDNN_API Lion : Optimizer {
  explicit Lion(const LionOptions& options = {});
};
struct RmsPropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
};
/// Gradients divided by the root of a running mean of their squares (Tieleman and Hinton, Coursera 6.5, 2012).
struct PDNN_API RMSprop : Optimizer {
  explicit RMSprop(const RmsPropOptions& options = {});
};

}  // namespace pdnn
