/// The few kernels that are of use by themselves.
#include <numeric>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/kernels/kernels.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::bindings {

template <class T>
void bind_kernels(py::module_& m) {
  m.def(
      "matmul",
      [](const py::array& a, const py::array& b, int threads) {
        const Matrix<const T> x = read_matrix<T>("matmul: a", a), w = read_matrix<T>("matmul: b", b);
        require(x.cols == w.rows, "matmul: a is ", shape_text(a), " and b is ", shape_text(b),
                "; a needs as many columns as b has rows");
        py::array_t<T> c({x.rows, w.cols});
        const Matrix<T> y{c.mutable_data(), x.rows, w.cols};
        const py::gil_scoped_release release;
        threads::Team(threads).run([&](const threads::Member& member) {
          kernels::product_nn<T>(member, x, w, nullptr, kernels::Activation::identity, y);
        });
        return c;
      },
      py::arg("a"), py::arg("b"), py::arg("threads") = 1, "a @ b for C-ordered matrices.");
  m.def(
      "square_sum",
      [](const py::array& x) {
        const std::span<const T> values = read<T>("square_sum", x);
        const Index n = static_cast<Index>(values.size());
        Buffer<double> sums(kernels::square_chunks(n));
        kernels::square_sums<T>(Part{}, n, values.data(), sums.data());
        return std::accumulate(sums.data(), sums.data() + sums.size(), 0.0);
      },
      py::arg("x"), "Σ x², in an order that depends on the number of elements only.");
  m.def(
      "measure_peak",
      [](double seconds) {
        const py::gil_scoped_release release;
        return kernels::measure_peak<T>(seconds);
      },
      py::arg("seconds") = 0.01, "Floating-point operations a second of fused multiply-adds on one core, measured.");
}

template void bind_kernels<float>(py::module_&);
template void bind_kernels<double>(py::module_&);

}  // namespace pdnn::bindings
