#pragma once
/// Codecs from their specs.
#include <memory>

#include "pdnn/codec/power_sgd.hpp"
#include "pdnn/codec/spec.hpp"

namespace pdnn::codec {

/// Examples of all there are.
extern const char* const kSpecs;

/// The codec for `count` values at a time, of which `matrices` (for "powersgd") may be treated as such. ValueError if
/// a string spells none.
template <class T>
std::unique_ptr<Codec<T>> make_codec(const Spec& wanted, Index count, const std::vector<MatrixAt>& matrices = {});

/// The matrices among arrays of these shapes, laid one after another: an array of two or more dimensions is one whose
/// columns are its last axis.
std::vector<MatrixAt> matrices_in(const std::vector<std::vector<Index>>& shapes);

/// Whether its errors grow with the number of steps unless they are fed back.
bool wants_feedback(const Spec& spec);

/// Whether it treats matrices as such, and so must see whole ones: "powersgd:…".
bool wants_matrices(const Spec& spec);

}  // namespace pdnn::codec
