#pragma once
/// The border between the public kernels and their builds for one instruction set each: tables of function pointers,
/// with plain views and numbers as arguments.
#include "pdnn/kernels/coding.hpp"
#include "pdnn/kernels/isa.hpp"
#include "pdnn/kernels/kernels.hpp"

namespace pdnn::kernels {

/// What one build offers for one element type. A function that is not explained here is the public one of its name.
template <class T>
struct Table {
  decltype(&kernels::product_nn<T>) product_nn;
  decltype(&kernels::product_nt<T>) product_nt;
  decltype(&kernels::product_tn<T>) product_tn;
  decltype(&kernels::product_tn_update<T>) product_tn_update;
  decltype(&kernels::column_sums<T>) column_sums;
  decltype(&kernels::convolution<T>) convolution;
  decltype(&kernels::flip_taps<T>) flip_taps;
  decltype(&kernels::convolution_dx<T>) convolution_dx;
  decltype(&kernels::convolution_dw<T>) convolution_dw;
  decltype(&kernels::max_pool<T>) max_pool;
  decltype(&kernels::max_pool_backward<T>) max_pool_backward;
  decltype(&kernels::mean_pool<T>) mean_pool;
  decltype(&kernels::mean_pool_backward<T>) mean_pool_backward;
  decltype(&kernels::transpose_samples<T>) transpose_samples;
  decltype(&kernels::activate<T>) activate;
  decltype(&kernels::activate_backward<T>) activate_backward;
  decltype(&kernels::exp<T>) exp;
  decltype(&kernels::log<T>) log;
  /// Keeps the elements whose 32 random bits are ≥ threshold. The key of the random numbers, by value.
  void (*dropout)(Part part, std::uint64_t key, Index first, Index stride, std::uint64_t threshold, T scale,
                  Matrix<const T> x, Matrix<T> y);
  decltype(&kernels::softmax<T>) softmax;
  decltype(&kernels::softmax_backward<T>) softmax_backward;
  decltype(&kernels::log_softmax<T>) log_softmax;
  decltype(&kernels::log_softmax_backward<T>) log_softmax_backward;
  void (*cross_entropy_of_classes)(Part, Matrix<const T>, const std::int32_t*, double, Matrix<T>, double*);
  void (*cross_entropy_of_targets)(Part, Matrix<const T>, Matrix<const T>, double, Matrix<T>, double*);
  decltype(&kernels::leaky_relu<T>) leaky_relu;
  decltype(&kernels::gelu<T>) gelu;
  decltype(&kernels::gelu_backward<T>) gelu_backward;
  decltype(&kernels::column_moments<T>) column_moments;
  decltype(&kernels::normalize<T>) normalize;
  decltype(&kernels::normalize_sums<T>) normalize_sums;
  decltype(&kernels::normalize_backward<T>) normalize_backward;
  decltype(&kernels::layer_norm<T>) layer_norm;
  decltype(&kernels::layer_norm_backward<T>) layer_norm_backward;
  decltype(&kernels::layer_norm_sums<T>) layer_norm_sums;
  decltype(&kernels::add<T>) add;
  decltype(&kernels::update<T>) update;
  decltype(&kernels::square_sums<T>) square_sums;
  decltype(&kernels::scale<T>) scale;
  decltype(&kernels::clamp<T>) clamp;
  decltype(&kernels::gather_rows<T, std::uint8_t>) gather_bytes;
  decltype(&kernels::gather_rows<T, float>) gather_floats;
  decltype(&kernels::gather_rows<T, double>) gather_doubles;
  decltype(&kernels::encode_half<T>) encode_half;
  decltype(&kernels::decode_half<T>) decode_half;
  decltype(&kernels::encode_int8<T>) encode_int8;
  decltype(&kernels::decode_int8<T>) decode_int8;
  decltype(&kernels::encode_signs<T>) encode_signs;
  decltype(&kernels::decode_signs<T>) decode_signs;
  decltype(&kernels::count_magnitudes<T>) count_magnitudes;
  decltype(&kernels::pick_largest<T>) pick_largest;
  decltype(&kernels::add_and_square<T>) add_and_square;
  decltype(&kernels::keep_finite<T>) keep_finite;
  /// Multiplies and adds in registers for `rounds` rounds; returns how many floating-point operations that was.
  double (*work_at_peak)(Index rounds);
};

struct Tables {
  Table<float> floats;
  Table<double> doubles;

  template <class T>
  const Table<T>& of() const {
    if constexpr (std::is_same_v<T, float>)
      return floats;
    else
      return doubles;
  }
};

/// A supported instruction set's.
const Tables& tables(Isa isa);
/// The active one's.
template <class T>
const Table<T>& table() {
  static const Table<T>& chosen = tables(active_isa()).template of<T>();
  return chosen;
}

// One build's tables: its only symbol.
const Tables* tables_v2();
const Tables* tables_v3();
const Tables* tables_v4();

}  // namespace pdnn::kernels
