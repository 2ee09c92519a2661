#include "pdnn/partition/network_part.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace pdnn::partition {

namespace {

/// Calls copy(element of the whole, element of the part, elements) for each run of the blocks.
template <class Copy>
void each_run(const std::vector<Block>& blocks, Copy copy) {
  Index at = 0;
  for (const Block& block : blocks)
    for (Index row = 0; row < block.rows; ++row, at += block.cols)
      copy(block.whole + row * block.stride, at, block.cols);
}

/// Whether the whole has the elements of the part one after another too.
bool adjacent(const std::vector<Block>& blocks) { return blocks.size() == 1 && blocks.front().rows == 1; }

template <class T>
void take_array(std::span<const T> whole, const std::vector<Block>& blocks, std::span<T> part) {
  each_run(blocks,
           [&](Index from, Index to, Index count) { std::copy_n(whole.data() + from, count, part.data() + to); });
}

template <class T>
std::shared_ptr<const nn::Network<T>> network_of(const NetworkPart<T>& part) {
  return std::make_shared<nn::Network<T>>(part.layers, part.first_number);
}

}  // namespace

Index count(const std::vector<Block>& blocks) {
  Index sum = 0;
  for (const Block& block : blocks) sum += block.count();
  return sum;
}

template <class T>
NetworkPart<T> layers_of(const nn::Network<T>& network, Range layers) {
  const std::vector<nn::LayerPtr<T>>& all = network.layers();
  NetworkPart<T> part{{all.begin() + layers.begin, all.begin() + layers.end}, layers.begin};
  const auto block = [&](auto&& arrays) {
    Index before = 0, within = 0;
    for (Index i = 0; i < layers.end; ++i) {
      const Index own = nn::total(arrays(*all[static_cast<std::size_t>(i)]));
      (i < layers.begin ? before : within) += own;
    }
    return std::vector<Block>{{before, within, 1, within}};
  };
  part.params = block([](const nn::Layer<T>& layer) { return layer.parameters(); });
  part.buffers = block([](const nn::Layer<T>& layer) { return layer.buffers(); });
  return part;
}

template <class T>
PartialModel<T>::PartialModel(std::shared_ptr<nn::Model<T>> whole, std::shared_ptr<optim::Optimizer<T>> optimizer,
                              const NetworkPart<T>& part, std::shared_ptr<comm::Communicator> group,
                              nn::Layout<T> layout)
    : whole_(std::move(whole)),
      optimizer_(std::move(optimizer)),
      group_(std::move(group)),
      model_(network_of(part)),
      part_optimizer_(optimizer_->like(count(part.params))),
      layout_(std::move(layout)) {
  require(model_.count() == count(part.params) && model_.buffers->size() == count(part.buffers),
          "NetworkPart: its layers have ", model_.count(), " parameters and ", model_.buffers->size(),
          " numbers in buffers, its blocks ", count(part.params), " and ", count(part.buffers));
  exchange_blocks(part);
  take_segments();
  if (const optim::Clip<T>* clip = optimizer_->clip())
    part_optimizer_->set_clip(std::make_unique<optim::Clip<T>>(*clip, share_of_norm()));
}

template <class T>
PartialModel<T>::PartialModel(const std::shared_ptr<nn::Model<T>>& whole,
                              std::shared_ptr<optim::Optimizer<T>> optimizer, nn::Layout<T> layout)
    : PartialModel(whole, std::move(optimizer), layers_of(whole->network(), {0, std::ssize(whole->network().layers())}),
                   comm::make_self(), std::move(layout)) {}

template <class T>
void PartialModel<T>::exchange_blocks(const NetworkPart<T>& part) {
  constexpr Index kNumbers = 4;
  const auto ranks = static_cast<std::size_t>(group_->size());
  const auto exchange = [&](const Blocks& own, std::vector<Blocks>& all) {
    AlignedArray<std::int64_t> numbers(kNumbers * std::ssize(own));
    std::int64_t* to = numbers.data();
    for (const Block& block : own)
      for (const Index number : {block.whole, block.stride, block.rows, block.cols}) *to++ = number;
    const std::array<std::int64_t, 1> mine{numbers.size()};
    AlignedArray<std::int64_t> sizes(group_->size());
    group_->all_gather(std::span(mine), sizes.span());
    std::vector<Index> counts(sizes.data(), sizes.data() + sizes.size());
    Index total = 0;
    for (const Index size : counts) total += size;
    AlignedArray<std::int64_t> everyones(total);
    group_->all_gather(numbers.span(), everyones.span(), counts);
    all.assign(ranks, {});
    const std::int64_t* next = everyones.data();
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (Index i = 0; i < counts[rank]; i += kNumbers, next += kNumbers)
        all[rank].push_back({next[0], next[1], next[2], next[3]});
  };
  exchange(part.params, params_);
  exchange(part.buffers, buffers_);
}

template <class T>
void PartialModel<T>::take_segments() {
  const std::vector<optim::Segment>& whole = optimizer_->segments();
  std::vector<optim::Segment> own;
  Index end = 0;
  for (const Block& block : params_[static_cast<std::size_t>(group_->rank())]) {
    if (block.count() == 0) continue;
    Index begin = block.whole;
    const Index last = block.whole + (block.rows - 1) * block.stride + block.cols;
    for (const optim::Segment& segment : whole) {
      if (segment.end <= begin) continue;
      optim::Segment piece = segment;
      const bool to_the_end = last <= segment.end;
      require(to_the_end || block.rows == 1, optimizer_->name(), ": a parameter group ends at ", segment.end,
              ", within a weight that is dealt out to several ranks; cut groups between parameters");
      end += to_the_end ? (block.rows == 1 ? last - begin : block.count()) : segment.end - begin;
      piece.end = end;
      own.push_back(piece);
      if (to_the_end) break;
      begin = segment.end;
    }
  }
  part_optimizer_->set_segments(std::move(own));
}

/// A block that several ranks have counts on the first of them. Blocks of squares begin anew with each array of the
/// whole model, so a part that has whole arrays has whole blocks.
template <class T>
typename optim::Clip<T>::Share PartialModel<T>::share_of_norm() const {
  std::vector<Range> arrays;  // of the whole model: where one ends, and its first block of squares
  Index end = 0, squares = 0;
  for (const nn::Parameter& array : whole_->parameters()) {
    end += array.count();
    arrays.push_back({squares, end});
    squares += kernels::square_chunks(array.count());
  }
  std::vector<typename optim::Clip<T>::Counted> counted;
  const Blocks& own = params_[static_cast<std::size_t>(group_->rank())];
  auto block = own.begin();
  Index at = 0, begin = 0;  // of an array here, and of the block that it is in
  for (const nn::Parameter& array : model_.parameters()) {
    const Range range{at, at + array.count()};
    at = range.end;
    if (range.size() == 0) continue;
    while (range.begin >= begin + block->count()) begin += (block++)->count();
    const bool before = std::any_of(params_.begin(), params_.begin() + group_->rank(), [&](const Blocks& others) {
      return std::ranges::find(others, *block) != others.end();
    });
    const Index first = block->whole + (block->rows == 1 ? range.begin - begin : 0);
    if (!before) counted.push_back({range, std::ranges::upper_bound(arrays, first, {}, &Range::end)->begin});
  }
  // Gathered and added in the order of ranks: the same bits on all of them, whatever their MPI does.
  const auto ranks = static_cast<Index>(params_.size());
  const auto add_up = [group = group_, ranks](std::span<const double> mine, std::span<double> all) {
    AlignedArray<double> gathered(ranks * std::ssize(mine));
    group->all_gather(mine, gathered.span());
    std::ranges::fill(all, 0);
    for (Index i = 0; i < gathered.size(); ++i) all[static_cast<std::size_t>(i) % all.size()] += gathered[i];
  };
  return {counted, squares, add_up};
}

template <class T>
template <class Copy>
void PartialModel<T>::each_array(Copy copy) {
  copy(whole_->params->span(), model_.params->span());
  copy(whole_->grads->span(), slice(model_.grads->span(), 0, model_.count()));
  for (std::size_t i = 0; i < optimizer_->state().size(); ++i)
    copy(optimizer_->state()[i].span(), part_optimizer_->state()[i].span());
}

template <class T>
void PartialModel<T>::take() {
  const auto rank = static_cast<std::size_t>(group_->rank());
  const Blocks& own = params_[rank];
  AlignedArray<T> room(adjacent(own) ? 0 : model_.count(), Contents::anything);
  take_segments();
  each_array([&](std::span<const T> whole, std::span<T> part) {
    if (adjacent(own)) return layout_.from_rows(slice(whole, own.front().whole, model_.count()), part);
    take_array<T>(whole, own, room.span());
    layout_.from_rows(room.span(), part);
  });
  take_array<T>(whole_->buffers->span(), buffers_[rank], model_.buffers->span());
  part_optimizer_->set_steps(optimizer_->steps());
}

template <class T>
void PartialModel<T>::gather_array(std::span<const T> part, const std::vector<Blocks>& blocks, std::span<T> whole) {
  std::vector<Index> counts;
  Index total = 0;
  for (const Blocks& of_rank : blocks) total += counts.emplace_back(count(of_rank));
  AlignedArray<T> all(total, Contents::anything);
  group_->all_gather(part, all.span(), counts);
  const T* next = all.data();
  for (const Blocks& of_rank : blocks) {
    each_run(of_rank, [&](Index to, Index from, Index n) { std::copy_n(next + from, n, whole.data() + to); });
    next += count(of_rank);
  }
}

template <class T>
void PartialModel<T>::gather() {
  const bool alone = group_->size() == 1 && adjacent(params_.front());
  AlignedArray<T> room(alone ? 0 : model_.count(), Contents::anything);
  each_array([&](std::span<T> whole, std::span<const T> part) {
    if (alone) return layout_.to_rows(part, slice(whole, params_.front().front().whole, model_.count()));
    layout_.to_rows(part, room.span());
    gather_array(room.span(), params_, whole);
  });
  gather_array(model_.buffers->span(), buffers_, whole_->buffers->span());
  optimizer_->set_steps(part_optimizer_->steps());
}

template <class T>
Index PartialModel<T>::place(Index element) const {
  Index whole = 0;
  each_run(params_[static_cast<std::size_t>(group_->rank())], [&](Index at, Index begin, Index n) {
    if (begin <= element && element < begin + n) whole = at + element - begin;
  });
  return whole;
}

template NetworkPart<float> layers_of(const nn::Network<float>&, Range);
template NetworkPart<double> layers_of(const nn::Network<double>&, Range);
template class PartialModel<float>;
template class PartialModel<double>;

}  // namespace pdnn::partition
