#include "pdnn/parallel/strategy.hpp"

namespace pdnn::parallel {

template <class T>
void write_tail(nn::Model<T>& model, const StepSums& sums) {
  T* const tail = model.grads->data() + model.count();
  tail[0] = static_cast<T>(sums.loss.value);
  tail[1] = static_cast<T>(sums.loss.correct);
  tail[2] = sums.stop ? T{1} : T{0};
}

template <class T>
StepSums read_tail(nn::Model<T>& model) {
  const T* const tail = model.grads->data() + model.count();
  return {{tail[0], tail[1]}, tail[2] > 0};
}

template <class T>
Replicated<T>::Replicated(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
                          std::shared_ptr<comm::Communicator> comm)
    : job_(job),
      optimizer_(optimizer),
      engine_(std::move(engine)),
      comm_(std::move(comm)),
      batch_sum_(*comm_),
      update_(job.model, optimizer) {}

template <class T>
StepSums Replicated<T>::step(const Source<T>& source, const Turn& turn) {
  const bool alone = comm_->size() == 1;
  const Rows<T> all{source, turn.batch, 0};
  const Rows<T> mine = all.part(share(all.count(), comm_->rank(), comm_->size()));
  const Rows<T> next{source, turn.next, 0};
  const bool hot = alone && engine_->announces() && !optimizer_.clip();
  Stopwatch watch;
  optimizer_.begin_step();
  Step<T> own{turn.key, job_.loss.scale(all.count()), alone ? nullptr : &batch_sum_};
  own.next = next.part(share(next.count(), comm_->rank(), comm_->size())).indices;
  if (hot) own.final = &update_;
  if (hot && !turn.last()) own.updates = &update_;
  StepSums sums{engine_->gradient(mine, own), turn.stop};
  watch.lap(this->phases.gradient);
  if (hot) return sums;
  if (!alone) {
    write_tail(job_.model, sums);
    comm_->all_reduce(comm::View(job_.model.grads->span()));
    sums = read_tail(job_.model);
    watch.lap(this->phases.agreement);
  }
  engine_->update(optimizer_);
  watch.lap(this->phases.update);
  return sums;
}

template class Replicated<float>;
template class Replicated<double>;
template void write_tail(nn::Model<float>&, const StepSums&);
template void write_tail(nn::Model<double>&, const StepSums&);
template StepSums read_tail(nn::Model<float>&);
template StepSums read_tail(nn::Model<double>&);

}  // namespace pdnn::parallel
