#pragma once
/// The solvers, for a file that has given Eigen's namespace a name of its own: Eigen's templates are weak symbols, and
/// of two instruction sets' the linker would keep one.
#include <Eigen/Cholesky>
#include <Eigen/IterativeLinearSolvers>

#include "pdnn/curvature/solvers.hpp"

namespace {
class Operator;
}

// As Eigen's page on matrix-free solvers says.
template <>
struct Eigen::internal::traits<Operator> : Eigen::internal::traits<Eigen::SparseMatrix<double>> {};

namespace {

/// A symmetric matrix that is known by its products alone.
class Operator : public Eigen::EigenBase<Operator> {
 public:
  using Scalar = double;
  using RealScalar = double;
  using StorageIndex = Eigen::Index;
  // NOLINTBEGIN(readability-identifier-naming): Eigen's names
  static constexpr int ColsAtCompileTime = Eigen::Dynamic, MaxColsAtCompileTime = Eigen::Dynamic;
  static constexpr bool IsRowMajor = false;
  // NOLINTEND(readability-identifier-naming)

  Operator(Eigen::Index n, pdnn::curvature::Multiply multiply, void* context)
      : n_(n), multiply_(multiply), context_(context) {}
  // As in Eigen's page: its base calls these. NOLINTBEGIN(bugprone-derived-method-shadowing-base-method)
  Eigen::Index rows() const { return n_; }
  Eigen::Index cols() const { return n_; }
  // NOLINTEND(bugprone-derived-method-shadowing-base-method)
  void apply(const double* v, double* out) const { multiply_(context_, v, out); }
  template <class Vector>
  Eigen::Product<Operator, Vector, Eigen::AliasFreeProduct> operator*(const Eigen::MatrixBase<Vector>& v) const {
    return {*this, v.derived()};
  }

 private:
  Eigen::Index n_;
  pdnn::curvature::Multiply multiply_;
  void* context_;
};

}  // namespace

template <class Vector>
struct Eigen::internal::generic_product_impl<Operator, Vector, Eigen::SparseShape, Eigen::DenseShape,
                                             Eigen::GemvProduct>
    : Eigen::internal::generic_product_impl_base<Operator, Vector, generic_product_impl<Operator, Vector>> {
  using Scalar = double;
  template <class Out>
  static void scaleAndAddTo(Out& out, const Operator& a, const Vector& v,  // NOLINT(readability-identifier-naming)
                            const double& scale) {
    const Eigen::VectorXd dense = v;
    Eigen::VectorXd product(a.rows());
    a.apply(dense.data(), product.data());
    out += scale * product;
  }
};

namespace {

using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class Decomposition>
bool solve_by(pdnn::Index n, double* a, double* b) {
  Eigen::Map<Rows> matrix(a, n, n);
  Eigen::Ref<Rows> in_place(matrix);
  const Decomposition decomposition(in_place);
  if (decomposition.info() != Eigen::Success) return false;
  Eigen::Map<Eigen::VectorXd> right(b, n);
  const Eigen::VectorXd x = decomposition.solve(right);
  if (!x.allFinite()) return false;
  right = x;
  return true;
}

pdnn::Index solve_cg(pdnn::Index n, pdnn::curvature::Multiply multiply, void* context, const double* b,
                     double tolerance, pdnn::Index most, double* x) {
  const Operator a(n, multiply, context);
  Eigen::ConjugateGradient<Operator, Eigen::Lower | Eigen::Upper, Eigen::IdentityPreconditioner> solver(a);
  solver.setTolerance(tolerance);
  solver.setMaxIterations(most);
  Eigen::Map<Eigen::VectorXd>(x, n) = solver.solve(Eigen::Map<const Eigen::VectorXd>(b, n));
  return solver.iterations();
}

constexpr pdnn::curvature::Solvers kSolvers{solve_by<Eigen::LLT<Eigen::Ref<Rows>, Eigen::Lower>>,
                                            solve_by<Eigen::LDLT<Eigen::Ref<Rows>, Eigen::Lower>>, solve_cg};

}  // namespace
