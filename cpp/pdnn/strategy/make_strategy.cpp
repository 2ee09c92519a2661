#include "pdnn/strategy/make_strategy.hpp"

#include "pdnn/strategy/elastic_averaging.hpp"
#include "pdnn/strategy/grid.hpp"
#include "pdnn/strategy/hogwild.hpp"
#include "pdnn/strategy/model_averaging.hpp"
#include "pdnn/strategy/scatter_gather.hpp"

namespace pdnn::strategy {

template <class T>
Training<T>::Training(std::shared_ptr<nn::Model<T>> its_model, std::shared_ptr<nn::Loss<T>> its_loss,
                      std::shared_ptr<optim::Optimizer<T>> its_optimizer, std::shared_ptr<comm::Communicator> ranks,
                      const Shape& its_sample, Index width, Index rows)
    : model(std::move(its_model)),
      loss(std::move(its_loss)),
      optimizer(std::move(its_optimizer)),
      comm(std::move(ranks)),
      sample(its_sample),
      target_width(width),
      batch_size(rows),
      network(model->bound(sample)->with_panels()) {
  loss->check(network->output_shape(sample), target_width);
}

template struct Training<float>;
template struct Training<double>;

namespace {

/// One overload a configuration.
template <class T>
class Maker {
 public:
  explicit Maker(const Training<T>& training)
      : training_(training), job_{*training.model, *training.network, *training.loss, training.sample} {}

  std::unique_ptr<Strategy<T>> operator()(const DataParallelConfig& config) const {
    using Sum = typename DataParallel<T>::Sum;
    const Index leaves = this->leaves(config);
    return std::make_unique<DataParallel<T>>(
        job_, *training_.optimizer, engine(config.engine, leaves), training_.comm,
        typename DataParallel<T>::Options{
            .reducer = config.reducer, .sum = config.sum_of_means ? Sum::of_means : Sum::of_rows, .leaves = leaves});
  }

  std::unique_ptr<Strategy<T>> operator()(const ModelAveragingConfig& config) const {
    return std::make_unique<ModelAveraging<T>>(job_, *training_.optimizer, engine(config.engine), training_.comm,
                                               config);
  }

  std::unique_ptr<Strategy<T>> operator()(const ElasticAveragingConfig& config) const {
    return std::make_unique<ElasticAveraging<T>>(job_, *training_.optimizer, engine(config.engine), training_.comm,
                                                 config);
  }

  std::unique_ptr<Strategy<T>> operator()(const HogwildConfig& config) const {
    return std::make_unique<Hogwild<T>>(job_, *training_.optimizer, training_.comm, config.threads,
                                        training_.batch_size);
  }

  std::unique_ptr<Strategy<T>> operator()(const ScatterGatherConfig& config) const {
    return std::make_unique<ScatterGather<T>>(job_, *training_.optimizer, engine(config.engine), training_.comm,
                                              training_.target_width, training_.batch_size, config.once);
  }

  std::unique_ptr<Strategy<T>> operator()(const GridConfig& config) const {
    return std::make_unique<GridStrategy<T>>(training_.model, training_.optimizer, *training_.loss, training_.sample,
                                             *training_.comm, training_.batch_size, config);
  }

 private:
  /// Those of the configuration; none where a pool's pieces have statistics of their own.
  Index leaves(const DataParallelConfig& config) const {
    const bool own_statistics = training_.network->traits().own_statistics;
    if (own_statistics && std::holds_alternative<PoolConfig>(config.engine)) return 0;
    require(config.leaves == 0 || !own_statistics, "reproducible sums: a layer with sync=False has statistics of the ",
            "rows that are computed together, which depend on the ranks; pass sync=True");
    return config.leaves;
  }

  /// Of this rank, for its share of a batch: of its rows, or of its leaves, of which rank 0 has most.
  std::unique_ptr<Engine<T>> engine(const EngineConfig& config, Index leaves = 0) const {
    const int ranks = training_.comm->size();
    const Index batch = training_.batch_size, rows = (batch + ranks - 1) / ranks;
    const Index capacity = leaves > 0 ? Leaves{leaves, batch, share(leaves, 0, ranks)}.rows().size() : rows;
    if (const auto* pool = std::get_if<PoolConfig>(&config)) {
      const Index pieces = leaves > 0 ? share(leaves, 0, ranks).size() : pool->pieces;
      const Index own = leaves > 0 ? share(leaves, training_.comm->rank(), ranks).size() : pieces;
      const bool at_once = training_.network->traits().synchronized;  // no worker may have none
      const auto workers = static_cast<int>(at_once ? std::min<Index>(pool->workers, own) : pool->workers);
      return std::make_unique<engine::PoolEngine<T>>(job_, workers, pieces, capacity);
    }
    return std::make_unique<engine::TeamEngine<T>>(job_, std::get<TeamConfig>(config).threads, capacity);
  }

  const Training<T>& training_;
  Job<T> job_;
};

}  // namespace

template <class T>
std::unique_ptr<Strategy<T>> make_strategy(const StrategyConfig& config, const Training<T>& training) {
  return std::visit(Maker<T>(training), config);
}

template std::unique_ptr<Strategy<float>> make_strategy(const StrategyConfig&, const Training<float>&);
template std::unique_ptr<Strategy<double>> make_strategy(const StrategyConfig&, const Training<double>&);

}  // namespace pdnn::strategy
