#pragma once
/// pdnn's C++ interface: describe a network, train it by any strategy, predict, save and load. Errors of the caller are
/// std::invalid_argument, lack of memory is std::bad_alloc, all others are std::runtime_error.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>

#include "pdnn/descriptions.hpp"

namespace pdnn {

namespace comm {
class Communicator;
}

/// "0.1.0".
PDNN_API std::string version();

/// What an element in memory is.
enum class Element : std::uint8_t { uint8, float32, float64, int32 };

/// The Element of a type.
template <class E>
constexpr Element element_of() {
  static_assert(std::is_same_v<E, std::uint8_t> || std::is_same_v<E, float> || std::is_same_v<E, double> ||
                    std::is_same_v<E, std::int32_t>,
                "pdnn reads std::uint8_t, float and double samples, std::int32_t classes, float and double targets");
  if constexpr (std::is_same_v<E, std::uint8_t>) return Element::uint8;
  if constexpr (std::is_same_v<E, float>) return Element::float32;
  if constexpr (std::is_same_v<E, double>) return Element::float64;
  return Element::int32;
}

/// Samples where they lie: a view, not a copy. A row is a sample, contiguous, in C order. The value of an element is
/// scale · raw + shift, computed when a batch is gathered: bytes stay bytes in memory.
struct Samples {
  /// `shape` of a sample: {784}, or {channels, height, width}. `stride`: elements from one row to the next; 0: they lie
  /// one behind the other.
  template <class E>
  Samples(const E* first, Index count, std::vector<Index> shape, double factor = 1, double offset = 0, Index step = 0)
      : data(first),
        element(element_of<E>()),
        rows(count),
        sample(std::move(shape)),
        scale(factor),
        shift(offset),
        stride(step) {}

  const void* data;
  Element element;
  Index rows;
  std::vector<Index> sample;
  double scale, shift;
  Index stride;
};

/// What the outputs should be, where it lies: a class a row, or values.
struct Targets {
  /// Classes from 0, one a row.
  Targets(const std::int32_t* classes, Index count) : data(classes), element(Element::int32), rows(count) {}
  /// `values` a row, of the model's type; `stride`: elements from one row to the next, 0: `values`.
  template <class E>
  Targets(const E* first, Index count, Index values, Index step = 0)
      : data(first), element(element_of<E>()), rows(count), width(values), stride(step) {}

  const void* data;
  Element element;
  Index rows;
  Index width = 0;  ///< 0: classes
  Index stride = 0;
};

/// Samples with their targets; both must outlive what reads them.
struct Dataset {
  Samples x;
  Targets y;
  const double* weights = nullptr;  ///< what each row counts in losses, from 0; null: 1 each
};

/// The ranks that train together, of which this is one. An empty one is this process alone.
class PDNN_API Ranks {
 public:
  Ranks() = default;
  explicit Ranks(std::shared_ptr<comm::Communicator> communicator);
  int rank() const;
  int size() const;
  const std::shared_ptr<comm::Communicator>& communicator() const { return communicator_; }

 private:
  std::shared_ptr<comm::Communicator> communicator_;
};

/// Calls f on so many threads, each a rank of its own; throws the first error of any, which is also that one waits for
/// another that has returned. For "ddp" and every other strategy between ranks, without MPI.
PDNN_API void run_ranks(int ranks, const std::function<void(const Ranks&)>& f);

/// A parameter or a buffer of a model: a view of its memory, in C order.
template <class T>
struct Array {
  std::string name;
  std::vector<Index> shape;
  T* data;
  Index size;
};

struct ModelOptions {
  std::uint64_t seed = 0;  ///< initial parameters are a function of it
  bool bfloat16 = false;   ///< products round their factors; for float alone
};

/// Layers one after another, and their parameters. A handle: copies are the same model. T is float or double.
template <class T>
class PDNN_API Sequential {
 public:
  struct Impl;

  /// Builds the layers and draws their parameters. std::invalid_argument if an option makes no sense.
  explicit Sequential(const std::vector<Layer>& layers, const ModelOptions& options = {});
  /// From a model file's "pdnn.architecture": {"dtype": …, "layers": […]}.
  static Sequential from_json(const std::string& architecture, std::uint64_t seed = 0);
  /// The model that `save`, here or in Python, wrote. std::runtime_error if there is no such file, or it is damaged.
  static Sequential load(const std::string& path);
  /// Writes parameters, buffers and the architecture in the safetensors layout, all or nothing; also what the file that
  /// it was loaded from says beside them, as the names of its classes.
  void save(const std::string& path) const;

  /// The architecture as JSON.
  std::string json() const;
  /// SHA-256 of names and bytes of all parameters and buffers, as Python's model.fingerprint().
  std::string fingerprint() const;
  /// Views of the parameters, e.g. "0.weight", in the order of their memory.
  std::vector<Array<T>> parameters();
  /// Views of the running statistics.
  std::vector<Array<T>> buffers();
  /// The shape of one output for samples of this shape.
  std::vector<Index> output_shape(const std::vector<Index>& sample) const;
  /// Writes the outputs, in evaluation mode, row by row to `outputs`: rows · the product of output_shape elements.
  void predict(const Samples& x, T* outputs) const;
  /// The same as a vector.
  std::vector<T> predict(const Samples& x) const;

  /// The model that another refers to.
  explicit Sequential(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// Means over rows, in which each counts its weight.
struct Scores {
  double loss = 0;
  std::optional<double> accuracy;  ///< where predictions can be right or wrong
};

/// How far a training is.
struct Progress {
  Index epoch = 0;                   ///< counted from 0, over all fits
  std::int64_t steps = 0;            ///< made in all
  Index rows = 0;                    ///< trained on in this epoch
  double seconds = 0;                ///< of this epoch
  Scores training;                   ///< of these rows, as they were trained on
  bool finished = false;             ///< the epoch is over
  std::optional<Scores> validation;  ///< after it
};

struct FitOptions {
  Index epochs = 1;
  Index batch_size = 32;                ///< rows of one update, over all threads and ranks
  bool shuffle = true;                  ///< a new order each epoch, a function of (seed, epoch)
  const Dataset* validation = nullptr;  ///< evaluated after each epoch, its rows shared between ranks
  /// Called a few times a second between steps, and after each epoch; false ends the training on all ranks, after the
  /// step or the epoch. Between steps the model still has the parameters of the epoch's beginning.
  std::function<bool(const Progress&)> progress{};
};

struct TrainerOptions {
  std::string strategy = "serial";  ///< as Python spells it: "team:2", "pool:5/25", "ddp+team:2", "pipeline:2", …
  std::uint64_t seed = 0;           ///< of orders of rows and dropout masks
  Ranks ranks{};                    ///< that train together
  double clip_norm = 0;             ///< the gradient of a batch is shortened to this norm; 0: it is not
  double clip_value = 0;            ///< its elements are bounded to this size; 0: they are not
  /// What becomes of a step with a NaN or an infinity: "raise" undoes it and throws std::runtime_error, "skip" leaves
  /// its update out, "ignore" makes it.
  std::string on_nonfinite = "raise";
};

/// Trains and evaluates a model. A handle: copies are the same training.
template <class T>
class PDNN_API Trainer {
 public:
  struct Impl;

  /// Trains this model itself, not a copy. std::invalid_argument if the strategy or an option makes no sense.
  Trainer(const Sequential<T>& model, const Loss& loss, const Optimizer& optimizer, const TrainerOptions& options = {});

  /// Trains; a second call continues where the first ended. With several ranks all call it, with the same arguments.
  /// Returns the progress at the end of each epoch.
  std::vector<Progress> fit(const Dataset& train, const FitOptions& options = {});
  /// Loss and accuracy in evaluation mode, of all rows, by this rank.
  Scores evaluate(const Dataset& data) const;
  /// As Sequential's.
  std::vector<Index> output_shape(const std::vector<Index>& sample) const;
  /// As Sequential's, by the strategy's threads.
  void predict(const Samples& x, T* outputs) const;
  std::vector<T> predict(const Samples& x) const;

  /// Of the next step.
  double learning_rate() const;
  /// From the next epoch on.
  void set_learning_rate(double rate);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace pdnn
