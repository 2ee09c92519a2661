#include "pdnn/partition/split_layers.hpp"

#include <utility>

#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/partition/column_row_linear.hpp"

namespace pdnn::partition {

namespace {

template <class Kind, class T>
std::shared_ptr<const Kind> as(const nn::LayerPtr<T>& layer) {
  return std::dynamic_pointer_cast<const Kind>(layer);
}

/// Puts a part together, layer by layer, and keeps count of where the whole model has the parameters.
template <class T>
class Splitter {
 public:
  Splitter(const NetworkPart<T>& whole, std::shared_ptr<comm::Communicator> group)
      : group_(std::move(group)), at_(whole.params.at(0).whole), part_{{}, whole.first_number, {}, whole.buffers} {}

  void keep(const nn::LayerPtr<T>& layer) { add(layer, {{1, nn::total(layer->parameters())}}); }

  void cut_columns(const nn::Linear<T>& linear) {
    const Range own = part_of(linear.outputs(), *group_);
    const Index width = linear.outputs();
    add(std::make_shared<ColumnParallelLinear<T>>(linear, group_),
        {{linear.inputs(), width, own}, {linear.has_bias() ? 1 : 0, width, own}});
  }

  /// Of a layer between the two halves of a pair, which is `width` columns wide.
  void cut_between(const nn::LayerPtr<T>& layer, Index width) {
    const auto dropout = as<nn::Dropout<T>>(layer);
    if (!dropout) return keep(layer);
    add(std::make_shared<nn::Dropout<T>>(dropout->p(), part_of(width, *group_).begin, width), {});
  }

  void cut_rows(const nn::Linear<T>& linear) {
    const Range own = part_of(linear.inputs(), *group_);
    const Index width = linear.outputs();
    add(std::make_shared<RowParallelLinear<T>>(linear, group_),
        {{1, linear.inputs() * width, {own.begin * width, own.end * width}}, {linear.has_bias() ? 1 : 0, width}});
  }

  NetworkPart<T> part() && { return std::move(part_); }

 private:
  /// An array of the whole layer, of which this rank has these columns.
  struct Array {
    Index rows, cols;
    Range own;
    Array(Index row_count, Index col_count) : Array(row_count, col_count, {0, col_count}) {}
    Array(Index row_count, Index col_count, Range own_cols) : rows(row_count), cols(col_count), own(own_cols) {}
  };

  void add(nn::LayerPtr<T> layer, std::initializer_list<Array> arrays) {
    part_.layers.push_back(std::move(layer));
    for (const Array& array : arrays) {
      if (array.rows * array.own.size() > 0)
        part_.params.push_back({at_ + array.own.begin, array.cols, array.rows, array.own.size()});
      at_ += array.rows * array.cols;
    }
  }

  std::shared_ptr<comm::Communicator> group_;
  Index at_;
  NetworkPart<T> part_;
};

/// The layer at which the columns of Linear `first` are needed all at once; the number of layers if there is none.
template <class T>
std::size_t columns_end(const std::vector<nn::LayerPtr<T>>& layers, std::size_t first) {
  std::size_t end = first + 1;
  while (end < layers.size() && layers[end]->traits().elementwise) ++end;
  return end;
}

/// Why there is no pair.
template <class T>
std::string reason(const NetworkPart<T>& whole) {
  const std::vector<nn::LayerPtr<T>>& layers = whole.layers;
  const auto number = [&](std::size_t i) { return whole.first_number + static_cast<Index>(i); };
  bool another = false;
  for (std::size_t i = layers.size(); i-- > 0;) {
    if (!as<nn::Linear<T>>(layers[i])) continue;
    const std::size_t end = columns_end(layers, i);
    if (std::exchange(another, true))
      return message("between layer ", number(i), " and the next Linear is ", layers[end]->name(), ", layer ",
                     number(end), ", which needs all columns at once");
  }
  return "it has no two Linear layers";
}

}  // namespace

template <class T>
std::vector<LinearPair> linear_pairs(const std::vector<nn::LayerPtr<T>>& layers) {
  std::vector<LinearPair> pairs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t end = columns_end(layers, i);
    if (!as<nn::Linear<T>>(layers[i]) || end == layers.size() || !as<nn::Linear<T>>(layers[end])) continue;
    pairs.push_back({i, end});
    i = end;
  }
  return pairs;
}

template <class T>
NetworkPart<T> split_layers(const NetworkPart<T>& whole, const std::shared_ptr<comm::Communicator>& group,
                            bool needed) {
  const std::vector<nn::LayerPtr<T>>& layers = whole.layers;
  for (std::size_t i = 0; i < layers.size(); ++i)
    require(!layers[i]->traits().communicates, "TensorParallel: layer ", whole.first_number + static_cast<Index>(i),
            ", ", layers[i]->name(), ", is split already; use nn.Linear");
  const std::vector<LinearPair> pairs = linear_pairs(layers);
  if (pairs.empty() && needed)
    throw ValueError(message("TensorParallel: nothing in this network can be split, because ", reason(whole),
                             "; two nn.Linear with nothing but activations and Dropout between them can, or use ",
                             "\"ddp\""));
  Splitter<T> splitter(whole, group);
  std::size_t at = 0;
  for (const auto [first, second] : pairs) {
    while (at < first) splitter.keep(layers[at++]);
    const auto linear = as<nn::Linear<T>>(layers[at]);
    splitter.cut_columns(*linear);
    while (++at < second) splitter.cut_between(layers[at], linear->outputs());
    splitter.cut_rows(*as<nn::Linear<T>>(layers[at++]));
  }
  while (at < layers.size()) splitter.keep(layers[at++]);
  return std::move(splitter).part();
}

template std::vector<LinearPair> linear_pairs(const std::vector<nn::LayerPtr<float>>&);
template std::vector<LinearPair> linear_pairs(const std::vector<nn::LayerPtr<double>>&);
template NetworkPart<float> split_layers(const NetworkPart<float>&, const std::shared_ptr<comm::Communicator>&, bool);
template NetworkPart<double> split_layers(const NetworkPart<double>&, const std::shared_ptr<comm::Communicator>&, bool);

}  // namespace pdnn::partition
