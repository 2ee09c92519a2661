#pragma once
/// Cut: where a network is divided into the stages of a pipeline, by hand or so that the slowest stage takes least.
#include "pdnn/nn/network.hpp"

namespace pdnn::partition {

/// A cut is the layers with which the second, third, … stage begin. This one makes the largest sum of a stage's costs
/// as small as it can be; a stage has at least one layer. Of several such cuts it is the one whose last stages are
/// longest. Dynamic programming: layers² · stages steps. ValueError if there are fewer layers than stages.
std::vector<Index> cut_by_cost(std::span<const double> costs, int stages);

/// The layers of every stage. ValueError unless the cut rises and leaves no stage empty.
std::vector<Range> stages_of(Index layers, std::span<const Index> cut);

/// What a batch takes forward and backward, in seconds.
struct PassSeconds {
  double forward, backward;
};

/// Of each of these stages, for a micro-batch of so many rows on one thread: the second fastest of seven rounds. A
/// stage is bound by itself, as a rank of a pipeline binds it, and adds to its gradient; dx is not needed below the
/// first.
template <class T>
std::vector<PassSeconds> stage_seconds(const nn::Network<T>& network, const Shape& sample,
                                       std::span<const Range> stages, Index rows);

/// The cut by the times that the layers take, each as a stage of its own. Layers that are computed as one stay together
/// where there are no more stages than that leaves.
template <class T>
std::vector<Index> measured_cut(const nn::Network<T>& network, const Shape& sample, int stages, Index rows);

}  // namespace pdnn::partition
