#include "pdnn/curvature/jacobian.hpp"

#include <typeinfo>

#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/layers/linear.hpp"

namespace pdnn::curvature {

namespace {

using kernels::Activation;
using kernels::PanelMatrix;

constexpr Index kChunkBytes = Index{1} << 19;  // of rows of J that are made at a time

const kernels::Table<double>& table() { return kernels::table<double>(); }

/// The layers of a network and of those inside it, with their numbers.
void flatten(const nn::Network<double>& network, const std::string& before,
             std::vector<std::pair<std::string, nn::LayerPtr<double>>>& found) {
  for (std::size_t i = 0; i < network.layers().size(); ++i) {
    const nn::LayerPtr<double>& layer = network.layers()[i];
    const std::string number = before + std::to_string(i);
    if (const auto* const inner = dynamic_cast<const nn::Network<double>*>(layer.get()))
      flatten(*inner, number + ".", found);
    else
      found.emplace_back(number, layer);
  }
}

/// Whether the layer is f(x), element by element, with neither parameters nor chance.
bool is_activation(const nn::Layer<double>& layer) {
  return layer.traits().elementwise && layer.parameters().empty() && layer.name() != "Dropout";
}

Tensor<const double> rows_of(const double* data, Range rows, Index width) {
  return {data + rows.begin * width, rows.size(), {width}};
}

}  // namespace

Jacobian::Jacobian(const nn::Network<double>& network, const Shape& sample, const std::vector<bool>& trained) {
  std::vector<std::pair<std::string, nn::LayerPtr<double>>> layers;
  flatten(network, "", layers);
  Shape in = sample;
  std::size_t array = 0;
  for (const auto& [number, layer] : layers) {
    if (layer->traits().view) {
      in = layer->output_shape(in);
      continue;
    }
    const auto& kind = *layer;
    const bool linear = typeid(kind) == typeid(nn::Linear<double>);
    require(linear || is_activation(kind), "layer ", number, " is a ", layer->name(),
            "; second-order optimizers take Linear layers, activations and Flatten; use optim.LBFGS for others");
    const std::size_t arrays = layer->parameters().size();
    const bool weight = linear && trained.at(array), bias = arrays == 2 && trained.at(array + 1);
    nn::LayerCall<double> call(layer, in);
    const Index inputs = in.count(), outputs = call.out().count(), count = call.params();
    nodes_.push_back({call, parameters_, count, linear, weight, bias, inputs, outputs});
    in = call.out();
    parameters_ += count;
    array += arrays;
  }
  outputs_ = in.count();
  for (Node& node : nodes_)
    if (node.linear) linears_.push_back(&node);
  require(!linears_.empty(), "the network has no Linear layer; second-order optimizers need one");
}

void Jacobian::resize(Index samples, Index seeds) {
  if (samples == samples_ && seeds == seeds_) return;
  samples_ = seeds_ = 0;  // until there is memory for all
  for (Node& node : nodes_) {
    node.y = AlignedArray<double>(samples * node.outputs);
    node.sums = AlignedArray<double>(samples * node.outputs);
    if (node.linear) node.delta = AlignedArray<double>(samples * seeds * node.outputs);
  }
  Index widest = 0;
  for (const Node* node : linears_) widest = std::max(widest, node->inputs);
  squares_ = AlignedArray<double>(samples * widest);
  samples_ = samples;
  seeds_ = seeds;
}

void Jacobian::forward(const Member& member, std::span<const double> params, Tensor<const double> x, Tensor<double> y) {
  const Range mine = member.range(samples_);
  const Member alone;
  const nn::Pass pass{.team = &alone, .training = false};
  for (Node& node : nodes_) {
    if (member.first()) node.x = {x.data, samples_, node.call.in()};
    const Tensor<const double> in{x.data + mine.begin * node.inputs, mine.size(), node.call.in()};
    double* const to = &node == &nodes_.back() ? y.data : node.y.data();
    const Tensor<double> out{to + mine.begin * node.outputs, mine.size(), node.call.out()};
    x.data = to;
    if (mine.size() == 0) continue;
    AlignedArray<double> saved(node.call.saved(mine.size()));
    node.call.forward(pass, slice(params, node.at, node.count), {}, saved.span(), in, out);
    if (node.linear) continue;
    const Tensor<double> slope{node.sums.data() + mine.begin * node.outputs, mine.size(), node.call.in()};
    const AlignedArray<double> ones = [&] {
      AlignedArray<double> array(slope.count(), Contents::anything);
      std::ranges::fill(array.span(), 1.0);
      return array;
    }();
    node.call.backward(pass, {}, {}, saved.span(), in, out, {ones.data(), mine.size(), node.call.out()}, slope, {});
  }
}

void Jacobian::backward(const Member& member, std::span<const double> params) {
  const Range mine = member.range(samples_), rows{mine.begin * seeds_, mine.end * seeds_};
  std::size_t last = linears_.size() - 1;  // whose delta holds the derivatives for the output of the node at hand
  for (std::size_t n = nodes_.size(); n-- > 0;) {
    const Node& node = nodes_[n];
    double* const delta = linears_[last]->delta.data();
    if (node.linear) {
      if (last == 0) return;
      const PanelMatrix<const double> w(params.data() + node.at, node.inputs, node.outputs);
      const Tensor<double> dx{linears_[last - 1]->delta.data() + rows.begin * node.inputs, rows.size(), {node.inputs}};
      table().product_nt({}, rows_of(delta, rows, node.outputs), w, Activation::identity, {}, dx);
      --last;
      continue;
    }
    for (Index r = rows.begin; r < rows.end; ++r) {
      const double* const slope = node.sums.data() + r / seeds_ * node.outputs;
      double* const row = delta + r * node.outputs;
      for (Index j = 0; j < node.outputs; ++j) row[j] *= slope[j];
    }
  }
}

void Jacobian::write_rows(Range rows, Index stride, double* out) const {
  for (const Node* node : linears_) {
    const Index width = node->outputs;
    for (Index r = rows.begin; r < rows.end; ++r) {
      const double *const x = node->x.data + r / seeds_ * node->inputs, *const delta = node->delta.data() + r * width;
      double* at = out + (r - rows.begin) * stride + node->at;
      for (Index a = 0; node->weight && a < node->inputs; ++a)
        for (Index b = 0; b < width; ++b) at[a * width + b] = x[a] * delta[b];
      if (node->bias) std::copy_n(delta, width, at + node->inputs * width);
    }
  }
}

void Jacobian::add_normal_matrix(Part rank, const Member& member, std::span<double> triangle) const {
  const Triangle shape(parameters_);
  const Index stride = parameters_ / 16 * 16 + 24;  // no power of two
  const Index most = std::clamp(kChunkBytes / (stride * Index{sizeof(double)}), Index{64}, Index{256});
  AlignedArray<double> chunk(most * stride);
  for (Index at = 0; at < rows(); at += most) {
    const Range now{at, std::min(rows(), at + most)};
    write_rows(now, stride, chunk.data());
    for (Index p = 0; p < shape.panels(); ++p) {
      if (Triangle::worker(p, rank.size) != rank.index) continue;
      if (Triangle::worker(p / rank.size, member.size) != member.index) continue;
      const Range own = shape.rows(p);
      const Matrix<const double> left{chunk.data() + own.begin, now.size(), own.size(), stride};
      const Matrix<const double> right{chunk.data(), now.size(), own.end, stride};
      table().product_tn({}, left, right, {}, true, {triangle.data() + shape.offset(p), own.size(), own.end}, nullptr);
    }
  }
}

void Jacobian::add_kernel_matrix(Part rank, const Member& member, std::span<double> triangle) const {
  const Triangle shape(rows());
  for (Index p = 0; p < shape.panels(); ++p) {
    if (Triangle::worker(p, rank.size) != rank.index) continue;
    if (Triangle::worker(p / rank.size, member.size) != member.index) continue;
    const Range own = shape.rows(p);
    const Range samples{own.begin / seeds_, (own.end - 1) / seeds_ + 1};
    AlignedArray<double> xx(samples.size() * samples.end), dd(own.size() * own.end);
    for (const Node* node : linears_) {
      const PanelMatrix<const double> all_x(node->x.data, samples.end, node->inputs);
      const PanelMatrix<const double> all_delta(node->delta.data(), own.end, node->outputs);
      if (node->weight)
        table().product_nt({}, rows_of(node->x.data, samples, node->inputs), all_x, Activation::identity, {},
                           {xx.data(), samples.size(), samples.end});
      else
        std::ranges::fill(xx.span(), 0.0);
      table().product_nt({}, rows_of(node->delta.data(), own, node->outputs), all_delta, Activation::identity, {},
                         {dd.data(), own.size(), own.end});
      const double more = node->bias ? 1 : 0;
      for (Index r = own.begin; r < own.end; ++r) {
        const double* const products = xx.data() + (r / seeds_ - samples.begin) * samples.end;
        const double* const deltas = dd.data() + (r - own.begin) * own.end;
        double* const out = triangle.data() + shape.offset(p) + (r - own.begin) * own.end;
        for (Index s = 0; s < own.end; ++s) out[s] += (products[s / seeds_] + more) * deltas[s];
      }
    }
  }
}

void Jacobian::gather(Part rank, Part member, const Node& node, const double* x, std::span<double> out) {
  const Matrix<const double> sums{node.sums.data(), node.x.batch, node.outputs};
  const Range inputs = rank.range(node.inputs);
  double* const w = out.data() + node.at;
  if (node.weight && inputs.size() > 0)
    table().product_tn(member, {x + inputs.begin, node.x.batch, inputs.size(), node.inputs}, sums, {}, false,
                       {w + inputs.begin * node.outputs, inputs.size(), node.outputs}, nullptr);
  if (node.bias && rank.first()) table().column_sums(member, sums, {}, false, w + node.inputs * node.outputs);
}

void Jacobian::add_squares(Part rank, const Member& member, std::span<double> out) {
  const Range mine = member.range(samples_);
  for (Node* node : linears_) {
    for (Index i = mine.begin; i < mine.end; ++i) {
      double* const sums = node->sums.data() + i * node->outputs;
      std::fill_n(sums, node->outputs, 0.0);
      for (Index k = 0; k < seeds_; ++k) {
        const double* const delta = node->delta.data() + (i * seeds_ + k) * node->outputs;
        for (Index b = 0; b < node->outputs; ++b) sums[b] += delta[b] * delta[b];
      }
    }
    for (Index at = mine.begin * node->inputs; at < mine.end * node->inputs; ++at)
      squares_[at] = node->x.data[at] * node->x.data[at];
    member.barrier();
    gather(rank, member, *node, squares_.data(), out);
    member.barrier();
  }
}

void Jacobian::times(Part rank, const Member& member, std::span<const double> v, std::span<double> out) const {
  const Range own = rank.range(samples_), share_of_it = member.range(own.size());
  const Range mine{own.begin + share_of_it.begin, own.begin + share_of_it.end};
  for (const Node* node : linears_) {
    AlignedArray<double> products(mine.size() * node->outputs);
    const double* const w = v.data() + node->at;
    const bool has_bias = node->count > node->inputs * node->outputs;
    table().product_nn({}, rows_of(node->x.data, mine, node->inputs), {w, node->inputs, node->outputs},
                       has_bias ? w + node->inputs * node->outputs : nullptr, Activation::identity,
                       {products.data(), mine.size(), node->outputs});
    for (Index r = mine.begin * seeds_; r < mine.end * seeds_; ++r) {
      const double* const product = products.data() + (r / seeds_ - mine.begin) * node->outputs;
      const double* const delta = node->delta.data() + r * node->outputs;
      for (Index b = 0; b < node->outputs; ++b) out[static_cast<std::size_t>(r)] += product[b] * delta[b];
    }
  }
}

void Jacobian::transposed_times(Part rank, const Member& member, std::span<const double> u, std::span<double> out) {
  const Range mine = member.range(samples_);
  for (Node* node : linears_) {
    for (Index i = mine.begin; i < mine.end; ++i) {
      double* const sums = node->sums.data() + i * node->outputs;
      std::fill_n(sums, node->outputs, 0.0);
      for (Index r = i * seeds_; r < (i + 1) * seeds_; ++r)
        for (Index b = 0; b < node->outputs; ++b)
          sums[b] += u[static_cast<std::size_t>(r)] * node->delta[r * node->outputs + b];
    }
  }
  member.barrier();
  for (const Node* node : linears_) gather(rank, member, *node, node->x.data, out);
}

}  // namespace pdnn::curvature
