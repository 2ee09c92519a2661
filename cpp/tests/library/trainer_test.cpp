/// Ranks that train together through the library.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "support.hpp"

using namespace pdnn;
using pdnn::tests::holds, pdnn::tests::refusal, pdnn::tests::Task;

BOOST_AUTO_TEST_SUITE(library_trainer)

BOOST_AUTO_TEST_CASE(ranks_train_together) {
  struct Trained {  // which is checked after the ranks, as Boost's checks are for one thread
    RowMatrix<float> y;
    std::string print;
    double off;  // what a rank's evaluation differs in from that of all
  };
  const Task task;
  const auto trained = [&](const std::string& strategy, const Ranks& ranks) {
    const auto network = tests::small_network();
    const Dataset data = task.data();
    Trainer<float> trainer(network, CrossEntropyLoss(), SGD({.lr = 0.1, .momentum = 0.9}),
                           {.strategy = strategy, .ranks = ranks});
    const auto epochs = trainer.fit(data, {.epochs = 2, .batch_size = 16, .validation = &data});
    const double off = std::abs(epochs.back().validation.value().loss - trainer.evaluate(data).loss);
    return Trained{predict(network, samples(task.x)), network.fingerprint(), off};
  };
  const RowMatrix<float> serial = trained("serial", {}).y;
  for (const char* const strategy :
       {"ddp", "ddp/8", "ddp+team:2", "ddp+pool:2/4", "scatter-gather", "pipeline:2", "pipeline:2/4:gpipe", "tp:2",
        "tp:2 x ddp", "average:1", "average:end", "average:2:master", "elastic-average:2:0.5", "ddp:int8", "ddp:sum"}) {
    std::vector<Trained> all(2);
    run_ranks(2, [&](const Ranks& ranks) { all[static_cast<std::size_t>(ranks.rank())] = trained(strategy, ranks); });
    const std::string name = strategy;
    for (const Trained& each : all) {
      BOOST_TEST(each.off < 1e-6, name);
      if (!holds(name, "average") && !holds(name, "int8") && !holds(name, "sum"))
        BOOST_TEST((each.y - serial).cwiseAbs().maxCoeff() < 1e-5F, name);
    }
    BOOST_TEST(all[0].print == all[1].print, strategy);
  }
  run_ranks(2, [&](const Ranks& ranks) { trained(" tp:2 x ddp + team:2 ", ranks); });
  for (const char* const strategy : {"serial", "team:2", "pipeline:3", "pipeline:65536 x tp:65536", "hogwild:2",
                                     "hogwild-processes:3", "ddp/1", "ddp:int9", "auto"})
    BOOST_CHECK_THROW(run_ranks(2, [&](const Ranks& ranks) { trained(strategy, ranks); }), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(ranks_compare_what_they_train) {
  const Task task;
  const auto differ = [&] {
    run_ranks(2, [&](const Ranks& ranks) {
      Trainer<float> trainer(tests::small_network(), CrossEntropyLoss(), SGD({.lr = ranks.rank() == 0 ? 0.1 : 0.2}),
                             {.strategy = "ddp", .ranks = ranks});
      trainer.fit(task.data());
    });
  };
  BOOST_TEST(holds(refusal<std::invalid_argument>(differ), "in the model, loss, optimizer or options of its Trainer"));
  const auto trained_on = [&](const std::function<void(Task&)>& change) {
    run_ranks(2, [&](const Ranks& ranks) {
      Task own;
      if (ranks.rank() == 1) change(own);
      Trainer<float>(tests::small_network(), CrossEntropyLoss(), SGD({.lr = 0.1}), {.strategy = "ddp", .ranks = ranks})
          .fit(own.data());
    });
  };
  for (const std::function<void(Task&)>& change : std::vector<std::function<void(Task&)>>{
           [](Task& own) { own.x = -own.x; }, [](Task& own) { own.classes(5) = 1 - own.classes(5); }}) {
    const std::string said = refusal<std::invalid_argument>([&] { trained_on(change); });
    BOOST_TEST(holds(said, "in the rows to train on; give all ranks all rows"), said);
  }
  const auto fitted = [&](const std::function<void(FitOptions&)>& change) {
    run_ranks(2, [&](const Ranks& ranks) {
      FitOptions options;
      if (ranks.rank() == 1) change(options);
      Trainer<float>(tests::small_network(), CrossEntropyLoss(), Adam(), {.strategy = "ddp", .ranks = ranks})
          .fit(task.data(), options);
    });
  };
  const auto longer = [&] { fitted([](FitOptions& options) { options.epochs = 2; }); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(longer), "in the epochs, batch_size, shuffle or learning rate"));
  const Dataset data = task.data();
  const auto watched = [&] { fitted([&](FitOptions& options) { options.validation = &data; }); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(watched), "in the rows of validation"));
}

BOOST_AUTO_TEST_CASE(a_rank_that_begins_anew_goes_on_with_the_training_of_rank_0) {
  const Task task;
  for (const char* const strategy : {"ddp", "ddp/8", "scatter-gather", "pipeline:2"}) {
    const auto print = [&](bool anew) {
      std::vector<std::string> prints(2);
      run_ranks(2, [&](const Ranks& ranks) {
        Sequential<float> network = tests::small_network();
        const TrainerOptions options{.strategy = strategy, .ranks = ranks};
        Trainer<float> trainer(network, CrossEntropyLoss(), Adam(), options);
        trainer.fit(task.data(), {.epochs = 2, .batch_size = 16});
        if (anew && ranks.rank() == 1) {
          network = tests::small_network();
          trainer = Trainer<float>(network, CrossEntropyLoss(), Adam(), options);
        }
        trainer.fit(task.data(), {.epochs = 2, .batch_size = 16});
        prints[static_cast<std::size_t>(ranks.rank())] = network.fingerprint();
      });
      return prints;
    };
    BOOST_TEST(print(true) == print(false), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(ranks_want_a_function) {
  BOOST_TEST(holds(refusal<std::invalid_argument>([] { run_ranks(2, {}); }), "run_ranks: there is no function"));
}

BOOST_AUTO_TEST_CASE(an_error_of_one_rank_ends_fit_on_all) {
  std::vector<std::string> said(2);
  run_ranks(2, [&](const Ranks& ranks) {
    Task task;
    if (ranks.rank() == 1) task.classes(7) = 2;
    Trainer<float> trainer(tests::small_network(), CrossEntropyLoss(), SGD({.lr = 0.1}),
                           {.strategy = "ddp", .ranks = ranks});
    try {
      trainer.fit(task.data());
    } catch (const std::exception& error) {
      said[static_cast<std::size_t>(ranks.rank())] = error.what();
    }
    task.classes(7) = 1;
    trainer.fit(task.data());  // the ranks are still together
  });
  BOOST_TEST(holds(said[0], "rank 1 was given something wrong"), said[0]);
  BOOST_TEST(holds(said[1], "label 2 of row 7"), said[1]);
}

BOOST_AUTO_TEST_CASE(a_fit_within_a_fit_is_refused) {
  const Task task;
  const Sequential<float> model = tests::small_network();
  Trainer<float> trainer(model, CrossEntropyLoss(), SGD({.lr = 0.1}));
  Trainer<float> other(model, CrossEntropyLoss(), SGD({.lr = 0.1}));
  for (Trainer<float>* const inner : {&trainer, &other}) {
    const auto nested = [&] {
      trainer.fit(task.data(), {.progress = [&](const Progress&) {
                    inner->fit(task.data());
                    return true;
                  }});
    };
    BOOST_TEST(holds(refusal<std::invalid_argument>(nested), "within a fit"));
  }
  trainer.fit(task.data());  // the refusals have left nothing behind
}

BOOST_AUTO_TEST_SUITE_END()
