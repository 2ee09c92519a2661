/// Codecs, by themselves and with their errors fed back.
#include <pybind11/stl.h>

#include <map>

#include "bindings.hpp"
#include "held.hpp"
#include "locked.hpp"
#include "numpy.hpp"
#include "pdnn/codec/error_feedback.hpp"
#include "pdnn/codec/make_codec.hpp"
#include "pdnn/data/metrics.hpp"

namespace pdnn::bindings {

namespace {

/// Of arrays laid one after another.
using Shapes = std::vector<std::vector<Index>>;

/// An ErrorFeedback, as the codec that it also is.
template <class T>
struct LockedFeedback : Locked<codec::Codec<T>> {
  explicit LockedFeedback(std::unique_ptr<codec::ErrorFeedback<T>> made)
      : Locked<codec::Codec<T>>(nullptr), feedback(*made) {
    this->object = std::move(made);
  }

  codec::ErrorFeedback<T>& feedback;
};

/// Encodes and decodes in Python, on copies, so that arrays that Python keeps stay valid.
template <class T>
class CodecOfPython : public codec::Codec<T> {
 public:
  CodecOfPython(std::string name, std::shared_ptr<py::object> made) : name_(std::move(name)), made_(std::move(made)) {}

  Index bytes(Index n) const override {
    if (n == 0) return 0;
    const auto found = bytes_.find(n);
    if (found != bytes_.end()) return found->second;
    const Gil gil;
    return bytes_[n] = made_->attr("size")(n, py::dtype::of<T>()).template cast<Index>();
  }
  std::string spec() const override { return name_; }

 private:
  void write(std::span<const T> values, std::uint8_t* out) override {
    if (values.empty()) return;
    const Gil gil;
    const py::array_t<T> copy(std::ssize(values), values.data());
    const auto code = made_->attr("write")(copy, bytes(std::ssize(values))).template cast<py::array_t<std::uint8_t>>();
    std::copy_n(code.data(), bytes(std::ssize(values)), out);
  }
  void read(const std::uint8_t* data, std::span<T> values, codec::Into into) override {
    if (values.empty()) return;
    const Index n = std::ssize(values);
    const Gil gil;
    const py::array_t<std::uint8_t> copy(bytes(n), data);
    const auto decoded = made_->attr("read")(copy, n, py::dtype::of<T>()).template cast<py::array_t<T>>();
    const std::span<const T> got(decoded.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = into == codec::Into::store ? got[i]
                  : into == codec::Into::add ? values[i] + got[i]
                                             : values[i] - got[i];
  }

  std::string name_;
  std::shared_ptr<py::object> made_;
  mutable std::map<Index, Index> bytes_;
};

class OutsideOfPython : public codec::Outside {
 public:
  OutsideOfPython(std::string name, py::object made, bool feedback)
      : name_(std::move(name)), made_(hold(std::move(made))), feedback_(feedback) {}

  std::unique_ptr<codec::Codec<float>> make(float) const override {
    return std::make_unique<CodecOfPython<float>>(name_, made_);
  }
  std::unique_ptr<codec::Codec<double>> make(double) const override {
    return std::make_unique<CodecOfPython<double>>(name_, made_);
  }
  bool wants_feedback() const override { return feedback_; }

 private:
  std::string name_;
  std::shared_ptr<py::object> made_;
  bool feedback_;
};

}  // namespace

void bind_compression_stats(py::module_& m) {
  using data::CompressionStats;
  py::class_<CompressionStats>(m, "CompressionStats")
      .def_readonly("sums", &CompressionStats::sums)
      .def_readonly("bytes", &CompressionStats::bytes)
      .def_readonly("bytes_uncompressed", &CompressionStats::bytes_uncompressed)
      .def_readonly("encode_seconds", &CompressionStats::encode_seconds)
      .def_readonly("decode_seconds", &CompressionStats::decode_seconds)
      .def_readonly("lost", &CompressionStats::lost)
      .def_readonly("given", &CompressionStats::given);
  m.attr("CODECS") = codec::kSpecs;
  py::class_<codec::Spec>(m, "CodecSpec", "Which codec is wanted.")
      .def(py::init<std::string>(), py::arg("words"), "One of the core's, by the string that spells it.")
      .def(py::init([](const std::string& name, py::object made, bool feedback) {
             return codec::Spec(name, std::make_shared<OutsideOfPython>(name, std::move(made), feedback));
           }),
           py::arg("name"), py::arg("codec"), py::arg("feedback"),
           "One in Python, with size(count, dtype), write(values, size) and read(bytes, count, dtype).");
  m.def("wants_feedback", codec::wants_feedback, py::arg("spec"),
        "Whether a codec's errors grow with the number of steps unless they are fed back.");
}

template <class T>
void bind_codec(py::module_& m) {
  using Codec = Locked<codec::Codec<T>>;
  using Feedback = LockedFeedback<T>;
  py::class_<Codec>(m, "Codec")
      .def(py::init([](const codec::Spec& spec, Index count, const Shapes& shapes) {
             return std::make_unique<Codec>(codec::make_codec<T>(spec, count, codec::matrices_in(shapes)));
           }),
           py::arg("spec"), py::arg("count"), py::arg("shapes") = Shapes())
      .def_property_readonly("spec", [](const Codec& self) { return self.object->spec(); })
      .def(
          "bytes", [](const Codec& self, Index count) { return self.object->bytes(count); }, py::arg("count"),
          "Bytes that so many values become.")
      .def(
          "encode",
          [](Codec& self, const py::array& array, py::array& out) {
            const std::span<const T> values = read<T>("encode", array);
            const std::span<std::uint8_t> bytes = write<std::uint8_t>("encode: out", out);
            self.without_gil([&](codec::Codec<T>& codec) { codec.encode(values, bytes); });
          },
          py::arg("values"), py::arg("out"))
      .def(
          "decode",
          [](Codec& self, const py::array& data, py::array& out) {
            const std::span<const std::uint8_t> bytes = read<std::uint8_t>("decode", data);
            const std::span<T> values = write<T>("decode: out", out);
            self.without_gil([&](codec::Codec<T>& codec) { codec.decode(bytes, values); });
          },
          py::arg("data"), py::arg("out"));
  py::class_<Feedback, Codec>(m, "ErrorFeedback")
      .def(py::init([](const codec::Spec& spec, Index count, const Shapes& shapes) {
             return std::make_unique<Feedback>(std::make_unique<codec::ErrorFeedback<T>>(
                 codec::make_codec<T>(spec, count, codec::matrices_in(shapes)), count));
           }),
           py::arg("spec"), py::arg("count"), py::arg("shapes") = Shapes())
      .def_property_readonly(
          "residual",
          [](py::object self) {
            const std::span<T> values = self.cast<Feedback&>().feedback.residual();
            return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data(), self);
          },
          "What was lost so far, as an array that shares its memory.")
      .def_property_readonly("lost", [](const Feedback& self) { return self.feedback.lost(); })
      .def_property_readonly("given", [](const Feedback& self) { return self.feedback.given(); });
}

template void bind_codec<float>(py::module_&);
template void bind_codec<double>(py::module_&);

}  // namespace pdnn::bindings
