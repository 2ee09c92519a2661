#include "pdnn/partition/split_layers.hpp"

#include "pdnn/nn/layers/activation.hpp"
#include "pdnn/nn/layers/curves.hpp"
#include "pdnn/nn/layers/dropout.hpp"
#include "pdnn/partition/column_row_linear.hpp"

namespace pdnn::partition {

namespace {

template <class Kind, class T>
std::shared_ptr<const Kind> as(const nn::LayerPtr<T>& layer) {
  return std::dynamic_pointer_cast<const Kind>(layer);
}

/// Works on some columns of its input as on all of them. A view of features is one of the same features.
template <class T>
bool elementwise(const nn::LayerPtr<T>& layer) {
  return layer->view() || as<nn::ActivationLayer<T>>(layer) || as<nn::LeakyReLU<T>>(layer) || as<nn::GELU<T>>(layer) ||
         as<nn::Dropout<T>>(layer);
}

/// Puts a part together, layer by layer, and keeps count of where the whole model has the parameters.
template <class T>
class Splitter {
 public:
  Splitter(const NetworkPart<T>& whole, std::shared_ptr<comm::Communicator> group)
      : group_(std::move(group)), at_(whole.params.at(0).whole), part_{{}, whole.first_number, {}, whole.state} {}

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

}  // namespace

template <class T>
NetworkPart<T> split_layers(const NetworkPart<T>& whole, const std::shared_ptr<comm::Communicator>& group,
                            bool needed) {
  const std::vector<nn::LayerPtr<T>>& layers = whole.layers;
  const auto number = [&](std::size_t i) { return whole.first_number + static_cast<Index>(i); };
  std::string reason = "it has no two Linear layers";
  bool split = false;
  Splitter<T> splitter(whole, group);
  for (std::size_t i = 0; i < layers.size();) {
    require(!layers[i]->communicates(), "TensorParallel: layer ", number(i), ", ", layers[i]->name(),
            ", is split already; use nn.Linear");
    const auto first = as<nn::Linear<T>>(layers[i]);
    std::size_t end = i + 1;
    while (first && end < layers.size() && elementwise(layers[end])) ++end;
    const auto second = first && end < layers.size() ? as<nn::Linear<T>>(layers[end]) : nullptr;
    if (!second) {
      if (first && end < layers.size())
        reason = message("between layer ", number(i), " and the next Linear is ", layers[end]->name(), ", layer ",
                         number(end), ", which needs all columns at once");
      splitter.keep(layers[i++]);
      continue;
    }
    splitter.cut_columns(*first);
    while (++i < end) splitter.cut_between(layers[i], first->outputs());
    splitter.cut_rows(*second);
    ++i;
    split = true;
  }
  require(split || !needed, "TensorParallel: nothing in this network can be split, because ", reason,
          "; two nn.Linear with nothing but activations and Dropout between them can, or use \"ddp\"");
  return std::move(splitter).part();
}

template NetworkPart<float> split_layers(const NetworkPart<float>&, const std::shared_ptr<comm::Communicator>&, bool);
template NetworkPart<double> split_layers(const NetworkPart<double>&, const std::shared_ptr<comm::Communicator>&, bool);

}  // namespace pdnn::partition
