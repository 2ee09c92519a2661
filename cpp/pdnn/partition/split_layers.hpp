#pragma once
/// What a rank holds of layers that a group of ranks holds together: pairs of Linears are cut, everything else is
/// whole.
#include "pdnn/partition/network_part.hpp"

namespace pdnn::partition {

/// Numbers of two Linears among layers, with nothing between them that needs all columns at once.
struct LinearPair {
  std::size_t first, second;
};

/// The pairs that are cut, from the first Linear on: two Linears with nothing but elementwise functions, Dropout and
/// views of features between them, each in one pair at most.
template <class T>
std::vector<LinearPair> linear_pairs(const std::vector<nn::LayerPtr<T>>& layers);

/// The part of rank group->rank(). The Linears of linear_pairs() become a ColumnParallelLinear and a RowParallelLinear;
/// all other layers stay whole on every rank. `whole`: layers one after another, as layers_of() gives them.
/// ValueError if nothing can be split although it is `needed`, saying why.
template <class T>
NetworkPart<T> split_layers(const NetworkPart<T>& whole, const std::shared_ptr<comm::Communicator>& group,
                            bool needed = true);

}  // namespace pdnn::partition
