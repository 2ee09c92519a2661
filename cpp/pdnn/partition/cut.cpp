#include "pdnn/partition/cut.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <numeric>

#include "pdnn/nn/model.hpp"

namespace pdnn::partition {

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

/// Some layers with all that a pass through them needs.
template <class T>
class Trial {
 public:
  Trial(const std::vector<nn::LayerPtr<T>>& layers, const Shape& in, Index rows, bool wants_dx)
      : description_(std::make_shared<nn::Network<T>>(layers)),
        model_(description_, 0),
        network_(description_->bound(in)->with_panels()),
        workspace_(*network_, in, rows),
        x_(workspace_.x(rows)),
        y_(workspace_.y(rows)),
        dy_(workspace_.dy(rows)),
        dx_(wants_dx ? rows * in.count() : 0) {
    const bool indices = description_->traits().indices;
    for (Index i = 0; i < x_.count(); ++i)
      x_.data[i] = indices ? T{} : static_cast<T>(Rng(1).uniform(static_cast<std::uint64_t>(i)));
    std::fill_n(dy_.data, dy_.count(), T{1});
  }

  PassSeconds seconds() {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const nn::Pass pass{.team = &alone_, .key = Rng(2), .add = true};
    const nn::Vars<T> vars = model_.vars(workspace_);
    network_->forward(pass, vars, x_, y_);
    const auto between = Clock::now();
    const Tensor<T> dx{dx_.size() > 0 ? dx_.data() : nullptr, x_.batch, x_.sample};
    network_->backward(pass, vars, x_, y_, dy_, dx, model_.grads->span());
    const std::chrono::duration<double> forward = between - start, backward = Clock::now() - between;
    return {forward.count(), backward.count()};
  }

 private:
  const threads::Member alone_;
  std::shared_ptr<const nn::Network<T>> description_;
  nn::Model<T> model_;
  std::shared_ptr<const nn::Network<T>> network_;
  nn::Workspace<T> workspace_;
  Tensor<T> x_, y_, dy_;
  AlignedArray<T> dx_;
};

}  // namespace

template <class T>
std::vector<PassSeconds> stage_seconds(const nn::Network<T>& network, const Shape& sample,
                                       std::span<const Range> stages, Index rows) {
  constexpr std::size_t kRounds = 7;
  std::vector<PassSeconds> all;
  Shape shape = sample;
  for (const Range& stage : stages) {
    const std::vector<nn::LayerPtr<T>> layers(network.layers().begin() + stage.begin,
                                              network.layers().begin() + stage.end);
    Trial<T> trial(layers, shape, rows, stage.begin > 0);
    trial.seconds();
    std::array<double, kRounds> forward{}, backward{};
    for (std::size_t round = 0; round < kRounds; ++round) {
      const PassSeconds now = trial.seconds();
      forward[round] = now.forward;
      backward[round] = now.backward;
    }
    std::ranges::sort(forward);
    std::ranges::sort(backward);
    all.push_back({forward[1], backward[1]});
    for (const nn::LayerPtr<T>& layer : layers) shape = layer->output_shape(shape);
  }
  return all;
}

namespace {

/// Some layers together, the others each by itself.
std::vector<Range> parts_of(Index layers, const std::vector<Range>& together) {
  std::vector<Range> parts;
  for (Index begin = 0; begin < layers; begin = parts.back().end) {
    const auto found = std::ranges::find(together, begin, &Range::begin);
    parts.push_back(found == together.end() ? Range{begin, begin + 1} : *found);
  }
  return parts;
}

}  // namespace

template <class T>
std::vector<Index> measured_cut(const nn::Network<T>& network, const Shape& sample, int stages, Index rows) {
  const Index layers = std::ssize(network.layers());
  std::vector<Range> parts = parts_of(layers, network.bound(sample)->inseparable());
  if (std::ssize(parts) < stages) parts = parts_of(layers, {});
  std::vector<double> costs;
  for (const PassSeconds& pass : stage_seconds(network, sample, parts, rows))
    costs.push_back(pass.forward + pass.backward);
  std::vector<Index> cut = cut_by_cost(costs, stages);
  for (Index& begin : cut) begin = parts[static_cast<std::size_t>(begin)].begin;
  return cut;
}

template std::vector<PassSeconds> stage_seconds(const nn::Network<float>&, const Shape&, std::span<const Range>, Index);
template std::vector<PassSeconds> stage_seconds(const nn::Network<double>&, const Shape&, std::span<const Range>,
                                                Index);
template std::vector<Index> measured_cut(const nn::Network<float>&, const Shape&, int, Index);
template std::vector<Index> measured_cut(const nn::Network<double>&, const Shape&, int, Index);

}  // namespace pdnn::partition
