/// The C interface: pdnn.hpp without exceptions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "pdnn/core/errors.hpp"
#include "pdnn/library/sequential.hpp"
#include "pdnn/pdnn.h"
#include "pdnn/pdnn.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names of C
struct pdnn_model {
  std::variant<pdnn::Sequential<float>, pdnn::Sequential<double>> model;
  std::vector<std::string> names;  // of the parameters
};

struct pdnn_trainer {
  std::variant<pdnn::Trainer<float>, pdnn::Trainer<double>> trainer;
};
// NOLINTEND(readability-identifier-naming)

namespace {

using pdnn::Index, pdnn::require;

thread_local std::string last_error;

template <class F>
pdnn_status guarded(F f) noexcept {
  const auto failed = [](pdnn_status status, const char* why) {
    try {
      last_error = why;
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    f();
    return PDNN_OK;
  } catch (const std::invalid_argument& error) {
    return failed(PDNN_INVALID, error.what());
  } catch (const std::exception& error) {
    return failed(PDNN_FAILED, error.what());
  } catch (...) {
    return failed(PDNN_FAILED, "an unknown error");
  }
}

template <class P>
auto& given(const char* what, P* pointer) {
  return pdnn::library::existing(pointer, what, " is NULL");
}

template <class T>
pdnn_model* held(pdnn::Sequential<T> model) {
  std::vector<std::string> names;
  for (pdnn::Array<T>& array : model.parameters()) names.push_back(std::move(array.name));
  return new pdnn_model{std::move(model), std::move(names)};
}

pdnn::Samples read_samples(const pdnn_samples& x) {
  require(x.rank >= 1 && x.rank <= 3, "samples: rank ", x.rank, "; expected 1 to 3");
  const std::vector<Index> shape(x.shape, x.shape + x.rank);
  const auto rows = static_cast<Index>(x.rows);
  switch (x.element) {
    case PDNN_UINT8:
      return {static_cast<const std::uint8_t*>(x.data), rows, shape, x.scale, x.shift};
    case PDNN_FLOAT32:
      return {static_cast<const float*>(x.data), rows, shape, x.scale, x.shift};
    case PDNN_FLOAT64:
      return {static_cast<const double*>(x.data), rows, shape, x.scale, x.shift};
    default:
      throw pdnn::ValueError("samples: their element is none of uint8, float32 and float64");
  }
}

template <class T>
pdnn::Dataset read_data(const pdnn_data& data) {
  require(!data.classes != !data.values, "data: either classes or values must be given");
  const auto rows = static_cast<Index>(data.x.rows);
  const auto targets = data.classes
                           ? pdnn::Targets(data.classes, rows)
                           : pdnn::Targets(static_cast<const T*>(data.values), rows, static_cast<Index>(data.width));
  require(data.classes || data.width > 0, "data: values need a width");
  return {.x = read_samples(data.x), .y = targets, .weights = data.weights};
}

pdnn_scores to_c(const pdnn::Scores& scores) {
  return {scores.loss, scores.accuracy.value_or(std::numeric_limits<double>::quiet_NaN())};
}

}  // namespace

const char* pdnn_last_error(void) { return last_error.c_str(); }
const char* pdnn_version(void) { return PDNN_VERSION; }

pdnn_status pdnn_model_create(const char* architecture, uint64_t seed, pdnn_model** model) {
  return guarded([&] {
    pdnn_model*& made = given("model", model) = nullptr;
    const std::string text = &given("architecture", architecture);
    const bool wide = pdnn::library::is_double(pdnn::library::Json::parse("architecture", text));
    made = wide ? held(pdnn::Sequential<double>::from_json(text, seed))
                : held(pdnn::Sequential<float>::from_json(text, seed));
  });
}

pdnn_status pdnn_model_load(const char* path, pdnn_model** model) {
  return guarded([&] {
    pdnn_model*& made = given("model", model) = nullptr;
    const pdnn::library::ModelFile file(&given("path", path));
    made = file.is_double() ? held(pdnn::Sequential<double>(file.model<double>()))
                            : held(pdnn::Sequential<float>(file.model<float>()));
  });
}

pdnn_status pdnn_model_save(const pdnn_model* model, const char* path) {
  return guarded(
      [&] { std::visit([&](const auto& its) { its.save(&given("path", path)); }, given("model", model).model); });
}

pdnn_status pdnn_model_element(const pdnn_model* model, pdnn_element* element) {
  return guarded([&] {
    const bool wide = given("model", model).model.index() == 1;
    given("element", element) = wide ? PDNN_FLOAT64 : PDNN_FLOAT32;
  });
}

pdnn_status pdnn_model_fingerprint(const pdnn_model* model, char digits[65]) {
  return guarded([&] {
    const auto print = std::visit([](const auto& its) { return its.fingerprint(); }, given("model", model).model);
    std::ranges::copy(print, &given("digits", digits));
    digits[print.size()] = 0;
  });
}

pdnn_status pdnn_model_parameters(const pdnn_model* model, size_t* count) {
  return guarded([&] { given("count", count) = given("model", model).names.size(); });
}

pdnn_status pdnn_model_parameter(const pdnn_model* model, size_t index, pdnn_array* array) {
  return guarded([&] {
    const pdnn_model& of = given("model", model);
    require(index < of.names.size(), "parameter ", index, " of ", of.names.size());
    std::visit(
        [&](auto its) {
          const auto found = its.parameters()[index];
          pdnn_array& view = given("array", array);
          require(found.shape.size() <= std::size(view.shape), found.name, " has too many axes");
          view = {.name = of.names[index].c_str(), .data = found.data, .rank = found.shape.size(), .shape = {}};
          std::ranges::copy(found.shape, view.shape);
        },
        of.model);
  });
}

pdnn_status pdnn_model_outputs(const pdnn_model* model, const pdnn_samples* x, size_t* outputs) {
  return guarded([&] {
    const pdnn::Samples samples = read_samples(given("x", x));
    std::size_t count = 1;
    const auto extents =
        std::visit([&](const auto& its) { return its.output_shape(samples.sample); }, given("model", model).model);
    for (const Index extent : extents) count *= static_cast<std::size_t>(extent);
    given("outputs", outputs) = count;
  });
}

pdnn_status pdnn_model_predict(const pdnn_model* model, const pdnn_samples* x, void* outputs) {
  return guarded([&] {
    const pdnn::Samples samples = read_samples(given("x", x));
    require(outputs, "outputs is NULL");
    std::visit([&]<class T>(const pdnn::Sequential<T>& its) { its.predict(samples, static_cast<T*>(outputs)); },
               given("model", model).model);
  });
}

void pdnn_model_free(pdnn_model* model) { delete model; }

pdnn_status pdnn_trainer_create(const pdnn_model* model, const char* loss, const char* optimizer, const char* strategy,
                                uint64_t seed, pdnn_trainer** trainer) {
  return guarded([&] {
    pdnn_trainer*& made = given("trainer", trainer) = nullptr;
    const pdnn::TrainerOptions options{.strategy = &given("strategy", strategy), .seed = seed};
    const pdnn::Loss its_loss{std::string(&given("loss", loss))};
    const pdnn::Optimizer its_optimizer{std::string(&given("optimizer", optimizer))};
    std::visit(
        [&]<class T>(const pdnn::Sequential<T>& its) {
          made = new pdnn_trainer{pdnn::Trainer<T>(its, its_loss, its_optimizer, options)};
        },
        given("model", model).model);
  });
}

pdnn_status pdnn_trainer_fit(pdnn_trainer* trainer, const pdnn_data* data, size_t epochs, size_t batch_size,
                             pdnn_progress progress, void* context) {
  return guarded([&] {
    pdnn::FitOptions options{.epochs = static_cast<Index>(epochs), .batch_size = static_cast<Index>(batch_size)};
    if (progress)
      options.progress = [&](const pdnn::Progress& far) {
        const pdnn_scores training = to_c(far.training);
        return progress(context, static_cast<std::size_t>(far.epoch), static_cast<std::uint64_t>(far.steps), &training,
                        far.finished ? 1 : 0) != 0;
      };
    std::visit([&]<class T>(pdnn::Trainer<T>& its) { its.fit(read_data<T>(given("data", data)), options); },
               given("trainer", trainer).trainer);
  });
}

pdnn_status pdnn_trainer_evaluate(const pdnn_trainer* trainer, const pdnn_data* data, pdnn_scores* scores) {
  return guarded([&] {
    pdnn_scores& all = given("scores", scores);
    std::visit(
        [&]<class T>(const pdnn::Trainer<T>& its) { all = to_c(its.evaluate(read_data<T>(given("data", data)))); },
        given("trainer", trainer).trainer);
  });
}

pdnn_status pdnn_trainer_set_learning_rate(pdnn_trainer* trainer, double rate) {
  return guarded(
      [&] { std::visit([&](auto& its) { its.set_learning_rate(rate); }, given("trainer", trainer).trainer); });
}

void pdnn_trainer_free(pdnn_trainer* trainer) { delete trainer; }
