#pragma once
/// What a Sequential refers to.
#include <atomic>

#include "pdnn/data/source.hpp"
#include "pdnn/engine/evaluator.hpp"
#include "pdnn/library/json.hpp"
#include "pdnn/library/safetensors.hpp"
#include "pdnn/nn/model.hpp"
#include "pdnn/pdnn.hpp"

namespace pdnn {

template <class T>
struct Sequential<T>::Impl {
  library::Json architecture;  // {"dtype": …, "layers": […]}
  std::shared_ptr<nn::Model<T>> model;
  /// What else its file says of it, as the names of its classes.
  std::vector<std::pair<std::string, std::string>> metadata{{"format", "pdnn"}};
  std::atomic<bool> in_fit = false;  ///< a Trainer trains it
};

namespace library {

/// A file that `save` wrote, read once. Errors name it.
class ModelFile {
 public:
  /// std::runtime_error if there is no such file, or it is damaged.
  explicit ModelFile(std::string path);

  /// Whether its model is a Sequential<double>.
  bool is_double() const;
  /// std::runtime_error if its model is another, or it is damaged.
  template <class T>
  std::shared_ptr<typename Sequential<T>::Impl> model() const;

 private:
  std::string path_;
  StoredFile file_;
  Json architecture_;
};

/// Whether an architecture says so.
bool is_double(const Json& architecture);

/// The samples as the core reads them. ValueError if they are no such samples.
data::Samples core_samples(const Samples& x);

/// Rows without targets.
template <class T>
data::Source<T> source_of(const Samples& x);

/// The extents of one output for such samples.
template <class T>
std::vector<Index> output_shape(const nn::Model<T>& model, const std::vector<Index>& sample);

/// The numbers 0 … count − 1.
std::vector<Index> all_rows(Index count);

/// Writes the outputs for all samples, row by row.
template <class T>
void predict(engine::Evaluator<T>& evaluator, const Samples& x, T* outputs);

}  // namespace library

}  // namespace pdnn
