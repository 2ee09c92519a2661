#include <cmath>

#include "pdnn/comm/thread_group.hpp"
#include "pdnn/engine/evaluator.hpp"
#include "pdnn/library/build.hpp"
#include "pdnn/library/sequential.hpp"
#include "pdnn/library/sha256.hpp"
#include "pdnn/library/strategy_spec.hpp"
#include "pdnn/strategy/session.hpp"

namespace pdnn {

Ranks::Ranks(std::shared_ptr<comm::Communicator> communicator) : communicator_(std::move(communicator)) {}
int Ranks::rank() const { return communicator_ ? communicator_->rank() : 0; }
int Ranks::size() const { return communicator_ ? communicator_->size() : 1; }

void run_ranks(int ranks, const std::function<void(const Ranks&)>& f) {
  require(static_cast<bool>(f), "run_ranks: there is no function; pass one, which every rank calls");
  comm::run_ranks(ranks, [&](comm::Communicator& comm) { f(Ranks(comm.shared_from_this())); });
}

namespace {

using strategy::EpochSums, strategy::OnNonfinite;

OnNonfinite nonfinite_rule(const std::string& name) {
  if (name == "raise") return OnNonfinite::stop;
  if (name == "skip") return OnNonfinite::skip;
  require(name == "ignore", "on_nonfinite \"", name, "\"; expected \"raise\", \"skip\" or \"ignore\"");
  return OnNonfinite::ignore;
}

constexpr Index kCompared = 64;  // rows that ranks compare: few, so that it soon is done, also in a file that is mapped

/// What ranks compare before they train.
constexpr std::array<const char*, 4> kParts{
    "model, loss, optimizer or options of its Trainer", "epochs, batch_size, shuffle or learning rate",
    "rows to train on; give all ranks all rows, of which each trains on its share", "rows of validation"};
constexpr std::size_t kDigits = 16;  // of each part

/// The digits of how data are read, and of some rows, evenly spread.
std::string digits_of(const Dataset& data) {
  library::Sha256 digest;
  const auto& [x, y, weights] = data;
  digest.add(message(" ", x.rows, " ", static_cast<int>(x.element), " ", x.scale, " ", x.shift, " ", y.width));
  for (const Index extent : x.sample) digest.add(message(" ", extent));
  const auto add_row = [&](const void* first, Element element, Index at, Index count) {
    const Index bytes = element == Element::uint8 ? 1 : element == Element::float64 ? 8 : 4;
    digest.add(std::span(static_cast<const std::byte*>(first) + at * bytes, static_cast<std::size_t>(count * bytes)));
  };
  const Index features = element_count(x.sample), values = std::max<Index>(y.width, 1);
  for (Index row = 0; row < x.rows; row += (x.rows + kCompared - 1) / kCompared) {
    add_row(x.data, x.element, row * (x.stride == 0 ? features : x.stride), features);
    add_row(y.data, y.element, row * (y.stride == 0 ? values : y.stride), values);
    if (weights) add_row(weights, Element::float64, row, 1);
  }
  return digest.hex().substr(0, kDigits);
}
std::string digits_of(const std::string& text) {
  library::Sha256 digest;
  digest.add(text);
  return digest.hex().substr(0, kDigits);
}

/// Rows with their targets as the core reads them. ValueError if they do not fit the loss and the outputs.
template <class T>
data::Source<T> source_of(const char* where, const Dataset& data, const nn::Model<T>& model, const nn::Loss<T>& loss) {
  const data::Samples samples = library::core_samples(data.x);
  const Targets& y = data.y;
  require(y.rows == samples.count, where, ": ", samples.count, " samples and ", y.rows, " targets");
  require(samples.count > 0, where, ": there are no rows");
  require(y.data, where, ": the targets have no memory");
  require(y.width > 0 || y.element == Element::int32, where, ": targets of ", y.width,
          " values a row; expected at least 1, or classes, std::int32_t");
  const Shape output = model.bound(samples.sample)->output_shape(samples.sample);
  loss.check(output, y.width);
  nn::Target<T> target;
  target.weights = data.weights;
  if (y.width == 0) {
    target.classes = static_cast<const std::int32_t*>(y.data);
    const auto classes = static_cast<std::int32_t>(std::max<Index>(output.count(), 2));
    for (Index row = 0; row < y.rows; ++row)
      require(target.classes[row] >= 0 && target.classes[row] < classes, where, ": label ", target.classes[row],
              " of row ", row, " is outside 0 … ", classes - 1, ", the model's classes");
  } else {
    require(y.element == element_of<T>(), where, ": targets are of another type than the model");
    require(y.stride == 0 || y.stride >= y.width, where, ": a stride of ", y.stride, " for targets of ", y.width);
    target.values = {static_cast<const T*>(y.data), y.rows, y.width, y.stride == 0 ? y.width : y.stride};
  }
  for (Index row = 0; data.weights && row < y.rows; ++row)
    require(data.weights[row] >= 0 && std::isfinite(data.weights[row]), where, ": weight ", data.weights[row],
            " of row ", row, "; expected finite numbers, 0 or more");
  return {samples, target};
}

}  // namespace

template <class T>
struct Trainer<T>::Impl {
  std::shared_ptr<typename Sequential<T>::Impl> model;
  std::shared_ptr<nn::Loss<T>> loss;
  std::shared_ptr<optim::Optimizer<T>> optimizer;
  std::shared_ptr<comm::Communicator> comm;
  library::SpelledStrategy strategy;
  OnNonfinite on_nonfinite;
  std::uint64_t seed;
  std::string job;  // what must be the same on all ranks
  double lr, weight_decay;
  engine::Evaluator<T> evaluator;
  Index epoch = 0;
  std::int64_t steps = 0;

  Impl(const Sequential<T>& its_model, const Loss& its_loss, const Optimizer& its_optimizer,
       const TrainerOptions& options)
      : Impl(its_model, its_loss, library::read_optimizer(library::Json::parse("optimizer", its_optimizer.json)),
             options) {
    job = its_model.json() + its_loss.json + its_optimizer.json + options.strategy + options.on_nonfinite +
          message(" ", seed, " ", options.clip_norm, " ", options.clip_value);
  }

  void set_rate(double rate) {
    require(rate >= 0 && std::isfinite(rate), "learning rate ", rate, "; expected a number from 0");
    optimizer->set_segments({{model->model->count(), rate, weight_decay, false}});
    lr = rate;
  }

  /// A part of these rows, on this rank.
  Scores scores(const data::Source<T>& source, Index width, Range rows, comm::Communicator* ranks) {
    std::vector<Index> numbers = library::all_rows(source.count());
    const auto [sums, weight] =
        evaluator.loss(*loss, source, slice(std::span<const Index>(numbers), rows.begin, rows.size()), ranks, nullptr);
    std::array<double, 3> all{sums.value, sums.correct, weight};
    if (ranks) ranks->all_reduce(std::span(all));
    return means(all[0], all[1], all[2], width);
  }
  Scores means(double value, double correct, double weight, Index width) const {
    const double counted = weight == 0 ? 1 : weight;
    return {value / counted, loss->classifies(width) ? std::optional(correct / counted) : std::nullopt};
  }

  /// Ends `fit` on all ranks if one was given something wrong, `mine` empty, or something else than another; of those
  /// who were not, the former with Aborted, the latter with ValueError.
  void compare(std::string mine) {
    constexpr std::size_t kAll = kDigits * kParts.size();
    mine.resize(kAll, '-');
    AlignedArray<std::uint8_t> own(std::ssize(mine)), all(own.size() * comm->size());
    std::ranges::copy(mine, own.data());
    comm->all_gather(std::span<const std::uint8_t>(own.span()), all.span());
    if (mine[0] == '-') return;  // with an error of its own
    const auto said = [&](int rank) {
      return std::string_view(reinterpret_cast<const char*>(all.data()), static_cast<std::size_t>(all.size()))
          .substr(kAll * static_cast<std::size_t>(rank), kAll);
    };
    for (int rank = 0; rank < comm->size(); ++rank)
      if (said(rank)[0] == '-') throw Aborted(message("fit: rank ", rank, " was given something wrong; see its error"));
    for (int rank = 0; rank < comm->size(); ++rank)
      for (std::size_t part = 0; part < kParts.size(); ++part)
        require(said(rank).substr(part * kDigits, kDigits) == mine.substr(part * kDigits, kDigits), "fit: rank ",
                comm->rank(), " differs from rank ", rank, " in the ", kParts[part]);
  }

  /// What a call of `fit` trains on, checked.
  struct Job {
    data::Source<T> source;
    std::optional<data::Source<T>> held_out;
    Index rows;  // of a batch
  };
  Job checked(const Dataset& train, const FitOptions& options) const {
    require(options.epochs >= 0 && options.batch_size >= 1, "fit: ", options.epochs, " epochs of batches of ",
            options.batch_size, " rows; expected at least 0 and 1");
    Job made{source_of("fit", train, *model->model, *loss), {}, 0};
    if (options.validation) made.held_out = source_of("validation", *options.validation, *model->model, *loss);
    const Index count = made.source.count(), batch = std::min(options.batch_size, count);
    made.rows = std::min(batch * (strategy.models_apart ? comm->size() : 1), count);
    require(!strategy.whole_batch || made.rows == count,
            "fit: this strategy sends the rows once, so a batch must be all ", count, " of them");
    return made;
  }

  /// The same, with which all ranks begin or none; then they go on with rank 0's training.
  Job agreed(const Dataset& train, const FitOptions& options) {
    if (comm->size() == 1) return checked(train, options);
    std::optional<Job> found;
    try {
      found = checked(train, options);
    } catch (...) {
      compare({});
      throw;
    }
    compare(digits_of(job) +
            digits_of(message(options.epochs, " ", options.batch_size, " ", options.shuffle, " ", lr)) +
            digits_of(train) + (options.validation ? digits_of(*options.validation) : digits_of("none")));
    take_from_first();
    return *found;
  }

  /// Rank 0's epoch and step, which differ where `fit` has failed on another rank only, and what of its model and its
  /// optimizer the strategy has all ranks begin with.
  void take_from_first() {
    std::array<std::int64_t, 3> counts{epoch, steps, optimizer->steps()};
    comm->broadcast(std::span(counts), 0);
    epoch = counts[0];
    steps = counts[1];
    if (!strategy.same_init) return;
    comm->broadcast(model->model->params->span(), 0);
    comm->broadcast(model->model->buffers->span(), 0);
    if (!strategy.same_updates) return;
    optimizer->set_steps(counts[2]);
    for (AlignedArray<T>& array : optimizer->state()) comm->broadcast(array.span(), 0);
  }

  std::vector<Progress> fit(const Dataset& train, const FitOptions& options);

 private:
  Impl(const Sequential<T>& its_model, const Loss& its_loss, const library::OptimizerNumbers& numbers,
       const TrainerOptions& options)
      : model(its_model.impl()),
        loss(library::build_loss<T>(library::Json::parse("loss", its_loss.json))),
        optimizer(std::make_shared<optim::Optimizer<T>>(model->model->count(), numbers.rule)),
        comm(options.ranks.communicator() ? options.ranks.communicator() : comm::make_self()),
        strategy(library::spelled_strategy(options.strategy, comm->size())),
        on_nonfinite(nonfinite_rule(options.on_nonfinite)),
        seed(options.seed),
        lr(numbers.lr),
        weight_decay(numbers.weight_decay),
        evaluator(*model->model, strategy.threads) {
    using Clip = optim::Clip<T>;
    set_rate(lr);
    require(options.clip_norm == 0 || options.clip_value == 0, "clip_norm and clip_value: at most one may be given");
    if (options.clip_norm != 0)
      optimizer->set_clip(std::make_unique<Clip>(Clip::By::norm, options.clip_norm, model->model->count()));
    if (options.clip_value != 0)
      optimizer->set_clip(std::make_unique<Clip>(Clip::By::value, options.clip_value, model->model->count()));
  }
};

template <class T>
std::vector<Progress> Trainer<T>::Impl::fit(const Dataset& train, const FitOptions& options) {
  const auto [source, held_out, rows] = agreed(train, options);
  const Index count = source.count(), width = train.y.width;
  const std::shared_ptr<comm::Communicator> group = comm->duplicate();
  std::optional<strategy::Session<T>> session;
  std::vector<Progress> finished;
  bool stop = false;
  const auto told = [&](const EpochSums& sums) {
    return Progress{.epoch = epoch,
                    .steps = steps + sums.steps,
                    .rows = sums.rows,
                    .seconds = sums.seconds,
                    .training = means(sums.loss, sums.correct, sums.weight, width),
                    .validation = {}};
  };
  try {
    session.emplace(strategy.config,
                    strategy::Training<T>{model->model, loss, optimizer, group, source.sample(), width, rows});
    for (Index left = options.epochs; left > 0 && !stop; --left) {
      const std::vector<Index> order = options.shuffle
                                           ? data::epoch_order(seed, static_cast<std::uint64_t>(epoch), count)
                                           : library::all_rows(count);
      const EpochSums sums =
          session->run_epoch(source,
                             {.order = order,
                              .batch_size = rows,
                              .seed = seed,
                              .first_step = steps,
                              .rates = {},
                              .on_nonfinite = on_nonfinite},
                             [&](const EpochSums& far) { return options.progress && !options.progress(told(far)); });
      if (sums.nonfinite.found())
        throw std::runtime_error(message("fit: epoch ", epoch, ", step ", sums.nonfinite.step,
                                         ": the loss or a gradient is NaN or infinite; this update was not made"));
      Progress progress = told(sums);
      progress.finished = !sums.stopped;
      steps += sums.steps;
      ++epoch;
      if (held_out) {
        session->enter_evaluation();
        comm::Communicator* const ranks = comm->size() > 1 ? session->comm().get() : nullptr;
        progress.validation =
            scores(*held_out, options.validation->y.width, share(held_out->count(), comm->rank(), comm->size()), ranks);
        session->leave_evaluation();
      }
      finished.push_back(progress);
      std::int64_t wishes = sums.stopped || (options.progress && !options.progress(progress)) ? 1 : 0;
      if (comm->size() > 1) session->comm()->all_reduce(std::span(&wishes, 1));
      stop = wishes > 0;
    }
    session->finish();
  } catch (...) {
    if (comm->size() > 1) group->fail();
    throw;
  }
  return finished;
}

template <class T>
Trainer<T>::Trainer(const Sequential<T>& model, const Loss& loss, const Optimizer& optimizer,
                    const TrainerOptions& options)
    : impl_(std::make_shared<Impl>(model, loss, optimizer, options)) {}

template <class T>
std::vector<Progress> Trainer<T>::fit(const Dataset& train, const FitOptions& options) {
  class Alone {
   public:
    explicit Alone(std::atomic<bool>& in_fit) : in_fit_(in_fit) {
      require(!in_fit_.exchange(true),
              "fit: the model is within a fit, of this trainer or another one, in its progress or another thread; call "
              "fit after it");
    }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;
    ~Alone() { in_fit_ = false; }

   private:
    std::atomic<bool>& in_fit_;
  };
  const Alone alone(impl_->model->in_fit);
  return impl_->fit(train, options);
}

template <class T>
Scores Trainer<T>::evaluate(const Dataset& data) const {
  const data::Source<T> source = source_of("evaluate", data, *impl_->model->model, *impl_->loss);
  return impl_->scores(source, data.y.width, {0, source.count()}, nullptr);
}

template <class T>
std::vector<Index> Trainer<T>::output_shape(const std::vector<Index>& sample) const {
  return library::output_shape(*impl_->model->model, sample);
}

template <class T>
void Trainer<T>::predict(const Samples& x, T* outputs) const {
  library::predict(impl_->evaluator, x, outputs);
}

template <class T>
std::vector<T> Trainer<T>::predict(const Samples& x) const {
  std::vector<T> outputs(
      static_cast<std::size_t>(library::core_samples(x).count * element_count(output_shape(x.sample))));
  predict(x, outputs.data());
  return outputs;
}

template <class T>
double Trainer<T>::learning_rate() const {
  return impl_->lr;
}

template <class T>
void Trainer<T>::set_learning_rate(double rate) {
  impl_->set_rate(rate);
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace pdnn
