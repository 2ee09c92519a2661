#include "pdnn/kernels/kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels {

const Tables& tables(Isa isa) {
  switch (isa) {
#ifdef PDNN_WITH_V4
    case Isa::v4:
      return *tables_v4();
#endif
#ifdef PDNN_WITH_V3
    case Isa::v3:
      return *tables_v3();
#endif
    default:
      return *tables_v2();
  }
}

namespace {

/// Calls move(row-major elements, panel's elements, columns) for each row of each panel.
template <class T, class Move>
void for_panel_rows(Index rows, Index cols, T* row_major, T* panels, Move move) {
  for (Index col = 0; col < cols; col += kPanel<T>) {
    const Index width = std::min(kPanel<T>, cols - col);
    for (Index r = 0; r < rows; ++r, panels += width) move(row_major + r * cols + col, panels, width);
  }
}

}  // namespace

template <class T>
void to_panels(Index rows, Index cols, T* w, T* room) {
  std::copy_n(w, rows * cols, room);
  for_panel_rows(rows, cols, room, w, [](const T* from, T* to, Index width) { std::copy_n(from, width, to); });
}

template <class T>
void from_panels(Index rows, Index cols, T* w, T* room) {
  std::copy_n(w, rows * cols, room);
  for_panel_rows(rows, cols, w, room, [](T* to, const T* from, Index width) { std::copy_n(from, width, to); });
}

template <class T>
void product_nn(Part part, Matrix<const T> x, Weights<const T> w, const T* b, Activation f, Matrix<T> y) {
  table<T>().product_nn(part, x, w, b, f, y);
}

template <class T>
void product_nt(Part part, Matrix<const T> dy, Weights<const T> w, Activation f, Matrix<const T> x, Matrix<T> dx) {
  table<T>().product_nt(part, dy, w, f, x, dx);
}

template <class T>
void product_tn(Part part, Matrix<const T> x, Matrix<const T> dy, bool add, Weights<T> dw, const Upcoming* upcoming) {
  table<T>().product_tn(part, x, dy, add, dw, upcoming);
}

template <class T>
void product_tn_update(Part part, Matrix<const T> x, Matrix<const T> dy, const Update<T>& update, const T* from,
                       Weights<T> dw, const Upcoming* upcoming) {
  table<T>().product_tn_update(part, x, dy, update, from, dw, upcoming);
}

template <class T>
void column_sums(Part part, Matrix<const T> x, bool add, T* sums) {
  table<T>().column_sums(part, x, add, sums);
}

template <class T>
void convolution(Part part, const Convolution& shape, Index batch, const T* x, const T* w, const T* b, bool relu,
                 T* y) {
  table<T>().convolution(part, shape, batch, x, w, b, relu, y);
}

template <class T>
void flip_taps(Part part, const Convolution& shape, const T* w, T* flipped_w) {
  table<T>().flip_taps(part, shape, w, flipped_w);
}

template <class T>
void convolution_dx(Part part, const Convolution& shape, Index batch, const T* dy, const T* flipped_w, T* dx) {
  table<T>().convolution_dx(part, shape, batch, dy, flipped_w, dx);
}

template <class T>
void convolution_dw(Part part, const Convolution& shape, Index batch, const T* x, const T* dy, bool add, T* dw, T* db) {
  table<T>().convolution_dw(part, shape, batch, x, dy, add, dw, db);
}

template <class T>
void max_pool(Part part, const Windows& windows, Index channels, Index batch, bool relu, const T* x, T* y,
              std::uint8_t* winners) {
  table<T>().max_pool(part, windows, channels, batch, relu, x, y, winners);
}

template <class T>
void max_pool_backward(Part part, const Windows& windows, Index channels, Index batch, const std::uint8_t* winners,
                       const T* dy, T* dx) {
  table<T>().max_pool_backward(part, windows, channels, batch, winners, dy, dx);
}

template <class T>
void mean_pool(Part part, const Windows& windows, Index channels, Index batch, const T* x, T* y) {
  table<T>().mean_pool(part, windows, channels, batch, x, y);
}

template <class T>
void mean_pool_backward(Part part, const Windows& windows, Index channels, Index batch, const T* dy, T* dx) {
  table<T>().mean_pool_backward(part, windows, channels, batch, dy, dx);
}

template <class T>
void transpose_samples(Part part, Index batch, Index rows, Index cols, const T* x, T* y) {
  table<T>().transpose_samples(part, batch, rows, cols, x, y);
}

template <class T>
void activate(Part part, Activation f, Index n, const T* x, T* y) {
  table<T>().activate(part, f, n, x, y);
}

template <class T>
void activate_backward(Part part, Activation f, Index n, const T* y, const T* dy, T* dx) {
  table<T>().activate_backward(part, f, n, y, dy, dx);
}

template <class T>
void exp(Part part, Index n, const T* x, T* y) {
  table<T>().exp(part, n, x, y);
}

template <class T>
void log(Part part, Index n, const T* x, T* y) {
  table<T>().log(part, n, x, y);
}

template <class T>
void dropout(Part part, Rng key, Index first, Index stride, double p, Matrix<const T> x, Matrix<T> y) {
  const auto threshold = static_cast<std::uint64_t>(std::ceil(p * 0x1p32));
  table<T>().dropout(part, key.key(), first, stride, threshold, static_cast<T>(1 / (1 - p)), x, y);
}

template <class T>
void softmax(Part part, Matrix<const T> x, Matrix<T> y) {
  table<T>().softmax(part, x, y);
}

template <class T>
void softmax_backward(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx) {
  table<T>().softmax_backward(part, y, dy, dx);
}

template <class T>
void log_softmax(Part part, Matrix<const T> x, Matrix<T> y) {
  table<T>().log_softmax(part, x, y);
}

template <class T>
void log_softmax_backward(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx) {
  table<T>().log_softmax_backward(part, y, dy, dx);
}

template <class T>
void cross_entropy(Part part, Matrix<const T> y, const std::int32_t* classes, double scale, Matrix<T> dy,
                   double* rows) {
  table<T>().cross_entropy_of_classes(part, y, classes, scale, dy, rows);
}

template <class T>
void cross_entropy(Part part, Matrix<const T> y, Matrix<const T> targets, double scale, Matrix<T> dy, double* rows) {
  table<T>().cross_entropy_of_targets(part, y, targets, scale, dy, rows);
}

template <class T>
void leaky_relu(Part part, T slope, Index n, const T* x, const T* from, T* to) {
  table<T>().leaky_relu(part, slope, n, x, from, to);
}

template <class T>
void gelu(Part part, Index n, const T* x, T* y) {
  table<T>().gelu(part, n, x, y);
}

template <class T>
void gelu_backward(Part part, Index n, const T* x, const T* dy, T* dx) {
  table<T>().gelu_backward(part, n, x, dy, dx);
}

template <class T>
void column_moments(Part part, Matrix<const T> x, T* moments) {
  table<T>().column_moments(part, x, moments);
}

template <class T>
void normalize(Part part, Matrix<const T> x, const Normal<T>& normal, bool relu, Matrix<T> y) {
  table<T>().normalize(part, x, normal, relu, y);
}

template <class T>
void normalize_sums(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy, const T* mean, bool relu,
                    T* sums) {
  table<T>().normalize_sums(part, x, y, dy, mean, relu, sums);
}

template <class T>
void normalize_backward(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy, const Normal<T>& normal,
                        const T* shift, const T* slope, bool relu, Matrix<T> dx) {
  table<T>().normalize_backward(part, x, y, dy, normal, shift, slope, relu, dx);
}

template <class T>
void layer_norm(Part part, Matrix<const T> x, const T* gamma, const T* beta, double eps, Matrix<T> y, T* moments) {
  table<T>().layer_norm(part, x, gamma, beta, eps, y, moments);
}

template <class T>
void layer_norm_backward(Part part, Matrix<const T> x, Matrix<const T> dy, const T* gamma, const T* moments,
                         Matrix<T> dx) {
  table<T>().layer_norm_backward(part, x, dy, gamma, moments, dx);
}

template <class T>
void layer_norm_sums(Part part, Matrix<const T> x, Matrix<const T> dy, const T* moments, bool add, T* dgamma,
                     T* dbeta) {
  table<T>().layer_norm_sums(part, x, dy, moments, add, dgamma, dbeta);
}

template <class T>
void add(Part part, Index n, const T* a, const T* b, T* y) {
  table<T>().add(part, n, a, b, y);
}

template <class T>
void update(Part part, const Update<T>& rule, Index n, const T* g) {
  table<T>().update(part, rule, n, g);
}

template <class T>
void square_sums(Part part, Index n, const T* x, double* sums) {
  table<T>().square_sums(part, n, x, sums);
}

template <class T>
void scale(Part part, Index n, T factor, T* x) {
  table<T>().scale(part, n, factor, x);
}

template <class T>
void clamp(Part part, Index n, T bound, T* x) {
  table<T>().clamp(part, n, bound, x);
}

template <class T, class Source>
void gather_rows(Part part, const Source* x, Index stride, const Index* rows, Index count, Index width, double scale,
                 double shift, T* out) {
  const Table<T>& t = table<T>();
  if constexpr (std::is_same_v<Source, std::uint8_t>)
    t.gather_bytes(part, x, stride, rows, count, width, scale, shift, out);
  else if constexpr (std::is_same_v<Source, float>)
    t.gather_floats(part, x, stride, rows, count, width, scale, shift, out);
  else
    t.gather_doubles(part, x, stride, rows, count, width, scale, shift, out);
}

template <class T>
double measure_peak(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double operations = 0, passed = 0;
  do {
    operations += table<T>().work_at_peak(2000);
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (passed < seconds);
  return operations / passed;
}

#define PDNN_INSTANTIATE_GATHER(T, Source) \
  template void gather_rows<T, Source>(Part, const Source*, Index, const Index*, Index, Index, double, double, T*);

#define PDNN_INSTANTIATE_CURVES(T)                                     \
  template void leaky_relu<T>(Part, T, Index, const T*, const T*, T*); \
  template void gelu<T>(Part, Index, const T*, T*);                    \
  template void gelu_backward<T>(Part, Index, const T*, const T*, T*);

#define PDNN_INSTANTIATE_NORMALIZATION(T)                                                                        \
  template void column_moments<T>(Part, Matrix<const T>, T*);                                                    \
  template void normalize<T>(Part, Matrix<const T>, const Normal<T>&, bool, Matrix<T>);                          \
  template void normalize_sums<T>(Part, Matrix<const T>, Matrix<const T>, Matrix<const T>, const T*, bool, T*);  \
  template void normalize_backward<T>(Part, Matrix<const T>, Matrix<const T>, Matrix<const T>, const Normal<T>&, \
                                      const T*, const T*, bool, Matrix<T>);                                      \
  template void layer_norm<T>(Part, Matrix<const T>, const T*, const T*, double, Matrix<T>, T*);                 \
  template void layer_norm_backward<T>(Part, Matrix<const T>, Matrix<const T>, const T*, const T*, Matrix<T>);   \
  template void layer_norm_sums<T>(Part, Matrix<const T>, Matrix<const T>, const T*, bool, T*, T*);

#define PDNN_INSTANTIATE(T)                                                                                          \
  template void to_panels<T>(Index, Index, T*, T*);                                                                  \
  template void from_panels<T>(Index, Index, T*, T*);                                                                \
  template void product_nn<T>(Part, Matrix<const T>, Weights<const T>, const T*, Activation, Matrix<T>);             \
  template void product_nt<T>(Part, Matrix<const T>, Weights<const T>, Activation, Matrix<const T>, Matrix<T>);      \
  template void product_tn<T>(Part, Matrix<const T>, Matrix<const T>, bool, Weights<T>, const Upcoming*);            \
  template void product_tn_update<T>(Part, Matrix<const T>, Matrix<const T>, const Update<T>&, const T*, Weights<T>, \
                                     const Upcoming*);                                                               \
  template void column_sums<T>(Part, Matrix<const T>, bool, T*);                                                     \
  template void convolution<T>(Part, const Convolution&, Index, const T*, const T*, const T*, bool, T*);             \
  template void flip_taps<T>(Part, const Convolution&, const T*, T*);                                                \
  template void convolution_dx<T>(Part, const Convolution&, Index, const T*, const T*, T*);                          \
  template void convolution_dw<T>(Part, const Convolution&, Index, const T*, const T*, bool, T*, T*);                \
  template void max_pool<T>(Part, const Windows&, Index, Index, bool, const T*, T*, std::uint8_t*);                  \
  template void max_pool_backward<T>(Part, const Windows&, Index, Index, const std::uint8_t*, const T*, T*);         \
  template void mean_pool<T>(Part, const Windows&, Index, Index, const T*, T*);                                      \
  template void mean_pool_backward<T>(Part, const Windows&, Index, Index, const T*, T*);                             \
  template void transpose_samples<T>(Part, Index, Index, Index, const T*, T*);                                       \
  template void activate<T>(Part, Activation, Index, const T*, T*);                                                  \
  template void activate_backward<T>(Part, Activation, Index, const T*, const T*, T*);                               \
  template void exp<T>(Part, Index, const T*, T*);                                                                   \
  template void log<T>(Part, Index, const T*, T*);                                                                   \
  template void dropout<T>(Part, Rng, Index, Index, double, Matrix<const T>, Matrix<T>);                             \
  template void softmax<T>(Part, Matrix<const T>, Matrix<T>);                                                        \
  template void softmax_backward<T>(Part, Matrix<const T>, Matrix<const T>, Matrix<T>);                              \
  template void log_softmax<T>(Part, Matrix<const T>, Matrix<T>);                                                    \
  template void log_softmax_backward<T>(Part, Matrix<const T>, Matrix<const T>, Matrix<T>);                          \
  template void cross_entropy<T>(Part, Matrix<const T>, const std::int32_t*, double, Matrix<T>, double*);            \
  template void cross_entropy<T>(Part, Matrix<const T>, Matrix<const T>, double, Matrix<T>, double*);                \
  template void add<T>(Part, Index, const T*, const T*, T*);                                                         \
  template void update<T>(Part, const Update<T>&, Index, const T*);                                                  \
  template void square_sums<T>(Part, Index, const T*, double*);                                                      \
  template void scale<T>(Part, Index, T, T*);                                                                        \
  template void clamp<T>(Part, Index, T, T*);                                                                        \
  PDNN_INSTANTIATE_GATHER(T, std::uint8_t)                                                                           \
  PDNN_INSTANTIATE_GATHER(T, float)                                                                                  \
  PDNN_INSTANTIATE_GATHER(T, double)                                                                                 \
  template double measure_peak<T>(double);

PDNN_INSTANTIATE(float)
PDNN_INSTANTIATE_CURVES(float)
PDNN_INSTANTIATE_NORMALIZATION(float)
PDNN_INSTANTIATE(double)
PDNN_INSTANTIATE_CURVES(double)
PDNN_INSTANTIATE_NORMALIZATION(double)
#undef PDNN_INSTANTIATE

}  // namespace pdnn::kernels
