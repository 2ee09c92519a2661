#include "pdnn/reduce/gradient_reducer.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "pdnn/reduce/bucketed_reducer.hpp"
#include "pdnn/reduce/local_update.hpp"
#include "pdnn/reduce/shared_parameters.hpp"

namespace pdnn::reduce {

namespace {

/// In a tail of floats the wishes to stop have beside them the loss times kSmall, which is there where floats are too
/// short for the loss itself, or else kTooLarge.
constexpr double kWish = 0x1p100, kTooLarge = -0x1p90, kMostLoss = 0x1p270, kSmall = 0x1p-200;

template <class T>
double loss_again(double loss) {
  if (sizeof(T) == sizeof(double)) return 0;
  return std::abs(loss) < kMostLoss ? kSmall * loss : kTooLarge;
}

}  // namespace

template <class T>
void write_tail(nn::Model<T>& model, const StepSums& sums) {
  T* const tail = model.grads->data() + model.count();
  tail[0] = static_cast<T>(sums.loss.value);
  tail[1] = static_cast<T>(sums.loss.correct);
  tail[2] = static_cast<T>((sums.stop ? kWish : 0) + loss_again<T>(sums.loss.value));
  if (sums.bad) tail[2] = std::numeric_limits<T>::quiet_NaN();  // which no sum loses
}

template <class T>
StepSums read_tail(const T* tail, Index rows) {
  const double last = tail[2];
  const bool again = std::isinf(tail[0]) && last != 0 && std::abs(last) < -kTooLarge / 2;
  return {{again ? last / kSmall : tail[0], tail[1]}, rows, last > kWish / 2, std::isnan(last)};
}

template <class T>
StepSums GradientReducer<T>::step(const Source<T>& source, const Step& own, nn::BatchSum* batch_sum, bool keep) {
  const std::int64_t steps = replica_.optimizer.steps();
  replica_.optimizer.begin_step();
  StepSums sums{{}, own.global_rows, own.stop};
  try {
    nn::Hooks<T> hooks = begin_step(keep);
    hooks.batch_sum = batch_sum;
    sums.loss = replica_.engine.gradient(source, own, hooks);
    return finish_step(sums);
  } catch (...) {  // a layer refuses these samples, here or on another rank
    replica_.optimizer.set_steps(steps);
    throw;
  }
}

namespace {

/// Null, on all ranks, where they cannot share memory: a machine with one rank, or with another number of ranks than
/// the others, or processes that must not see one another's. In leaves all ranks must be of one machine.
template <class T>
std::unique_ptr<SharedParameters<T>> share_parameters(const Replica<T>& replica, comm::Communicator& comm,
                                                      std::shared_ptr<comm::Communicator> machine) {
  if (!machine) machine = comm::ranks_of_machine(comm);
  std::array<std::int32_t, 2> sizes{machine->size(), -machine->size()};
  comm.all_reduce(std::span(sizes), comm::Op::max);
  if (sizes[0] != -sizes[1] || sizes[0] == 1) return nullptr;
  if (replica.leaves > 0 && sizes[0] != comm.size()) return nullptr;
  const auto memory = comm::share(*machine, SharedParameters<T>::bytes(replica, machine->size()));
  std::array<std::int32_t, 1> seen{memory != nullptr};
  comm.all_reduce(std::span(seen), comm::Op::min);
  if (!seen[0]) return nullptr;
  return std::make_unique<SharedParameters<T>>(replica, machine, comm.split(machine->rank(), comm.rank()), memory);
}

}  // namespace

template <class T>
std::unique_ptr<GradientReducer<T>> make_gradient_reducer(const Replica<T>& replica,
                                                          const std::shared_ptr<comm::Communicator>& comm,
                                                          const ReducerOptions& options) {
  using Memory = ReducerOptions::Memory;
  if (comm->size() == 1) return std::make_unique<LocalUpdate<T>>(replica);
  require(!options.compression || options.memory != Memory::shared,
          "ddp: a codec is of messages, and ranks that share memory send none; use shared_memory=None");
  const comm::AllReduce* const outside = comm->all_reduce_in_use();
  require(!outside || options.memory != Memory::shared, "ddp: all_reduce is \"", outside ? outside->name : "",
          "\", which ranks that share memory do not call; use shared_memory=None");
  require(replica.leaves == 0 || (!outside && !options.compression),
          "ddp: reproducible sums are added up by a tree over the leaves of a batch, not by a codec or an all_reduce ",
          "of one's own; leave them out");
  const bool messages = outside != nullptr || options.memory == Memory::messages || options.compression ||
                        (options.memory == Memory::measured && options.bucket_bytes > 0);
  std::unique_ptr<SharedParameters<T>> shared = messages ? nullptr : share_parameters(replica, *comm, options.machine);
  if (options.memory == Memory::shared) {
    require(shared != nullptr, "ddp: these ranks share no memory (one or another number of ranks on a machine, ",
            "or processes that may not see one another's); use shared_memory=None");
    return shared;
  }
  if (shared) {  // beside a single bucket: how many are the best takes far longer to find out
    std::array<double, 1> times{shared->alone()};
    comm->all_reduce(std::span(times), comm::Op::max);
    const Index whole = std::max<Index>(1, replica.job.model.count() * Index{sizeof(T)});
    if (times[0] < BucketedReducer<T>(replica, comm, whole, options.compression).alone()) return shared;
  }
  return std::make_unique<BucketedReducer<T>>(replica, comm, options.bucket_bytes, options.compression);
}

template class GradientReducer<float>;
template class GradientReducer<double>;
template void write_tail(nn::Model<float>&, const StepSums&);
template void write_tail(nn::Model<double>&, const StepSums&);
template StepSums read_tail(const float*, Index);
template StepSums read_tail(const double*, Index);
template std::unique_ptr<GradientReducer<float>> make_gradient_reducer(const Replica<float>&,
                                                                       const std::shared_ptr<comm::Communicator>&,
                                                                       const ReducerOptions&);
template std::unique_ptr<GradientReducer<double>> make_gradient_reducer(const Replica<double>&,
                                                                        const std::shared_ptr<comm::Communicator>&,
                                                                        const ReducerOptions&);

}  // namespace pdnn::reduce
