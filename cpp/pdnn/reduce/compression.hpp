#pragma once
/// Compression: how sums over ranks are encoded.
#include <optional>

#include "pdnn/codec/spec.hpp"

namespace pdnn::reduce {

/// How codes travel among p ranks. `gather`: every rank gets every rank's code of the slice, and adds them up in the
/// order of ranks. `shares`: rank i gets the ranks' codes of the i-th share of the slice, adds them up in that order
/// (its own share uncoded), and sends the code of the sum to all. Of a code of b bytes a rank sends (p − 1) b by the
/// first and 2 (p − 1)/p b by the second, which encodes twice. `best`: gather for two ranks, shares for more.
enum class Form { best, gather, shares };

struct Compression {
  codec::Spec codec;
  std::optional<bool> feedback;  ///< whether errors are fed back; none: where the codec wants it
  Form form = Form::best;        ///< "powersgd" has one of its own: its factors are added up by two all-reduces
  Index measure_every = 0;  ///< without feedback, one in so many encodings is decoded to measure its error; 0: none
};

}  // namespace pdnn::reduce
