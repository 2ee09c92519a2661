/// Layers and losses called one by one, from training loops in Python.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/core/subnormals.hpp"
#include "pdnn/nn/layer_call.hpp"
#include "pdnn/nn/loss.hpp"
#include "pdnn/reduce/rank_sums.hpp"
#include "target.hpp"

namespace pdnn::bindings {

namespace {

/// New memory that starts on a cache line, as an array of this shape, to be written before it is read.
template <class T>
py::array_t<T> make_array(const std::vector<Index>& extents) {
  Index count = 1;
  for (const Index extent : extents) count *= extent;
  return share_buffer(std::make_shared<AlignedArray<T>>(count, Contents::anything), extents);
}

std::vector<Index> extents_of(Index rows, const Shape& sample) {
  std::vector<Index> extents{rows};
  for (int axis = 0; axis < sample.rank(); ++axis) extents.push_back(sample[axis]);
  return extents;
}

using Announce = std::function<void(Index, Index)>;  // takes the GIL by itself

/// Tells Python which slice of the gradient is final.
class CallPython : public nn::GradReady {
 public:
  explicit CallPython(const Announce& announce) : announce_(announce) {}
  void operator()(const nn::Member& member, Range slice) override {
    if (member.first()) announce_(slice.begin, slice.end);
  }

 private:
  const Announce& announce_;
};

/// What a call of one thread depends on beside arrays; random numbers are those of (seed, number).
struct Settings {
  Settings(bool training, std::uint64_t seed, std::uint64_t number, comm::Communicator* ranks) {
    pass.team = &alone;
    pass.training = training;
    pass.key = Rng(seed).child(number);
    if (ranks) pass.batch_sum = &sums.emplace(*ranks);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  nn::Member alone;
  std::optional<reduce::RankSum> sums;
  nn::Pass pass{};
};

template <class T>
void check_counts(const nn::LayerCall<T>& call, std::size_t params, std::size_t buffers) {
  require(static_cast<Index>(params) == call.params() && static_cast<Index>(buffers) == call.buffers(), "layer: got ",
          params, " parameters and buffers of ", buffers, ", expected ", call.params(), " and ", call.buffers());
}

template <class T>
std::pair<py::array_t<T>, py::array_t<T>> forward(const nn::LayerCall<T>& call, const py::array& x,
                                                  const py::array& params, py::array buffers, bool training,
                                                  std::uint64_t seed, std::uint64_t number,
                                                  std::optional<comm::Communicator*> ranks) {
  const Tensor<const T> batch = read_batch<T>("x", x);
  if (batch.sample != call.in())
    throw ValueError(message("x: samples are ", batch.sample.text(), ", expected ", call.in().text()));
  const std::span<const T> w = read<T>("params", params);
  const std::span<T> s = write<T>("buffers", buffers);
  check_counts(call, w.size(), s.size());
  py::array_t<T> y = make_array<T>(extents_of(batch.batch, call.out()));
  py::array_t<T> saved = make_array<T>({call.saved(batch.batch)});
  const Tensor<T> rows{y.mutable_data(), batch.batch, call.out()};
  const std::span<T> kept = write<T>("saved", saved);
  const Settings settings(training, seed, number, ranks.value_or(nullptr));
  {
    const NoGil release;
    const SubnormalsAsZero zero;
    call.forward(settings.pass, w, s, kept, batch, rows);
  }
  return {y, saved};
}

template <class T>
std::optional<py::array_t<T>> backward(const nn::LayerCall<T>& call, const py::array& x, const py::array& y,
                                       const py::array& dy, const py::array& params, const py::array& buffers,
                                       py::array saved, py::array grads, bool want_dx, bool training,
                                       std::uint64_t seed, std::uint64_t number,
                                       std::optional<comm::Communicator*> ranks, const std::optional<Announce>& final) {
  const Tensor<const T> batch = read_batch<T>("x", x), out = read_batch<T>("y", y), dout = read_batch<T>("dy", dy);
  if (batch.sample != call.in() || out.sample != call.out() || dout.sample != call.out() || out.batch != batch.batch ||
      dout.batch != batch.batch)
    throw ValueError(message("backward: x, y and dy are ", shape_text(x), ", ", shape_text(y), " and ", shape_text(dy),
                             "; expected samples of ", call.in().text(), " and ", call.out().text()));
  const std::span<const T> w = read<T>("params", params), s = read<T>("buffers", buffers);
  check_counts(call, w.size(), s.size());
  const std::span<T> kept = write<T>("saved", saved), g = write<T>("grads", grads);
  require(static_cast<Index>(kept.size()) == call.saved(batch.batch) && g.size() == w.size(), "backward: got ",
          kept.size(), " saved elements and ", g.size(), " gradients");
  std::optional<py::array_t<T>> dx;
  Tensor<T> din{nullptr, batch.batch, batch.sample};
  if (want_dx) {
    dx = make_array<T>(extents_of(batch.batch, batch.sample));
    din.data = dx->mutable_data();
  }
  Settings settings(training, seed, number, ranks.value_or(nullptr));
  std::optional<CallPython> announce;
  if (final) settings.pass.final = &announce.emplace(*final);
  {
    const NoGil release;
    const SubnormalsAsZero zero;
    call.backward(settings.pass, w, s, kept, batch, out, dout, din, g);
  }
  return dx;
}

template <class T>
std::tuple<double, double, std::optional<py::array_t<T>>> evaluate(const nn::Loss<T>& loss, const py::array& y,
                                                                   const py::array& target,
                                                                   const std::optional<py::array>& weight,
                                                                   bool want_dy) {
  const Tensor<const T> outputs = read_batch<T>("outputs", y);
  const nn::Target<T> rows = read_target<T>("targets", target, weight, outputs.batch);
  loss.check(outputs.sample, rows.values.cols);
  AlignedArray<double> parts(2 * outputs.batch);
  std::optional<py::array_t<T>> dy;
  Tensor<T> wanted{nullptr, outputs.batch, outputs.sample};
  if (want_dy) {
    dy = make_array<T>(extents_of(outputs.batch, outputs.sample));
    wanted.data = dy->mutable_data();
  }
  double value = 0, all = 0;
  {
    const NoGil release;
    const SubnormalsAsZero zero;
    const nn::Member alone;
    all = loss.weight_of_rows(rows, outputs.batch);
    value = loss(alone, outputs, rows, loss.scale(all), wanted, parts.data()).value;
  }
  return {loss.reduce(value, all), all, dy};
}

}  // namespace

template <class T>
void bind_eager(py::module_& m) {
  using Call = nn::LayerCall<T>;
  py::class_<Call, std::shared_ptr<Call>>(m, "LayerCall")
      .def(py::init([](const std::shared_ptr<nn::Layer<T>>& layer, const std::vector<Index>& sample) {
             return std::make_shared<Call>(layer, to_shape(sample));
           }),
           py::arg("layer"), py::arg("sample"), "A layer bound to samples of this shape.")
      .def_property_readonly("output_shape",
                             [](const Call& call) {
                               std::vector<Index> extents = extents_of(0, call.out());
                               return std::vector<Index>(extents.begin() + 1, extents.end());
                             })
      .def_property_readonly("channels_first", &Call::channels_first,
                             "Whether images come with their channels first; else last.")
      .def_property_readonly("synchronized", &Call::synchronized, "Whether ranks that share a batch add up their sums.")
      .def("forward", &forward<T>, py::arg("x"), py::arg("params"), py::arg("buffers"), py::arg("training"),
           py::arg("seed"), py::arg("number"), py::arg("ranks"),
           "(y, what backward needs); random numbers are those of (seed, number).")
      .def("backward", &backward<T>, py::arg("x"), py::arg("y"), py::arg("dy"), py::arg("params"), py::arg("buffers"),
           py::arg("saved"), py::arg("grads"), py::arg("want_dx"), py::arg("training"), py::arg("seed"),
           py::arg("number"), py::arg("ranks"), py::arg("final"),
           "dx, or None; adds to grads and calls final(begin, end) for each slice of them that is final.");
  m.def("evaluate_loss", &evaluate<T>, py::arg("loss"), py::arg("outputs"), py::arg("targets"), py::arg("weight"),
        py::arg("want_dy"), "(loss of the batch, what its rows count, gradient for the outputs or None).");
}

template void bind_eager<float>(py::module_&);
template void bind_eager<double>(py::module_&);

}  // namespace pdnn::bindings
