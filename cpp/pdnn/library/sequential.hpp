#pragma once
/// What a Sequential refers to.
#include "pdnn/data/source.hpp"
#include "pdnn/engine/evaluator.hpp"
#include "pdnn/library/json.hpp"
#include "pdnn/nn/model.hpp"
#include "pdnn/pdnn.hpp"

namespace pdnn {

template <class T>
struct Sequential<T>::Impl {
  library::Json architecture;  // {"dtype": …, "layers": […]}
  std::shared_ptr<nn::Model<T>> model;
  /// What else its file says of it, as the names of its classes.
  std::vector<std::pair<std::string, std::string>> metadata{{"format", "pdnn"}};
};

namespace library {

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
