/// The few kernels that are of use by themselves.
#include <pybind11/stl.h>

#include <numeric>

#include "bindings.hpp"
#include "numpy.hpp"
#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/layers/windows.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::bindings {

namespace {

/// A convolution of arrays: x (n, height, width, inputs) and w (kernel, kernel, inputs, outputs).
template <class T>
struct Arrays {
  const T *x, *w;
  kernels::Convolution shape;
  Index batch;

  Arrays(const char* where, const py::array& x_array, const py::array& w_array, Index stride, Index padding)
      : x(read<T>(where, x_array).data()), w(read<T>(where, w_array).data()) {
    require(x_array.ndim() == 4 && w_array.ndim() == 4 && x_array.shape(3) == w_array.shape(2) &&
                w_array.shape(0) == w_array.shape(1) && w_array.size() > 0,
            where, ": x is ", shape_text(x_array), " and w is ", shape_text(w_array),
            "; expected (n, height, width, inputs) and (kernel, kernel, inputs, outputs)");
    batch = x_array.shape(0);
    const nn::WindowOptions options{w_array.shape(0), stride, padding};
    nn::check_windows(where, options);
    const Shape image{x_array.shape(3), x_array.shape(1), x_array.shape(2)};
    shape = {nn::windows_on(where, image, options), w_array.shape(2), w_array.shape(3)};
  }
  std::vector<Index> out() const { return {batch, shape.windows.y.places, shape.windows.x.places, shape.outputs}; }
};

template <class T>
void bind_convolutions(py::module_& m) {
  m.def(
      "conv2d",
      [](const py::array& x, const py::array& w, const std::optional<py::array>& b, Index stride, Index padding,
         int threads) {
        const Arrays<T> arrays("conv2d", x, w, stride, padding);
        const T* const bias = b ? read<T>("conv2d: b", *b).data() : nullptr;
        require(!b || b->size() == arrays.shape.outputs, "conv2d: b has ", b ? b->size() : 0, " elements for ",
                arrays.shape.outputs, " output channels");
        py::array_t<T> y(arrays.out());
        T* const out = y.mutable_data();
        const NoGil release;
        threads::Team(threads).run([&](const threads::Member& member) {
          kernels::table<T>().convolution(member, arrays.shape, arrays.batch, arrays.x, arrays.w, bias, false, out);
        });
        return y;
      },
      py::arg("x"), py::arg("w"), py::arg("b") = py::none(), py::kw_only(), py::arg("stride") = 1,
      py::arg("padding") = 0, py::arg("threads") = 1,
      "The convolution of images (n, height, width, inputs) with w (kernel, kernel, inputs, outputs).");
  m.def(
      "conv2d_backward",
      [](const py::array& x, const py::array& w, const py::array& dy, Index stride, Index padding, bool dx_wanted,
         bool dw_wanted, int threads) {
        const Arrays<T> arrays("conv2d_backward", x, w, stride, padding);
        const T* const gradient = read<T>("conv2d_backward: dy", dy).data();
        const std::vector<Index> out = arrays.out();
        require(std::vector<Index>(dy.shape(), dy.shape() + dy.ndim()) == out, "conv2d_backward: dy is ",
                shape_text(dy), ", which is not the shape of y");
        const auto like = [](const py::array& a, bool wanted) {
          return wanted ? py::array_t<T>(std::vector<Index>(a.shape(), a.shape() + a.ndim())) : py::array_t<T>(0);
        };
        py::array_t<T> dx = like(x, dx_wanted), dw = like(w, dw_wanted), db(dw_wanted ? arrays.shape.outputs : 0);
        AlignedArray<T> flipped(dx_wanted ? w.size() : 0);
        T *const dx_to = dx.mutable_data(), *const dw_to = dw.mutable_data(), *const db_to = db.mutable_data();
        {
          const NoGil release;
          threads::Team(threads).run([&](const threads::Member& member) {
            if (dw_wanted)
              kernels::table<T>().convolution_dw(member, arrays.shape, arrays.batch, arrays.x, gradient, gradient, {},
                                                 false, dw_to, db_to);
            if (!dx_wanted) return;
            kernels::table<T>().flip_taps(member, arrays.shape, arrays.w, flipped.data());
            member.barrier();
            kernels::table<T>().convolution_dx(member, arrays.shape, arrays.batch, gradient, flipped.data(), dx_to);
          });
        }
        const auto given = [](const py::array& a, bool wanted) -> py::object {
          return wanted ? py::object(a) : py::none();
        };
        return py::make_tuple(given(dx, dx_wanted), given(dw, dw_wanted), given(db, dw_wanted));
      },
      py::arg("x"), py::arg("w"), py::arg("dy"), py::kw_only(), py::arg("stride") = 1, py::arg("padding") = 0,
      py::arg("dx") = true, py::arg("dw") = true, py::arg("threads") = 1,
      "(dx, dw, db) of conv2d from its gradient dy, shaped like y; None for what is not wanted.");
}

}  // namespace

template <class T>
void bind_kernels(py::module_& m) {
  bind_convolutions<T>(m);
  m.def(
      "matmul",
      [](const py::array& a, const py::array& b, int threads, const std::string& transposed) {
        require(transposed.empty() || transposed == "a" || transposed == "b", "matmul: transposed is \"", transposed,
                "\"; expected \"a\", \"b\" or nothing");
        const Matrix<const T> x = read_matrix<T>("matmul: a", a), w = read_matrix<T>("matmul: b", b);
        const bool tn = transposed == "a", nt = transposed == "b";
        require((tn ? x.rows : x.cols) == (nt ? w.cols : w.rows), "matmul: a is ", shape_text(a), " and b is ",
                shape_text(b), transposed.empty() ? "" : ", transposed " + transposed,
                "; a needs as many columns as b has rows");
        py::array_t<T> c({tn ? x.cols : x.rows, nt ? w.rows : w.cols});
        const Matrix<T> y{c.mutable_data(), c.shape(0), c.shape(1)};
        const NoGil release;
        threads::Team(threads).run([&](const threads::Member& member) {
          using enum kernels::Activation;
          if (tn)
            kernels::table<T>().product_tn(member, x, w, {}, false, y, nullptr);
          else if (nt)
            kernels::table<T>().product_nt(member, x, w, identity, {}, y);
          else
            kernels::table<T>().product_nn(member, x, w, nullptr, identity, y);
        });
        return c;
      },
      py::arg("a"), py::arg("b"), py::arg("threads") = 1, py::arg("transposed") = "",
      "a @ b for C-ordered matrices; transposed: \"a\" for a.T @ b, \"b\" for a @ b.T.");
  m.def(
      "square_sum",
      [](const py::array& x) {
        const std::span<const T> values = read<T>("square_sum", x);
        const Index n = static_cast<Index>(values.size());
        AlignedArray<double> sums(kernels::square_chunks(n));
        kernels::table<T>().square_sums(Part{}, n, values.data(), sums.data());
        return std::accumulate(sums.data(), sums.data() + sums.size(), 0.0);
      },
      py::arg("x"), "Σ x², in an order that depends on the number of elements only.");
  m.def(
      "measure_peak",
      [](double seconds) {
        const NoGil release;
        return kernels::measure_peak<T>(seconds);
      },
      py::arg("seconds") = 0.01, "Floating-point operations a second of fused multiply-adds on one core, measured.");
}

template void bind_kernels<float>(py::module_&);
template void bind_kernels<double>(py::module_&);

}  // namespace pdnn::bindings
