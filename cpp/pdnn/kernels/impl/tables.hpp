#pragma once
/// The tables of this build: every kernel for both element types.
#include "pdnn/kernels/impl/bfloat16.hpp"
#include "pdnn/kernels/impl/coding.hpp"
#include "pdnn/kernels/impl/columns.hpp"
#include "pdnn/kernels/impl/curves.hpp"
#include "pdnn/kernels/impl/dropout.hpp"
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/impl/integers.hpp"
#include "pdnn/kernels/impl/normalize.hpp"
#include "pdnn/kernels/impl/peak.hpp"
#include "pdnn/kernels/impl/pooling.hpp"
#include "pdnn/kernels/impl/rows.hpp"
#include "pdnn/kernels/impl/rules.hpp"
#include "pdnn/kernels/impl/signs.hpp"
#include "pdnn/kernels/impl/sparse.hpp"
#include "pdnn/kernels/impl/stack.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels::impl {
namespace {

template <class T>
inline constexpr Table<T> kTable = {
    product_kernels<Plain<T>>(),
    SparseKernels<T>{
        .sparse_nn = sparse_nn<T>,
        .sparse_tn = sparse_tn<T>,
    },
    StackKernels<T>{
        .stack_forward = stack_forward<T>,
        .stack_backward = stack_backward<T>,
    },
    convolution_kernels<Plain<T>>(),
    ImageKernels<T>{
        .flip_taps = flip_taps<T>,
        .max_pool = max_pool<T>,
        .max_pool_backward = max_pool_backward<T>,
        .mean_pool = mean_pool<T>,
        .mean_pool_backward = mean_pool_backward<T>,
        .transpose_samples = transpose_samples<T>,
    },
    ElementwiseKernels<T>{
        .activate = activate<T>,
        .activate_backward = activate_backward<T>,
        .leaky_relu = leaky_relu<T>,
        .curve = curve<T>,
        .curve_backward = curve_backward<T>,
        .exp = exp<T>,
        .log = log<T>,
        .dropout = dropout<T>,
        .add = add<T>,
        .gather_bytes = gather_rows<T, std::uint8_t>,
        .gather_floats = gather_rows<T, float>,
        .gather_doubles = gather_rows<T, double>,
    },
    RowKernels<T>{
        .softmax = softmax<T>,
        .softmax_backward = softmax_backward<T>,
        .log_softmax = log_softmax<T>,
        .log_softmax_backward = log_softmax_backward<T>,
        .cross_entropy_of_classes = cross_entropy_of_classes<T>,
        .cross_entropy_of_targets = cross_entropy_of_targets<T>,
        .column_moments = column_moments<T>,
        .normalize = normalize<T>,
        .normalize_sums = normalize_sums<T>,
        .normalize_backward = normalize_backward<T>,
        .layer_norm = layer_norm<T>,
        .layer_norm_backward = layer_norm_backward<T>,
        .layer_norm_sums = layer_norm_sums<T>,
    },
    UpdateKernels<T>{
        .update = update<T>,
        .square_sums = square_sums<T>,
        .scale = scale<T>,
        .clamp = clamp<T>,
    },
    CodingKernels<T>{
        .encode_half = encode_half<T>,
        .decode_half = decode_half<T>,
        .encode_integers = encode_integers<T>,
        .decode_integers = decode_integers<T>,
        .encode_signs = encode_signs<T>,
        .decode_signs = decode_signs<T>,
        .count_magnitudes = count_magnitudes<T>,
        .pick_largest = pick_largest<T>,
        .add_and_square = add_and_square<T>,
        .keep_finite = keep_finite<T>,
    },
    work_at_peak<T>,
};

inline constexpr Tables kTables = {kTable<float>, kTable<double>, bfloat16_kernels<Rounded>(kTable<float>)};

}  // namespace
}  // namespace pdnn::kernels::impl
