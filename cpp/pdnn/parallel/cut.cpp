#include "pdnn/parallel/cut.hpp"

#include <chrono>
#include <limits>
#include <numeric>

#include "pdnn/nn/model.hpp"

namespace pdnn::parallel {

std::vector<Index> cut_by_cost(std::span<const double> costs, int stages) {
  const auto layers = costs.size();
  require(stages >= 1 && static_cast<std::size_t>(stages) <= layers, "Pipeline: ", stages, " stages of ", layers,
          " layers; each takes at least one");
  std::vector<double> before(layers + 1);  // the costs of all layers before one
  for (std::size_t i = 0; i < layers; ++i) {
    require(costs[i] >= 0, "Pipeline: the cost of layer ", i, " is ", costs[i], "; expected 0 or more");
    before[i + 1] = before[i] + costs[i];
  }
  // least[end]: the smallest possible largest cost of the stages so far, which take the layers before `end`.
  std::vector<double> least(before);
  std::vector<std::vector<std::size_t>> begins;  // of the last of these stages
  for (std::size_t stage = 1; stage < static_cast<std::size_t>(stages); ++stage) {
    std::vector<double> longer(layers + 1, std::numeric_limits<double>::infinity());
    std::vector<std::size_t>& begin = begins.emplace_back(layers + 1);
    for (std::size_t end = stage + 1; end <= layers; ++end)
      for (std::size_t at = stage; at < end; ++at) {
        const double largest = std::max(least[at], before[end] - before[at]);
        if (largest >= longer[end]) continue;
        longer[end] = largest;
        begin[end] = at;
      }
    least = std::move(longer);
  }
  std::vector<Index> cut(static_cast<std::size_t>(stages - 1));
  for (std::size_t stage = cut.size(), end = layers; stage-- > 0;)
    cut[stage] = static_cast<Index>(end = begins[stage][end]);
  return cut;
}

std::vector<Range> stages_of(Index layers, std::span<const Index> cut) {
  std::vector<Range> stages;
  Index begin = 0;
  for (std::size_t i = 0; i <= cut.size(); ++i) {
    const Index end = i < cut.size() ? cut[i] : layers;
    require(begin < end && end <= layers, "Pipeline: stage ", i, " would be layers ", begin, " to ", end, " of ",
            layers, "; a cut rises, from at least 1 to at most ", layers - 1);
    stages.push_back({begin, end});
    begin = end;
  }
  return stages;
}

namespace {

/// One layer with all that a pass through it needs.
template <class T>
class Trial {
 public:
  Trial(const nn::LayerPtr<T>& layer, const Shape& in, Index rows)
      : description_(std::make_shared<nn::Network<T>>(std::vector{layer})),
        model_(description_, 0),
        network_(std::dynamic_pointer_cast<const nn::Network<T>>(description_->bind(in))),
        workspace_(*network_, in, rows),
        x_(workspace_.x(rows)),
        y_(workspace_.y(rows)),
        dy_(workspace_.dy(rows)),
        dx_(rows * in.count()) {
    for (Index i = 0; i < x_.count(); ++i) x_.data[i] = static_cast<T>(Rng(1).uniform(static_cast<std::uint64_t>(i)));
    std::fill_n(dy_.data, dy_.count(), T{1});
  }

  double seconds() {
    const auto start = std::chrono::steady_clock::now();
    const nn::Pass pass{.team = &alone_, .key = Rng(2)};
    const nn::Vars<T> vars = model_.vars(workspace_);
    network_->forward(pass, vars, x_, y_);
    network_->backward(pass, vars, x_, y_, dy_, {dx_.data(), x_.batch, x_.sample}, model_.grads->span());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  const threads::Member alone_;
  std::shared_ptr<const nn::Network<T>> description_;
  nn::Model<T> model_;
  std::shared_ptr<const nn::Network<T>> network_;
  nn::Workspace<T> workspace_;
  Tensor<T> x_, y_, dy_;
  Buffer<T> dx_;
};

}  // namespace

template <class T>
std::vector<double> layer_seconds(const nn::Network<T>& network, const Shape& sample, Index rows) {
  constexpr int kRounds = 4;
  std::vector<double> all;
  Shape shape = sample;
  for (const nn::LayerPtr<T>& layer : network.layers()) {
    Trial<T> trial(layer, shape, rows);
    double best = trial.seconds();
    for (int round = 1; round < kRounds; ++round) best = std::min(best, trial.seconds());
    all.push_back(best);
    shape = layer->output_shape(shape);
  }
  return all;
}

template std::vector<double> layer_seconds(const nn::Network<float>&, const Shape&, Index);
template std::vector<double> layer_seconds(const nn::Network<double>&, const Shape&, Index);

}  // namespace pdnn::parallel
