// Eigen as a peer of pdnn, for eigen.py: the products of layers, and steps of a multilayer perceptron. ELEMENT is float
// or double.
#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <vector>

using Eigen::Index;
using T = ELEMENT;
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;
using View = Eigen::Map<const Matrix>;
using Row = Eigen::Map<Eigen::Matrix<T, 1, Eigen::Dynamic>>;

extern "C" {

void set_threads(int count) { Eigen::setNbThreads(count); }

/// c [m, n] = a b, where a lies as [m, k] and b as [k, n]; 'a': a lies as [k, m]; 'b': b lies as [n, k].
void product(char transposed, Index m, Index k, Index n, const T* a, const T* b, T* c) {
  Map result(c, m, n);
  if (transposed == 'a') {
    result.noalias() = View(a, k, m).transpose() * View(b, k, n);
  } else if (transposed == 'b') {
    result.noalias() = View(a, m, k) * View(b, n, k).transpose();
  } else {
    result.noalias() = View(a, m, k) * View(b, k, n);
  }
}

/// Steps of gradient descent on softmax cross-entropy, one for each batch. Returns their mean loss.
///
/// sizes: `layers` + 1 of them; weights: [sizes[i], sizes[i + 1]]; biases: null if there are none; x: [steps · batch,
/// sizes[0]]; classes: of as many rows.
double train(Index layers, const Index* sizes, bool tanh, T* const* weights, T* const* biases, Index steps, Index batch,
             const T* x, const std::int64_t* classes, double learning_rate) {
  const T rate = static_cast<T>(learning_rate / static_cast<double>(batch));
  std::vector<Matrix> outputs, deltas, gradients;
  for (Index i = 0; i < layers; ++i) {
    outputs.emplace_back(batch, sizes[i + 1]);
    deltas.emplace_back(batch, sizes[i + 1]);
    gradients.emplace_back(sizes[i], sizes[i + 1]);
  }
  Eigen::Array<T, Eigen::Dynamic, 1> sums(batch);
  double loss = 0;
  for (Index step = 0; step < steps; ++step, x += batch * sizes[0], classes += batch) {
    const auto input = [&](Index layer) { return layer == 0 ? x : outputs[layer - 1].data(); };
    for (Index i = 0; i < layers; ++i) {
      Matrix& y = outputs[i];
      product(' ', batch, sizes[i], sizes[i + 1], input(i), weights[i], y.data());
      if (biases) y.rowwise() += Row(biases[i], sizes[i + 1]);
      if (i + 1 == layers) break;
      if (tanh) {
        y = y.array().tanh();
      } else {
        y = y.array().logistic();
      }
    }

    Matrix &y = outputs.back(), &dy = deltas.back();
    y.array().colwise() -= y.array().rowwise().maxCoeff().eval();
    dy = y.array().exp();
    sums = dy.rowwise().sum();
    dy.array().colwise() *= rate / sums;
    for (Index r = 0; r < batch; ++r) {
      loss += std::log(static_cast<double>(sums[r])) - static_cast<double>(y(r, classes[r]));
      dy(r, classes[r]) -= rate;
    }

    for (Index i = layers - 1; i >= 0; --i) {
      const Matrix& delta = deltas[i];
      if (i > 0) {
        const auto below = outputs[i - 1].array();
        product('b', batch, sizes[i + 1], sizes[i], delta.data(), weights[i], deltas[i - 1].data());
        if (tanh) {
          deltas[i - 1].array() *= 1 - below.square();
        } else {
          deltas[i - 1].array() *= below * (1 - below);
        }
      }
      product('a', sizes[i], batch, sizes[i + 1], input(i), delta.data(), gradients[i].data());
      Map(weights[i], sizes[i], sizes[i + 1]) -= gradients[i];
      if (biases) Row(biases[i], sizes[i + 1]) -= delta.colwise().sum();
    }
  }
  return loss / static_cast<double>(steps * batch);
}
}
