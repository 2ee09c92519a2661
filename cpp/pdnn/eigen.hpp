#pragma once
/// Eigen's matrices in and out of pdnn, without a copy.
#include <Eigen/Core>
#include <stdexcept>

#include "pdnn/pdnn.hpp"

namespace pdnn {

/// A row a sample, as pdnn has it.
template <class T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A view of a matrix, a block, a Map or a Ref whose rows are samples and lie in row-major order. Samples that are the
/// columns of a column-major matrix are the rows of `x.transpose()`. `shape` of a sample; unless given, {x.cols()}.
template <class Derived>
Samples samples(const Eigen::MatrixBase<Derived>& x, std::vector<Index> shape = {}, double scale = 1,
                double shift = 0) {
  static_assert((Derived::Flags & Eigen::DirectAccessBit) != 0 && Derived::IsRowMajor,
                "samples: rows must lie in memory; evaluate the expression into a RowMatrix, or transpose");
  if (x.innerStride() != 1) throw std::invalid_argument("samples: the elements of a row lie apart in memory");
  if (shape.empty()) shape = {x.cols()};
  Index elements = 1;
  for (const Index extent : shape) elements *= extent;
  if (elements != x.cols())
    throw std::invalid_argument("samples: a shape of " + std::to_string(elements) + " elements for rows of " +
                                std::to_string(x.cols()) + "; expected as many");
  return Samples(x.derived().data(), x.rows(), std::move(shape), scale, shift, x.outerStride());
}
template <class Derived>
Samples samples(Eigen::PlainObjectBase<Derived>&& x, std::vector<Index> = {}, double = 1, double = 0) = delete;

/// A view of targets: a vector of std::int32_t has classes, a row-major matrix of the model's type values.
template <class Derived>
Targets targets(const Eigen::MatrixBase<Derived>& y) {
  using Scalar = typename Derived::Scalar;
  static_assert((Derived::Flags & Eigen::DirectAccessBit) != 0, "targets: they must lie in memory");
  if (y.innerStride() != 1) throw std::invalid_argument("targets: their elements lie apart in memory");
  if constexpr (std::is_same_v<Scalar, std::int32_t>) {
    static_assert(Derived::IsVectorAtCompileTime, "targets: classes are a vector");
    return Targets(y.derived().data(), y.size());
  } else {
    static_assert(Derived::IsRowMajor, "targets: values must lie in row-major order");
    return Targets(y.derived().data(), y.rows(), y.cols(), y.outerStride());
  }
}
template <class Derived>
Targets targets(Eigen::PlainObjectBase<Derived>&& y) = delete;

/// A view of a parameter, to read and to write: (inputs, outputs) of a Linear, one row of a bias, a row for each tap
/// and input channel of a Conv2d.
template <class T>
Eigen::Map<RowMatrix<T>> matrix(const Array<T>& array) {
  const Index cols = array.shape.empty() ? 1 : array.shape.back();
  return {array.data, array.size / cols, cols};
}

/// The outputs of a Sequential or a Trainer, computed in the matrix that is returned; an output is a row.
template <template <class> class Model, class T>
RowMatrix<T> predict(const Model<T>& model, const Samples& x) {
  Index width = 1;
  for (const Index extent : model.output_shape(x.sample)) width *= extent;
  RowMatrix<T> outputs(x.rows, width);
  model.predict(x, outputs.data());
  return outputs;
}

}  // namespace pdnn
