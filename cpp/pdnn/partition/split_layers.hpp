#pragma once
/// What a rank holds of layers that a group of ranks holds together: pairs of Linears are cut, everything else is
/// whole.
#include "pdnn/partition/network_part.hpp"

namespace pdnn::partition {

/// The part of rank group->rank(). Two Linears with nothing but elementwise functions and Dropout between them become a
/// ColumnParallelLinear and a RowParallelLinear, from the first on, as many as there are; a Linear without a partner
/// and all other layers stay whole on every rank. `whole`: layers one after another, as layers_of() gives them.
/// ValueError if nothing can be split although it is `needed`, saying why.
template <class T>
NetworkPart<T> split_layers(const NetworkPart<T>& whole, const std::shared_ptr<comm::Communicator>& group,
                            bool needed = true);

}  // namespace pdnn::partition
