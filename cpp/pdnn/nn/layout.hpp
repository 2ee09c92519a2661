#pragma once
/// Layout: how a model's parameters, and all that is as long as they are, lie while they are trained.
#include <span>
#include <vector>

#include "pdnn/core/types.hpp"

namespace pdnn::nn {

/// Users have every array in rows. Training may have a weight in panels (kernels::PanelMatrix): the columns of 256
/// bytes after one another, each as rows.
template <class T>
class Layout {
 public:
  /// A weight of rows × cols from element `offset` on.
  struct PanelWeight {
    Index offset, rows, cols;
  };
  /// In ascending order of their offsets.
  void put_in_panels(const PanelWeight& weight) { weights_.push_back(weight); }
  /// Whether the array that begins at this element lies in panels.
  bool in_panels(Index offset) const;

  /// Copies an array of all parameters, or gradients or the like, from rows into this layout, and back.
  void from_rows(std::span<const T> rows, std::span<T> out) const;
  void to_rows(std::span<const T> from, std::span<T> rows) const;

 private:
  /// Calls panels(weight) for each of these, run(element, count) for what lies between them.
  template <class Run, class Weight>
  void each_piece(Index size, Run run, Weight panels) const;

  std::vector<PanelWeight> weights_;
};

}  // namespace pdnn::nn
