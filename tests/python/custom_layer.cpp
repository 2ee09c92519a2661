/// An extension with a layer for test_custom_layer.py.
#include <pdnn/custom/python.hpp>

using namespace pdnn::custom;

/// y = weight ∘ x
template <class T>
struct Scale : Layer<T> {
  explicit Scale(Py_ssize_t width) : features(width) {
    if (width < 1) throw std::invalid_argument("expected a feature");
  }
  std::vector<Parameter> parameters() const override { return {{features == 13 ? "make" : "weight", {features}}}; }
  void initialize(std::uint64_t seed, T* params) const override {
    for (Py_ssize_t i = 0; i < features; ++i) params[i] = static_cast<T>(seed % 1000 + i);
  }
  std::vector<pdnn::Index> output_shape(const std::vector<pdnn::Index>& in) const override {
    if (in.back() != features) throw std::invalid_argument("expected " + std::to_string(features) + " features");
    return in;
  }
  void forward(const Pass& pass, const T* params, Batch<const T> x, Batch<T> y, T*) const override {
    if (pass.training() && x.data[0] > 10'000) throw std::runtime_error("too bri\xe9");  // Latin-1
    if (pass.training() && x.data[0] > 100) throw std::runtime_error("too bright");
    const auto [begin, rows] = pass.share(x.rows);
    for (auto i = begin * x.width(); i < (begin + rows) * x.width(); ++i) y.data[i] = params[i % features] * x.data[i];
  }
  void backward(const Pass& pass, const T* params, Batch<const T> x, Batch<const T>, Batch<const T> dy, const T*,
                Batch<T> dx, T* grads) const override {
    const auto [begin, count] = pass.share(features);
    for (pdnn::Index i = 0; i < x.rows * x.width(); ++i) {
      const auto c = i % features;
      if (c < begin || c >= begin + count) continue;
      if (dx.data) dx.data[i] = params[c] * dy.data[i];
      grads[c] += dy.data[i] * x.data[i];
    }
  }
  pdnn::Index saved(const std::vector<pdnn::Index>&) const override {
    return features == 17 ? std::numeric_limits<pdnn::Index>::max() : 0;
  }
  Py_ssize_t features;
};

static PyObject* make(PyObject*, PyObject* arguments) {
  const char* dtype;
  Py_ssize_t features;
  if (!PyArg_ParseTuple(arguments, "sn", &dtype, &features)) return nullptr;
  return layer_capsule<Scale>(dtype, features);
}
static PyMethodDef methods[] = {{"make", make, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, NAME, nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC INIT() { return PyModule_Create(&module); }
