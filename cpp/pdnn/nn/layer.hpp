#pragma once
/// Layer: the contract of everything that turns x into y and dy into dx and gradients.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pdnn/core/errors.hpp"
#include "pdnn/core/leaves.hpp"
#include "pdnn/core/random.hpp"
#include "pdnn/core/types.hpp"
#include "pdnn/kernels/elementwise.hpp"
#include "pdnn/kernels/leaves.hpp"
#include "pdnn/kernels/stack.hpp"
#include "pdnn/kernels/update.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::kernels {
struct Upcoming;
}

namespace pdnn::nn {

struct LossValue;
using threads::Member;

/// A named array among the parameters, or the buffers, which lie in one flat array each.
struct Parameter {
  std::string name;
  std::vector<Index> shape;
  Index count() const;
};

/// Elements that a pass needs beside its arguments: once a call, and for each row. `saved` lives from forward to
/// backward. Both start on a cache line, as does the room for sums by leaves: elements for each leaf of the batch, and
/// for each level of their tree.
struct Sizes {
  Index saved = 0, saved_row = 0, scratch = 0, scratch_row = 0, leaf = 0, level = 0;

  /// Of a batch in so many leaves.
  Index leaf_room(Index leaves) const { return leaves * leaf + tree_levels(leaves) * level; }
};

/// Told when a slice of the flat gradient is final: each slice once, falling, by every member of the team after a
/// barrier. The parameters of that slice are read no more in this pass.
struct GradReady {
  virtual ~GradReady() = default;
  virtual void operator()(const Member& member, Range slice) = 0;
  /// Elements from which on a part of a weight is worth telling of before the rest is there; 0: never.
  virtual Index piece() const { return 0; }
  /// For member 0 to call between kernels: moves along what is under way.
  virtual void poll() {}
};

/// Adds up over everyone who shares the batch that a pass sees a part of: the ranks of a data-parallel group. The same
/// result for all of them; each must make the same calls, a rank without rows too.
struct BatchSum {
  virtual ~BatchSum() = default;
  virtual void sum(std::span<double> values) = 0;
};

/// All that a call may depend on beside its arguments.
struct Pass {
  const Member* team;
  bool training = true;
  Rng key{};                  // of (seed, step), then of the path to the network around this layer
  Index first_row = 0;        // of x in the global batch: a dropout mask does not depend on who computes a row
  bool add = false;           // gradients: store, or add
  bool forward_only = false;  // no backward pass follows: a whole network keeps nothing for one
  GradReady* final = nullptr;
  Index offset = 0;   // where these parameters stand in the flat buffer
  Index number = -1;  // of this layer in that network, or of the step; none: the key is its own
  const kernels::Upcoming* upcoming = nullptr;  // rows of the next batch: the first layer fetches them as it ends
  BatchSum* batch_sum = nullptr;                // for member 0 to call; null: x is the whole batch
  const LeafNodes* leaves = nullptr;            // by which x's rows are summed; null: sums go over all of them

  /// This layer's random numbers: drawing a key takes longer than a small layer's work, and few layers need one.
  Rng rng() const { return number < 0 ? key : key.child(static_cast<std::uint64_t>(number)); }
  /// Between two kernels.
  void poll() const {
    if (final && team->first()) final->poll();
  }
  /// The same pass, whose key is drawn once for all layers within this one.
  Pass inside() const {
    Pass pass = *this;
    pass.key = rng();
    pass.number = -1;
    return pass;
  }
  /// The pass as layer `index` sees it, whose parameters start `at` elements further on.
  Pass child(Index index, Index at) const {
    Pass pass = *this;
    pass.key = rng();
    pass.number = index;
    pass.offset = offset + at;
    pass.forward_only = false;
    return pass;
  }
};

/// For updates without a stored gradient: lets a backward pass apply the optimizer's rule where it makes
/// the gradient of a slice, instead of storing it. Where ranks share the parameters, each updates some panels of a
/// weight: of the others it stores its gradient first, and its own sums go on from what the others have stored; those
/// of leaves are added to it.
template <class T>
struct FusedUpdate {
  virtual ~FusedUpdate() = default;
  /// None: the gradient of this slice must be stored.
  virtual std::optional<kernels::Update<T>> of(Range slice) const = 0;
  /// Those of a weight's panels that this rank updates.
  virtual Range own_panels(Index panels) const { return {0, panels}; }
  /// The gradients of this slice of the flat buffer, which this rank updates, added up over the other ranks; null:
  /// there are none. Every member calls, after storing what the other ranks update; this rank reads those parameters no
  /// more.
  virtual const T* from_others(const Member& /*member*/, Range /*slice*/) const { return nullptr; }
};

/// What a step has its passes tell, and ask of, those who agree on its gradient.
template <class T>
struct Hooks {
  BatchSum* batch_sum = nullptr;
  GradReady* grad_ready = nullptr;
  const FusedUpdate<T>* fused_update = nullptr;  ///< of a batch in leaves: only where this rank has one node
  std::span<T> more_nodes{};         ///< of a batch in leaves: the gradients of this rank's second, third... node
  std::span<LossValue> leaf_sums{};  ///< of all leaves; this rank's are written
};

template <class T>
struct Vars {
  std::span<const T> params, buffers;
  std::span<T> saved, scratch;
  const FusedUpdate<T>* updates = nullptr;
  std::span<T> leaf_room{};   // Sizes::leaf_room() of the pass's leaves
  std::span<T> more_nodes{};  // of the whole model: the gradients of the second, third... node of the pass's leaves
};

/// Calls sum(rows, leaves, grads) for what a pass over `rows` rows sums by itself: each node of its leaves, whose
/// gradients lie where node 0's, a layer's `grads`, do in the model; or all rows.
template <class T, class Sum>
void each_node(const Pass& pass, const Vars<T>& vars, Index rows, std::span<T> grads, Sum sum) {
  if (!pass.leaves) return sum(Range{0, rows}, kernels::LeafSums<T>{}, grads);
  const std::span<const LeafNodes::Node> nodes = pass.leaves->nodes();
  for (Index node = 0; node < std::ssize(nodes); ++node) {
    const auto& [rows_of_node, ends] = nodes[static_cast<std::size_t>(node)];
    T* const own = of_node(node, std::ssize(nodes), grads.data(), vars.more_nodes, pass.offset);
    sum(rows_of_node, kernels::LeafSums<T>{ends.data(), std::ssize(ends), vars.leaf_room.data()},
        std::span(own, grads.size()));
  }
}

/// What a network, and code that divides it, must know of a layer beside its arithmetic.
struct Traits {
  bool view = false;         ///< y is x under another shape: aliased, never computed
  bool elementwise = false;  ///< an element of y is made of the same one of x, and its place, alone: no parameters
  /// Takes sums over the whole batch through Pass::batch_sum, so that no part of a batch can go ahead alone.
  bool synchronized = false;
  /// Takes sums over the rows of a call alone, so that y depends on who computes which rows.
  bool own_statistics = false;
  /// Ranks send each other something within a pass, so that they must make the same passes in the same order.
  bool communicates = false;
  /// Adds up its gradient in another order than the layers that it was made of.
  bool own_order = false;
  /// Takes whole numbers that name something, of which 0 is always one. No layer makes them: the samples have them.
  bool indices = false;
  /// Takes samples as Tensor::sparse, where no gradient of them is wanted, nor sums by leaves.
  bool sparse = false;
  /// What it computes, if its derivative can be had from y: a layer before may do it in its own pass.
  kernels::Activation activation = kernels::Activation::identity;
};

/// Immutable and without hidden state, so one layer serves threads and replicas at once. In forward and backward every
/// member of the team makes the same call and does its part; a barrier follows each call, supplied by the caller.
template <class T>
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string_view name() const = 0;
  virtual std::vector<Parameter> parameters() const { return {}; }
  /// What a layer learns without gradients, like running statistics: read by passes, written by commit() alone.
  virtual std::vector<Parameter> buffers() const { return {}; }
  virtual Traits traits() const { return {}; }
  /// The shape of y's samples. Throws ValueError, with both shapes, if x's do not fit.
  virtual Shape output_shape(const Shape& in) const { return in; }
  virtual Sizes sizes(const Shape& /*in*/) const { return {}; }
  /// Composites fix shapes, offsets and fusions once, before anything runs; null: ready as it is.
  virtual std::shared_ptr<const Layer> bind(const Shape& /*in*/) const { return nullptr; }
  /// What takes the place of this layer, whose samples are `in`, and of the one after it: one layer that does both, or
  /// both of them changed. Empty: they stay as they are.
  virtual std::vector<std::shared_ptr<const Layer>> fused(const std::shared_ptr<const Layer>& /*next*/,
                                                          const Shape& /*in*/) const {
    return {};
  }
  /// The same layer with its weight, the matrix that its parameters begin with, in panels. Null: it stays in rows.
  virtual std::shared_ptr<const Layer> in_panels() const { return nullptr; }
  /// What it is as one of a stack, where its forward and backward passes are those of a stack's layer.
  virtual std::optional<kernels::StackLayer> in_stack() const { return std::nullopt; }
  /// How many of its first parameters backward updates itself, so that their gradient is lost, or announces itself.
  virtual Index updated(const Pass& /*pass*/, const Vars<T>& /*vars*/) const { return 0; }
  virtual void initialize(Rng /*rng*/, std::span<T> /*params*/, std::span<T> /*buffers*/) const {}
  virtual void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const = 0;
  /// dy is kept; dx is stored (if it is wanted) and aliases no other array; grads are stored, or added to if pass.add.
  virtual void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                        Tensor<T> dx, std::span<T> grads) const = 0;
  /// Takes what a training pass over `rows` rows left in `saved` into the buffers. Called once a pass, after it, by one
  /// thread; for the pieces of a batch in their order.
  virtual void commit(const Pass& /*pass*/, std::span<const T> /*saved*/, Index /*rows*/,
                      std::span<T> /*buffers*/) const {}
};

template <class T>
using LayerPtr = std::shared_ptr<const Layer<T>>;

/// Elements of all these arrays together.
Index total(const std::vector<Parameter>& arrays);

}  // namespace pdnn::nn
