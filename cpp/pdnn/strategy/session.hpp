#pragma once
/// Session: a strategy with all that it works on, from the first epoch of a training to the last.
#include "pdnn/partition/network_part.hpp"
#include "pdnn/strategy/make_strategy.hpp"

namespace pdnn::strategy {

/// Epochs of as many rows, between which nobody looks at the model.
struct EpochsAhead {
  Matrix<const Index> orders;      ///< a row an epoch
  Matrix<const double> rates;      ///< learning rates: a row an epoch, of one a group; no rows: the optimizer's
  std::span<const double> scales;  ///< by which the optimizer's state is multiplied before each epoch
  bool squares = false;            ///< whether EpochMade has them
};

struct EpochMade {
  EpochSums sums;
  std::vector<double> squares;  ///< Σ w² after it, of each group of the optimizer, or nothing
};

/// While a call lasts, users see the model as it was before: the strategy trains a copy, whose weights lie in panels.
/// Afterwards, also of an epoch that was broken off, they see what it has become.
template <class T>
class Session {
 public:
  /// Collective. The training has a communicator to itself.
  Session(const StrategyConfig& config, Training<T> training)
      : training_(std::move(training)), model_(training_.model), optimizer_(training_.optimizer) {
    if (!std::holds_alternative<GridConfig>(config)) {  // which copies parts
      copy_ = std::make_shared<partition::PartialModel<T>>(training_.model, training_.optimizer,
                                                           training_.network->layout());
      copy_->take();
      training_.model = {copy_, &copy_->model()};
      training_.optimizer = {copy_, &copy_->optimizer()};
    }
    strategy_ = make_strategy(config, training_);
  }

  /// Strategy::run_epoch, with what it sent.
  EpochSums run_epoch(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
    require(epoch.first_row >= 0 && epoch.first_row <= epoch.rows(), "first_row: got ", epoch.first_row,
            ", the epoch has ", epoch.rows(), " rows");
    require(epoch.rates.rows == 0 || epoch.rates.rows >= epoch.steps(), "rates: got ", epoch.rates.rows,
            " rows, expected ", epoch.steps(), ", one a step");
    EpochSums sums;
    on_copy([&] { sums = train(source, epoch, poll); });
    return sums;
  }

  /// Trains on several epochs, for each of which `epoch` has all but the order and the rates. Ends after one in which a
  /// step was not finite, if that ends an epoch. Users see what all of them have made, or one, if squares are wanted.
  std::vector<EpochMade> run_epochs(const Source<T>& source, Epoch epoch, const EpochsAhead& ahead) {
    const auto count = ahead.orders.rows, rows = ahead.orders.cols;
    require(std::ssize(ahead.scales) == count && (ahead.rates.rows == 0 || ahead.rates.rows == count),
            "run_epochs: got ", count, " orders, ", ahead.rates.rows, " rows of rates and ", ahead.scales.size(),
            " scales");
    std::vector<EpochMade> made;
    if (count == 0) return made;
    const auto next = [&] {  // whether there is one more
      const Index number = std::ssize(made);
      const double scale = ahead.scales[static_cast<std::size_t>(number)];
      if (scale != 1) training_.optimizer->scale_state(scale);
      epoch.order = {ahead.orders.row(number), static_cast<std::size_t>(rows)};
      if (ahead.rates.rows > 0) epoch.rates = {ahead.rates.row(number), epoch.steps(), ahead.rates.cols, 0};
      const EpochSums sums = train(source, epoch, [](const EpochSums&) { return false; });
      made.push_back({sums, {}});
      epoch.first_step += sums.steps;
      return !sums.nonfinite.found() && number + 1 < count;
    };
    if (!ahead.squares) {
      on_copy([&] {
        for (bool more = true; more;) more = next();
      });
      return made;
    }
    for (bool more = true; more;) {
      on_copy([&] { more = next(); });
      made.back().squares = optimizer_->squares(model_->params->span());
    }
    return made;
  }

  /// Until leave_evaluation() the model is what all ranks would agree on now.
  void enter_evaluation() {
    if (agreed()) return;
    take();
    evaluating_ = strategy_->enter_evaluation();
    if (evaluating_) give_back();
  }
  void leave_evaluation() {
    if (!evaluating_) return;
    strategy_->leave_evaluation();
    give_back();
    evaluating_ = false;
  }
  /// After the last epoch: all ranks hold the same model.
  void finish() {
    if (agreed()) return;
    take();
    strategy_->finish();
    give_back();
  }

  Strategy<T>& strategy() { return *strategy_; }
  /// A group of its own, so that an epoch that one rank has left does not disturb what the ranks do later.
  const std::shared_ptr<comm::Communicator>& comm() const { return training_.comm; }

 private:
  /// Whether all ranks hold the same model, so that nothing need be copied for an agreement.
  bool agreed() const { return strategy_->rows_apart().all == 0; }
  /// Calls train(), after which users see what the model has become, also if it throws.
  template <class Train>
  void on_copy(Train train) {
    take();
    try {
      train();
    } catch (...) {
      give_back();
      throw;
    }
    give_back();
  }
  EpochSums train(const Source<T>& source, const Epoch& epoch, const Poll& poll) {
    const comm::Traffic before = comm::traffic_of_this_thread();
    EpochSums sums = strategy_->run_epoch(source, epoch, poll);
    sums.traffic += comm::traffic_of_this_thread() - before;
    return sums;
  }
  void take() {
    if (copy_) copy_->take();
  }
  void give_back() {
    if (copy_) copy_->gather();
  }

  Training<T> training_;
  std::shared_ptr<nn::Model<T>> model_;  // that users see
  std::shared_ptr<optim::Optimizer<T>> optimizer_;
  std::shared_ptr<partition::PartialModel<T>> copy_;  // null for a strategy that makes its own
  std::unique_ptr<Strategy<T>> strategy_;
  bool evaluating_ = false;
};

}  // namespace pdnn::strategy
