/// Codecs, and sums over ranks that travel by them.
#include <pybind11/stl.h>

#include <mutex>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/reduce/compressed_sum.hpp"

namespace pdnn::bindings {

namespace {

/// (offset, rows, columns) of each matrix among the values.
using Matrices = std::vector<std::tuple<Index, Index, Index>>;

std::vector<codec::MatrixAt> to_matrices(const Matrices& tuples) {
  std::vector<codec::MatrixAt> matrices;
  for (const auto& [offset, rows, cols] : tuples) matrices.push_back({offset, rows, cols});
  return matrices;
}

/// Of an object that remembers something: the calls of several threads come one after another.
template <class Object>
struct Locked {
  explicit Locked(std::unique_ptr<Object> made) : object(std::move(made)) {}

  template <class Call>
  auto without_gil(Call call) {
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex);
    return call(*object);
  }

  std::unique_ptr<Object> object;
  std::mutex mutex;
};

/// An ErrorFeedback, as the codec that it also is.
template <class T>
struct LockedFeedback : Locked<codec::Codec<T>> {
  explicit LockedFeedback(std::unique_ptr<codec::ErrorFeedback<T>> made)
      : Locked<codec::Codec<T>>(nullptr), feedback(*made) {
    this->object = std::move(made);
  }

  codec::ErrorFeedback<T>& feedback;
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
  m.def("wants_matrices", codec::wants_matrices, py::arg("spec"),
        "Whether a codec treats matrices as such, and so must see whole ones.");
  m.def("wants_feedback", codec::wants_feedback, py::arg("spec"),
        "Whether a codec's errors grow with the number of steps unless they are fed back.");
}

template <class T>
void bind_codec(py::module_& m) {
  using Codec = Locked<codec::Codec<T>>;
  using Feedback = LockedFeedback<T>;
  py::class_<Codec>(m, "Codec")
      .def(py::init([](const std::string& spec, Index count, const Matrices& matrices) {
             return std::make_unique<Codec>(codec::make_codec<T>(spec, count, to_matrices(matrices)));
           }),
           py::arg("spec"), py::arg("count"), py::arg("matrices") = Matrices())
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
      .def(py::init([](const std::string& spec, Index count, const Matrices& matrices) {
             return std::make_unique<Feedback>(std::make_unique<codec::ErrorFeedback<T>>(
                 codec::make_codec<T>(spec, count, to_matrices(matrices)), count));
           }),
           py::arg("spec"), py::arg("count"), py::arg("matrices") = Matrices())
      .def_property_readonly(
          "residual",
          [](py::object self) {
            const std::span<T> values = self.cast<Feedback&>().feedback.residual();
            return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data(), self);
          },
          "What was lost so far, as an array that shares its memory.")
      .def_property_readonly("lost", [](const Feedback& self) { return self.feedback.lost(); })
      .def_property_readonly("given", [](const Feedback& self) { return self.feedback.given(); });

  using CompressedSum = reduce::CompressedSum<T>;
  using Sum = Locked<CompressedSum>;
  py::class_<Sum>(m, "CompressedSum")
      .def(py::init([](std::shared_ptr<comm::Communicator> comm, const std::string& spec, Index count,
                       const Matrices& matrices, std::optional<bool> feedback, const std::string& form,
                       Index measure_every) {
             using reduce::Form;
             const Form which = form == "gather" ? Form::gather : form == "shares" ? Form::shares : Form::best;
             require(which != Form::best || form == "best", "all-reduce with a codec: form is \"", form,
                     "\"; expected \"gather\", \"shares\" or \"best\"");
             return std::make_unique<Sum>(reduce::make_compressed_sum<T>(
                 std::move(comm), {spec, feedback, which, measure_every}, {0, count}, to_matrices(matrices)));
           }),
           py::arg("comm"), py::arg("spec"), py::arg("count"), py::arg("matrices"), py::arg("feedback"),
           py::arg("form"), py::arg("measure_every"))
      .def(
          "__call__",
          [](Sum& self, py::array& array) {
            const std::span<T> values = write<T>("all-reduce with a codec", array);
            self.without_gil([&](CompressedSum& sum) { sum(values); });
          },
          py::arg("array"), "The array becomes the sum over the ranks.")
      .def(
          "start",
          [](Sum& self, py::array& array) {
            const std::span<T> values = write<T>("all-reduce with a codec", array);
            self.without_gil([&](CompressedSum& sum) { sum.start(values); });
          },
          py::arg("array"), "Encodes the array and sends it; it is the sum's until finish().")
      .def(
          "test", [](Sum& self) { return self.without_gil([](CompressedSum& sum) { return sum.test(); }); },
          "Moves it along; whether finish() need not wait at first.")
      .def(
          "finish", [](Sum& self) { self.without_gil([](CompressedSum& sum) { sum.finish(); }); },
          "Waits; the array is the sum over the ranks then.")
      .def_property_readonly(
          "bytes_sent", [](const Sum& self) { return self.object->bytes_sent(); },
          "Bytes that leave this rank in a sum.")
      .def_property_readonly("stats", [](const Sum& self) { return self.object->stats(); });
}

template void bind_codec<float>(py::module_&);
template void bind_codec<double>(py::module_&);

}  // namespace pdnn::bindings
