#include "pdnn/library/sequential.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pdnn/library/build.hpp"
#include "pdnn/library/sha256.hpp"

namespace pdnn {

namespace library {

data::Samples core_samples(const Samples& x) {
  using Format = data::Samples::Format;
  require(x.element != Element::int32, "samples are int32; expected uint8, float or double");
  require(x.rows >= 0 && (x.data || x.rows == 0), "samples: got ", x.rows, " rows at ",
          x.data ? "some memory" : "no memory");
  require(x.scale != 0 && std::isfinite(x.scale) && std::isfinite(x.shift), "samples: scale ", x.scale, ", shift ",
          x.shift,
          "; expected a scale other than 0, which is 1 for values as they are (1 / 255 is 0, 1.0 / 255 is not)");
  const Shape sample{std::span<const Index>(x.sample)};
  require(x.stride == 0 || x.stride >= sample.count(), "samples: a stride of ", x.stride, " elements for rows of ",
          sample.count());
  return {.data = x.data,
          .format = x.element == Element::uint8     ? Format::uint8
                    : x.element == Element::float32 ? Format::float32
                                                    : Format::float64,
          .count = x.rows,
          .stride = x.stride == 0 ? sample.count() : x.stride,
          .sample = sample,
          .scale = x.scale,
          .shift = x.shift};
}

template <class T>
data::Source<T> source_of(const Samples& x) {
  return data::Source<T>(core_samples(x), nn::Target<T>{});
}

template <class T>
std::vector<Index> output_shape(const nn::Model<T>& model, const std::vector<Index>& sample) {
  const Shape in{std::span<const Index>(sample)}, out = model.bound(in)->output_shape(in);
  std::vector<Index> extents;
  for (int axis = 0; axis < out.rank(); ++axis) extents.push_back(out[axis]);
  return extents;
}

std::vector<Index> all_rows(Index count) {
  std::vector<Index> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), Index{0});
  return rows;
}

template <class T>
void predict(engine::Evaluator<T>& evaluator, const Samples& x, T* outputs) {
  const data::Source<T> source = source_of<T>(x);
  require(outputs || source.count() == 0, "predict: outputs is null; expected room for the outputs of ", source.count(),
          " rows");
  evaluator.predict(source, all_rows(source.count()), outputs);
}

template data::Source<float> source_of(const Samples&);
template data::Source<double> source_of(const Samples&);
template std::vector<Index> output_shape(const nn::Model<float>&, const std::vector<Index>&);
template std::vector<Index> output_shape(const nn::Model<double>&, const std::vector<Index>&);
template void predict(engine::Evaluator<float>&, const Samples&, float*);
template void predict(engine::Evaluator<double>&, const Samples&, double*);

namespace {

constexpr const char* kArchitecture = "pdnn.architecture";

template <class T>
std::shared_ptr<typename Sequential<T>::Impl> make_model(const Json& architecture, std::optional<std::uint64_t> seed) {
  const std::string& name = existing(architecture.find_as<std::string>("dtype"), "an architecture lacks its \"dtype\"");
  require(name == "float32" || name == "float64" || name == "bfloat16", "an architecture's dtype is ", name,
          "; expected float32, float64 or bfloat16");
  const bool rounds = name == "bfloat16",
             fits = std::is_same_v<T, float> ? rounds || name == "float32" : name == "float64";
  require(fits, "the model is ", name, "; this is a Sequential<", std::is_same_v<T, float> ? "float" : "double", ">");
  const auto network = build_network<T>(architecture, rounds ? kernels::Precision::bfloat16 : kernels::Precision::full);
  auto model = seed ? std::make_shared<nn::Model<T>>(network, *seed) : std::make_shared<nn::Model<T>>(network);
  return std::make_shared<typename Sequential<T>::Impl>(kept(architecture), std::move(model));
}

/// Names, shapes and memory of parameters or buffers, one behind another in a flat array.
template <class T>
std::vector<Array<T>> views(const std::vector<nn::Parameter>& arrays, AlignedArray<T>& flat) {
  std::vector<Array<T>> all;
  T* at = flat.span().data();
  for (const nn::Parameter& array : arrays) {
    all.push_back({array.name, array.shape, at, array.count()});
    at += array.count();
  }
  return all;
}

template <class T>
std::vector<Array<T>> all_arrays(const nn::Model<T>& model) {
  std::vector<Array<T>> all = views(model.parameters(), *model.params);
  for (Array<T>& buffer : views(model.network().buffers(), *model.buffers)) all.push_back(std::move(buffer));
  return all;
}

template <class T>
std::span<const std::byte> bytes_of(const Array<T>& array) {
  return std::as_bytes(std::span<const T>(array.data, static_cast<std::size_t>(array.size)));
}

template <class T>
void take_values(const StoredFile& file, const nn::Model<T>& model) {
  const std::vector<Array<T>> arrays = all_arrays(model);
  require(arrays.size() == file.arrays.size(), "its architecture has ", arrays.size(), " arrays, its data ",
          file.arrays.size());
  for (const Array<T>& array : arrays) {
    const StoredArray& stored = existing(file.find(array.name), array.name, " is missing");
    const std::span<std::byte> own =
        std::as_writable_bytes(std::span(array.data, static_cast<std::size_t>(array.size)));
    require(stored.shape == array.shape && stored.data.size() == own.size(), array.name, " has another shape or type");
    std::ranges::copy(stored.data, own.begin());
  }
}

/// Elements of all parameters and buffers that a network describes, before there is memory for them.
template <class T>
Index described(const Json& architecture) {
  const auto network = build_network<T>(architecture, kernels::Precision::full);
  return nn::total(network->parameters()) + nn::total(network->buffers());
}

/// What f returns; its error names the file.
template <class F>
auto of_file(const std::string& path, F f) {
  try {
    return f();
  } catch (const ValueError& error) {
    throw std::runtime_error(message(path, ": ", error.what()));
  }
}

}  // namespace

bool is_double(const Json& architecture) {
  const auto* const dtype = architecture.find_as<std::string>("dtype");
  return dtype && *dtype == "float64";
}

ModelFile::ModelFile(std::string path)
    : path_(std::move(path)), file_(read_safetensors(path_)), architecture_(of_file(path_, [this] {
        const auto found =
            std::ranges::find(file_.metadata, kArchitecture, &std::pair<std::string, std::string>::first);
        require(found != file_.metadata.end(), "holds no pdnn architecture");
        return Json::parse("its architecture", found->second);
      })) {}

bool ModelFile::is_double() const { return library::is_double(architecture_); }

template <class T>
std::shared_ptr<typename Sequential<T>::Impl> ModelFile::model() const {
  return of_file(path_, [this] {
    Index held = 0;
    for (const StoredArray& array : file_.arrays) held += element_count(array.shape);
    const Index expected = described<T>(architecture_);
    require(expected == held, "its architecture has ", expected, " parameters and buffers, its data ", held);
    auto impl = make_model<T>(architecture_, std::nullopt);
    take_values(file_, *impl->model);
    impl->metadata = file_.metadata;
    std::erase_if(impl->metadata, [](const auto& entry) { return entry.first == kArchitecture; });
    return impl;
  });
}

template std::shared_ptr<Sequential<float>::Impl> ModelFile::model<float>() const;
template std::shared_ptr<Sequential<double>::Impl> ModelFile::model<double>() const;

}  // namespace library

std::string version() { return PDNN_VERSION; }

template <class T>
Sequential<T>::Sequential(const std::vector<Layer>& layers, const ModelOptions& options) {
  require(!options.bfloat16 || std::is_same_v<T, float>, "Sequential<double>: products in bfloat16 are for float");
  const char* const dtype = options.bfloat16 ? "bfloat16" : std::is_same_v<T, float> ? "float32" : "float64";
  library::Json architecture = library::Json::parse("Sequential", Chain(layers).json);
  auto& members = std::get<library::Json::Object>(architecture.value);
  members.front() = {"dtype", {std::string(dtype)}};
  impl_ = library::make_model<T>(architecture, options.seed);
}

template <class T>
Sequential<T> Sequential<T>::from_json(const std::string& architecture, std::uint64_t seed) {
  return Sequential(library::make_model<T>(library::Json::parse("Sequential", architecture), seed));
}

template <class T>
Sequential<T> Sequential<T>::load(const std::string& path) {
  return Sequential(library::ModelFile(path).model<T>());
}

template <class T>
void Sequential<T>::save(const std::string& path) const {
  std::vector<library::StoredArray> stored;
  for (const Array<T>& array : library::all_arrays(*impl_->model))
    stored.push_back({array.name, std::is_same_v<T, float> ? "F32" : "F64", array.shape, library::bytes_of(array)});
  std::vector<std::pair<std::string, std::string>> metadata = impl_->metadata;
  metadata.emplace_back(library::kArchitecture, json());
  library::write_safetensors(path, stored, metadata);
}

template <class T>
std::string Sequential<T>::json() const {
  return impl_->architecture.text();
}

template <class T>
std::string Sequential<T>::fingerprint() const {
  std::vector<Array<T>> arrays = library::all_arrays(*impl_->model);
  std::ranges::sort(arrays, {}, &Array<T>::name);
  library::Sha256 digest;
  for (const Array<T>& array : arrays) {
    digest.add(array.name);
    digest.add(library::bytes_of(array));
  }
  return digest.hex();
}

template <class T>
std::vector<Array<T>> Sequential<T>::parameters() {
  return library::views(impl_->model->parameters(), *impl_->model->params);
}

template <class T>
std::vector<Array<T>> Sequential<T>::buffers() {
  return library::views(impl_->model->network().buffers(), *impl_->model->buffers);
}

template <class T>
std::vector<Index> Sequential<T>::output_shape(const std::vector<Index>& sample) const {
  return library::output_shape(*impl_->model, sample);
}

template <class T>
void Sequential<T>::predict(const Samples& x, T* outputs) const {
  engine::Evaluator<T> evaluator(*impl_->model, 1);
  library::predict(evaluator, x, outputs);
}

template <class T>
std::vector<T> Sequential<T>::predict(const Samples& x) const {
  std::vector<T> outputs(
      static_cast<std::size_t>(library::core_samples(x).count * element_count(output_shape(x.sample))));
  predict(x, outputs.data());
  return outputs;
}

template class Sequential<float>;
template class Sequential<double>;

}  // namespace pdnn
