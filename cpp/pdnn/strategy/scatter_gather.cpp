#include "pdnn/strategy/scatter_gather.hpp"

#include <algorithm>
#include <numeric>

#include "pdnn/kernels/table.hpp"

namespace pdnn::strategy {

namespace {

Index largest_share(Index rows, int ranks) { return (rows + ranks - 1) / ranks; }

}  // namespace

template <class T>
ScatterGather<T>::ScatterGather(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                                std::shared_ptr<comm::Communicator> comm, Index target_width, Index capacity, bool once)
    : SynchronousStrategy<T>(job.model, optimizer, std::move(comm)),
      job_(job),
      engine_(std::move(engine)),
      batch_sum_(*comm_),
      target_width_(target_width),
      once_(once),
      whole_(job.network, job.sample, root() ? capacity : 0),
      mine_(job.network, job.sample, largest_share(capacity, comm_->size())),
      order_(mine_.capacity()),
      gathered_(root() ? comm_->size() * job.model.grads->size() : 0),
      counts_(static_cast<std::size_t>(comm_->size())),
      weights_(mine_.capacity() + 1),
      all_weights_(root() ? capacity + comm_->size() : 0) {
  std::iota(order_.data(), order_.data() + order_.size(), Index{0});
}

template <class T>
void ScatterGather<T>::scatter(const Source<T>& source, std::span<const Index> batch) {
  const Index all = static_cast<Index>(batch.size());
  const Index mine = share(all, comm_->rank(), comm_->size()).size();
  Batch<T> whole{};
  if (root()) whole = source.copy(batch, whole_);  // MPI may read it after a call that is abandoned
  const comm::Labeled labeled({.what = "batch"});
  const auto send = [&](auto* from, auto* to, Index width) {
    using Element = std::remove_pointer_t<decltype(to)>;
    for (int r = 0; r < comm_->size(); ++r)
      counts_[static_cast<std::size_t>(r)] = share(all, r, comm_->size()).size() * width;
    const comm::DType dtype = comm::dtype_of<Element>();
    const comm::ConstView everything = root() ? comm::ConstView(from, all * width, dtype) : comm::ConstView();
    comm_->scatter(everything, counts_, comm::View(to, mine * width, dtype), kRoot);
  };
  send(whole.x.data, mine_.x(mine).data, job_.sample.count());
  if (target_width_ == 0) {
    send(whole.target.classes, mine_.classes(), 1);
  } else {
    send(whole.target.values.data, mine_.values(), target_width_);
  }
  weight_ = static_cast<double>(all);
  if (source.weighs(job_.loss)) scatter_weights(source, batch, whole.target.weights);
}

/// A rank gets the weights of its rows, and behind them that of the batch.
template <class T>
void ScatterGather<T>::scatter_weights(const Source<T>& source, std::span<const Index> batch, const double* weights) {
  const Index all = static_cast<Index>(batch.size());
  double* next = all_weights_.data();
  if (root()) weight_ = source.weight(job_.loss, batch);
  for (int r = 0; r < comm_->size(); ++r) {
    const Range rows = share(all, r, comm_->size());
    counts_[static_cast<std::size_t>(r)] = rows.size() + 1;
    if (!root()) continue;
    for (Index row = rows.begin; row < rows.end; ++row) *next++ = weights ? weights[row] : 1.0;
    *next++ = weight_;
  }
  const std::span<double> mine = slice(weights_.span(), 0, counts_[static_cast<std::size_t>(comm_->rank())]);
  const std::span<const double> everyones = slice(all_weights_.span(), 0, root() ? all + comm_->size() : 0);
  comm_->scatter(comm::ConstView(everyones), counts_, comm::View(mine), kRoot);
  weight_ = mine.back();
}

template <class T>
void ScatterGather<T>::gather_and_add() {
  const std::span<T> own = job_.model.grads->span();
  const comm::Labeled labeled({.what = "gradients"});
  comm_->gather(comm::ConstView(own), root() ? comm::View(gathered_.span()) : comm::View(), {}, kRoot);
  if (!root()) return;
  const Index count = job_.model.grads->size();
  std::copy_n(gathered_.data(), count, own.data());
  for (int r = 1; r < comm_->size(); ++r)
    kernels::table<T>().add(Part{}, count, own.data(), gathered_.data() + r * count, own.data());
}

template <class T>
StepSums ScatterGather<T>::step(const Source<T>& source, const Step& step) {
  Step own = step.shard({comm_->rank(), comm_->size()});
  if (!once_ || !scattered_) {
    const auto timed = timer_.time(&Phases::scatter);
    std::vector<Index> in_order;
    if (once_) {  // then it does not matter which epoch is the first one here
      in_order.assign(step.rows.begin(), step.rows.end());
      std::ranges::sort(in_order);
    }
    scatter(source, once_ ? in_order : step.rows);
  }
  scattered_ = true;

  const data::Samples samples{
      .data = mine_.x(0).data,
      .format = sizeof(T) == sizeof(float) ? data::Samples::Format::float32 : data::Samples::Format::float64,
      .count = own.count(),
      .stride = job_.sample.count(),
      .sample = job_.sample};
  nn::Target<T> target;
  if (target_width_ == 0) {
    target.classes = mine_.classes();
  } else {
    target.values = {mine_.values(), own.count(), target_width_};
  }
  if (source.weighted()) target.weights = weights_.data();
  const Source<T> local(samples, target);
  own.rows = {order_.data(), static_cast<std::size_t>(own.count())};
  own.next = {};
  own.scale = job_.loss.scale(weight_);
  StepSums sums{{}, step.global_rows, step.stop};
  if (weight_ == 0) return step_without_weight(sums);
  {
    const auto timed = timer_.time(&Phases::gradient);
    sums.loss = engine_->gradient(local, own, {.batch_sum = comm_->size() == 1 ? nullptr : &batch_sum_});
  }
  {
    const auto timed = timer_.time(&Phases::agreement);
    reduce::write_tail(job_.model, sums);
    gather_and_add();
  }
  optimizer_.begin_step();
  if (root()) {
    const auto timed = timer_.time(&Phases::update);
    engine_->update(optimizer_, {0, job_.model.count()});
    sums = reduce::read_tail(job_.model.grads->data() + job_.model.count(), step.global_rows);
    this->look(sums);
  }
  const auto timed = timer_.time(&Phases::broadcast);
  const comm::Labeled labeled({.what = "parameters"});
  comm_->broadcast(comm::View(job_.model.params->span()), kRoot);
  return tell(sums);
}

/// The rows of the batch do not count, so there is no update.
template <class T>
StepSums ScatterGather<T>::step_without_weight(StepSums sums) {
  std::ranges::fill(job_.model.grads->span(), T{});
  if (root()) this->look(sums);
  const auto timed = timer_.time(&Phases::broadcast);
  return tell(sums);
}

/// Gives all ranks the root's sums.
template <class T>
StepSums ScatterGather<T>::tell(const StepSums& sums) {
  if (root()) reduce::write_tail(job_.model, sums);
  comm_->broadcast(comm::View(slice(job_.model.grads->span(), job_.model.count(), nn::Model<T>::kTail)), kRoot);
  StepSums all = reduce::read_tail(job_.model.grads->data() + job_.model.count(), sums.rows);
  all.weight = weight_;
  return all;
}

template class ScatterGather<float>;
template class ScatterGather<double>;

}  // namespace pdnn::strategy
