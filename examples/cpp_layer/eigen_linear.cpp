/// y = x W + b, by Eigen over pdnn's memory: the arithmetic of eigen_linear.py.
#include <Eigen/Core>
#include <cmath>
#include <pdnn/custom/python.hpp>
#include <random>

namespace {

using pdnn::Index;
using pdnn::custom::Batch, pdnn::custom::Pass;

template <class T>
using Matrix = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using View = Eigen::Map<std::conditional_t<std::is_const_v<T>, const Matrix<T>, Matrix<T>>>;

/// A sample a row; nothing is copied.
template <class T>
View<T> matrix(const Batch<T>& batch) {
  return {batch.data, batch.rows, batch.width()};
}

template <class T>
class EigenLinear : public pdnn::custom::Layer<T> {
 public:
  EigenLinear(Index inputs, Index outputs) : inputs_(inputs), outputs_(outputs) {
    if (inputs < 1 || outputs < 1) throw std::invalid_argument("expected at least one input and one output");
  }

  std::vector<pdnn::custom::Parameter> parameters() const override {
    return {{"weight", {inputs_, outputs_}}, {"bias", {outputs_}}};
  }

  std::vector<Index> output_shape(const std::vector<Index>& in) const override {
    if (in != std::vector{inputs_})
      throw std::invalid_argument("expected samples of " + std::to_string(inputs_) + " features");
    return {outputs_};
  }

  void initialize(std::uint64_t seed, T* params) const override {
    std::mt19937_64 bits(seed);
    const T bound = 1 / std::sqrt(static_cast<T>(inputs_));
    for (Index i = 0; i < inputs_ * outputs_ + outputs_; ++i)
      params[i] = bound * static_cast<T>(std::ldexp(static_cast<double>(bits()), -63) - 1);
  }

  /// Each thread makes some rows of y.
  void forward(const Pass& pass, const T* params, Batch<const T> x, Batch<T> y, T*) const override {
    const auto [begin, rows] = pass.share(x.rows);
    auto own = matrix(y).middleRows(begin, rows);
    own.noalias() = matrix(x).middleRows(begin, rows) * weight(params);
    own.rowwise() += bias(params);
  }

  /// Each thread makes some rows of dx, and some columns of dW and db, of which a sum goes over all rows.
  void backward(const Pass& pass, const T* params, Batch<const T> x, Batch<const T>, Batch<const T> dy, const T*,
                Batch<T> dx, T* grads) const override {
    if (dx.data) {
      const auto [begin, rows] = pass.share(x.rows);
      matrix(dx).middleRows(begin, rows).noalias() = matrix(dy).middleRows(begin, rows) * weight(params).transpose();
    }
    const auto [begin, columns] = pass.share(outputs_);
    const auto own = matrix(dy).middleCols(begin, columns);
    weight(grads).middleCols(begin, columns).noalias() += matrix(x).transpose() * own;
    bias(grads).segment(begin, columns) += own.colwise().sum();
  }

 private:
  template <class E>
  View<E> weight(E* params) const {
    return {params, inputs_, outputs_};
  }
  template <class E>
  auto bias(E* params) const {
    using Row = Eigen::RowVectorX<std::remove_const_t<E>>;
    return Eigen::Map<std::conditional_t<std::is_const_v<E>, const Row, Row>>(params + inputs_ * outputs_, outputs_);
  }

  Index inputs_, outputs_;
};

/// make(dtype, in_features, out_features)
PyObject* make(PyObject*, PyObject* arguments) {
  const char* dtype;
  Py_ssize_t inputs, outputs;
  if (!PyArg_ParseTuple(arguments, "snn", &dtype, &inputs, &outputs)) return nullptr;
  return pdnn::custom::layer_capsule<EigenLinear>(dtype, inputs, outputs);
}

PyMethodDef methods[] = {{"make", make, METH_VARARGS, "The layer, for pdnn."}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_eigen_linear", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__eigen_linear() { return PyModule_Create(&module); }
