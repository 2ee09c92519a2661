#pragma once
/// Cut: where a network is divided into the stages of a pipeline, by hand or so that the slowest stage takes least.
#include "pdnn/nn/network.hpp"

namespace pdnn::parallel {

/// A cut is the layers with which the second, third, … stage begin. This one makes the largest sum of a stage's costs
/// as small as it can be; a stage has at least one layer. Of several such cuts it is the one whose last stages are
/// longest. Dynamic programming: layers² · stages steps. ValueError if there are fewer layers than stages.
std::vector<Index> cut_by_cost(std::span<const double> costs, int stages);

/// The layers of every stage. ValueError unless the cut rises and leaves no stage empty.
std::vector<Range> stages_of(Index layers, std::span<const Index> cut);

/// Seconds that a batch of so many rows takes forward and backward through each layer by itself, on one thread: the
/// fastest of a few rounds.
template <class T>
std::vector<double> layer_seconds(const nn::Network<T>& network, const Shape& sample, Index rows);

}  // namespace pdnn::parallel
