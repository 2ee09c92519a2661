/// Descriptions, files, one rank's training and errors of the library.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "support.hpp"

using namespace pdnn;
using pdnn::tests::holds, pdnn::tests::refusal, pdnn::tests::Task;

namespace {

std::vector<Layer> every_layer() {
  return {Conv2d(1, 4, 3, 1, 1, {.weight_init = xavier_uniform()}),
          BatchNorm2d(4, {.sync = true}),
          ReLU(),
          MaxPool2d(2),
          Residual(Chain({Conv2d(4, 4, {1, 3}, 1, {0, 2}, {.dilation = {1, 2}, .groups = 2}), LeakyReLU(0.1), ELU(0.5),
                          Softplus(2)})),
          AvgPool2d({2, 1}, Pair(1, 2), {1, 0}),
          AdaptiveAvgPool2d(),
          Flatten(),
          Linear(4, 6, {.bias = false}),
          LayerNorm(6),
          GELU(),
          Dropout(0.2),
          Linear(6, 6),
          SiLU(),
          BatchNorm1d(6),
          Sigmoid(),
          Linear(6, 3),
          Tanh(),
          Softmax()};
}

std::vector<Layer> every_layer_of_lines() {
  return {Conv1d(2, 4, 3, 1, 1, {.bias = false}),
          BatchNorm1d(4),
          MaxPool1d(3, 1, 1),
          AvgPool1d(2),
          Conv1d(4, 2, 2, 1, 0, {.dilation = 2, .groups = 2}),
          AdaptiveAvgPool1d(),
          Flatten(),
          Linear(2, 3)};
}

std::vector<Layer> tables() {
  return {Embedding(3, 4, {.padding_idx = 2}), Transpose(), Conv1d(4, 2, 3), Transpose(), Flatten(), Linear(28, 3)};
}

struct File {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("pdnn" + std::to_string(getpid()) + ".safetensors");
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { std::filesystem::remove(path); }

  std::string read() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(library_facade)

BOOST_AUTO_TEST_CASE_TEMPLATE(files_keep_every_layer, T, decltype(std::tuple<float, double>())) {
  const std::vector<std::pair<std::vector<Layer>, std::vector<Index>>> networks{
      {every_layer(), {1, 4, 4}}, {every_layer_of_lines(), {2, 8}}, {tables(), {16}}};
  for (const auto& [layers, sample] : networks) {
    const File file;
    const Sequential<T> model(layers, {.seed = 5});
    model.save(file.path);
    const auto read = Sequential<T>::load(file.path);
    BOOST_TEST(read.fingerprint() == model.fingerprint());
    BOOST_TEST(read.json() == model.json());
    BOOST_TEST(Sequential<T>::from_json(model.json(), 5).output_shape(sample) == std::vector<Index>{3},
               boost::test_tools::per_element());
    const std::vector<T> x(2 * 16, T(1));
    BOOST_TEST(read.predict({x.data(), 2, sample}) == model.predict({x.data(), 2, sample}));
    const Sequential<T> other(layers, {.seed = 6});
    BOOST_TEST(other.fingerprint() != model.fingerprint());
  }
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused) {
  const File file;
  const Sequential<float> model({Linear(3, 2)});
  model.save(file.path);
  const std::string whole = file.read();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    file.write(whole.substr(0, length));
    BOOST_CHECK_THROW(Sequential<float>::load(file.path), std::runtime_error);
  }
  std::mt19937 draw(static_cast<unsigned>(whole.size()));
  for (int round = 0; round < 2000; ++round) {
    std::string changed = whole;
    changed[draw() % changed.size()] = static_cast<char>(draw());
    file.write(changed);
    try {
      (void)Sequential<float>::load(file.path);
    } catch (const std::runtime_error& error) {
      BOOST_TEST(holds(error.what(), file.path));
    }
  }
  BOOST_TEST(holds(refusal<std::runtime_error>([&] { Sequential<float>::load("/nowhere"); }), "no such file"));
  file.write(whole);
  const auto wrong = [&] { Sequential<double>::load(file.path); };
  BOOST_TEST(holds(refusal<std::runtime_error>(wrong), "the model is float32"));
}

BOOST_AUTO_TEST_CASE(what_else_a_file_says_of_a_model_is_kept) {
  const File file;
  Sequential<float>({Linear(3, 2)}).save(file.path);
  std::string bytes = file.read();
  BOOST_TEST(holds(bytes, R"("format": "pdnn")"));
  const std::string begin = R"({"__metadata__": {)", names = R"("pdnn.classes": "[\"cat\", \"dog\"]")";
  bytes.insert(8 + begin.size(), names + ", ");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  length += names.size() + 2;
  std::memcpy(bytes.data(), &length, sizeof length);
  file.write(bytes);
  const auto model = Sequential<float>::load(file.path);
  model.save(file.path);
  BOOST_TEST(holds(file.read(), names));
  BOOST_TEST(Sequential<float>::load(file.path).fingerprint() == model.fingerprint());
}

BOOST_AUTO_TEST_CASE(files_are_written_through_links_and_into_devices) {
  const File file;
  const std::filesystem::path link = file.path.string() + ".link";
  const Sequential<float> model({Linear(3, 2)});
  model.save(file.path);
  std::filesystem::create_symlink(file.path, link);
  const Sequential<float> other({Linear(3, 2)}, {.seed = 1});
  other.save(link);
  BOOST_TEST(std::filesystem::is_symlink(link));
  BOOST_TEST(Sequential<float>::load(file.path).fingerprint() == other.fingerprint());
  std::filesystem::remove(link);
  std::filesystem::create_symlink("/dev/null", link);
  model.save(link);
  BOOST_TEST(std::filesystem::is_character_file(link));
  std::filesystem::remove(link);
}

BOOST_AUTO_TEST_CASE(files_that_are_written_again_keep_their_permissions) {
  const File file;
  const Sequential<float> model({Linear(3, 2)});
  model.save(file.path);
  const auto own = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  std::filesystem::permissions(file.path, own);
  model.save(file.path);
  BOOST_TEST((std::filesystem::status(file.path).permissions() == own));
}

BOOST_AUTO_TEST_CASE(errors_of_files_have_a_reason) {
  const Sequential<float> model({Linear(3, 2)});
  BOOST_TEST(holds(refusal<std::runtime_error>([&] { model.save("/nowhere/model"); }), "No such file or directory"));
  const std::string folder = std::filesystem::temp_directory_path();
  BOOST_TEST(holds(refusal<std::runtime_error>([&] { model.save(folder); }), "Is a directory"));
  BOOST_TEST(holds(refusal<std::runtime_error>([&] { Sequential<float>::load(folder); }), "cannot be read"));
}

BOOST_AUTO_TEST_CASE(descriptions_are_checked) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {R"({"type": "Linear", "in_features": 0, "out_features": 2})", "in_features = 0; expected at least 1"},
      {R"({"type": "Linear", "in_features": 2.5, "out_features": 2})", "got 2.5, expected a whole number"},
      {R"({"type": "Linear", "in_features": 2})", "out_features is missing"},
      {R"({"type": "Linear", "in_features": 2, "out_features": 2, "bais": true})", "unknown option \"bais\""},
      {R"({"type": "Linear", "in_features": 2, "out_features": 2, "bias": 1})", "bias is neither true nor false"},
      {R"({"type": "Dropout", "p": 1.0})", "p = 1.0; expected a number in [0, 1)"},
      {R"({"type": "MaxPool1d", "kernel_size": [3, 3]})", "kernel_size: got [3, 3], expected a whole number"},
      {R"({"type": "MaxPool1d", "kernel_size": 257})", "expected a window of at most 256 elements"},
      {R"({"type": "AvgPool1d", "kernel_size": 3, "padding": 2})", "expected at most half of kernel_size"},
      {Conv1d(4, 4, 3, 1, 0, {.dilation = {1, 2}}).json, "dilation: got [1, 2], expected a whole number"},
      {Conv2d(4, 6, 3, 1, 0, {.groups = 4}).json, "groups = 4; expected a divisor of both numbers of channels"},
      {R"({"type": "Embedding", "num_embeddings": 2, "embedding_dim": 2, "padding_idx": 2})",
       "expected one of its rows"},
      {R"({"type": "Linear", "in_features": 2, "out_features": 2, "weight_init": 0.1})",
       "weight_init = 0.1; expected an object"},
      {R"({"type": "Linear", "in_features": 2, "out_features": 2, "weight_init": {"distribution": "normal", "std": 1}})",
       "its value alone"},
      {R"({"type": "Linear", "in_features": 2, "out_features": 2, "weight_init": {"distribution": 1}})",
       "which are words"},
      {R"({"type": "Dense"})", "there is no layer \"Dense\""},
      {R"([1, 2])", "expected an object with its \"type\""},
      {R"({"type": "ReLU")", "not JSON"},
      {std::string(100, '['), "nested too deep"},
  };
  for (const auto& [json, expected] : wrong) {
    const std::string said = refusal<std::invalid_argument>([&] { Sequential<float>({Layer(json)}); });
    BOOST_TEST(holds(said, expected), json << ": " << said);
  }
  const auto half = [] { Sequential<float>::from_json(R"({"dtype": "float16", "layers": []})"); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(half), "dtype is float16; expected float32, float64 or bfloat16"));
  BOOST_TEST(refusal<std::invalid_argument>([] { SGD({.lr = NAN}); }) == "SGD: lr = nan; expected a finite number");
  BOOST_TEST(
      holds(refusal<std::invalid_argument>([] { SGD({.momentum = 0.9}); }), "SGD: lr is missing; pass a number"));
  const auto endless = [] { Linear(2, 2, {.weight_init = {.value = INFINITY}}); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(endless), "Linear: weight_init = inf; expected a finite number"));
}

BOOST_AUTO_TEST_CASE(a_weight_decay_is_adamws_own_unless_it_is_given) {
  BOOST_TEST(AdamW({.lr = 0.1}).json == AdamW({.lr = 0.1, .weight_decay = 0.01}).json);
  BOOST_TEST(holds(AdamW().json, "\"weight_decay\": 0.01"));
  BOOST_TEST(holds(Adam({.lr = 0.1}).json, "\"weight_decay\": 0.0"));
}

BOOST_AUTO_TEST_CASE(every_loss_and_optimizer_trains) {
  const Task task;
  const RowMatrix<float> halves = RowMatrix<float>::Constant(64, 2, 0.5F);
  const Dataset classes = task.data(), values{.x = samples(task.x), .y = targets(halves)};
  const std::vector<std::pair<Loss, Dataset>> losses{
      {CrossEntropyLoss("sum", {.weight = {1, 2}, .label_smoothing = 0.1}), classes},
      {CrossEntropyLoss(), values},
      {MSELoss(), values},
      {L1Loss("batchmean"), values},
      {SmoothL1Loss(), values},
      {HuberLoss("mean", 0.5), values},
      {BCEWithLogitsLoss(), values},
      {PoissonNLLLoss({.full = true}), values},
      {QuantileLoss({0.1, 0.9}), values}};
  for (const auto& [loss, data] : losses) {
    Trainer<float> trainer(tests::small_network(), loss, SGD({.lr = 0.01}));
    const double before = trainer.evaluate(data).loss;
    trainer.fit(data, {.epochs = 2, .batch_size = 16});
    BOOST_TEST(trainer.evaluate(data).loss < before, loss.json);
  }
  const Sequential<float> probable({Linear(8, 2), LogSoftmax()}), likely({Linear(8, 2), Sigmoid()});
  Trainer<float>(probable, NLLLoss(), Adam()).fit(classes, {.batch_size = 16});
  Trainer<float>(likely, BCELoss(), Adam()).fit(values, {.batch_size = 16});
  for (const Optimizer& optimizer :
       {Optimizer(SGD({.lr = 0.1, .momentum = 0.9, .nesterov = true})), Optimizer(Adam()), Optimizer(AdamW()),
        Optimizer(Lion()), Optimizer(RMSprop({.momentum = 0.5, .centered = true}))}) {
    Trainer<float> trainer(tests::small_network(), CrossEntropyLoss(), optimizer, {.clip_norm = 1});
    const double before = trainer.evaluate(classes).loss;
    trainer.fit(classes, {.epochs = 3, .batch_size = 16});
    BOOST_TEST(trainer.evaluate(classes).loss < before, optimizer.json);
  }
}

BOOST_AUTO_TEST_CASE(a_training_is_watched_stopped_and_continued) {
  const Task task;
  Trainer<float> trainer(tests::small_network(), CrossEntropyLoss(), SGD({.lr = 0.1}), {.strategy = "team:2"});
  std::vector<Index> epochs;
  const auto watch = [&](const Progress& progress) {
    if (progress.finished) epochs.push_back(progress.epoch);
    return !progress.finished || progress.epoch < 2;  // also called within epochs, where there is time
  };
  BOOST_TEST(trainer.fit(task.data(), {.epochs = 9, .batch_size = 16, .progress = watch}).size() == 3);
  trainer.set_learning_rate(0);
  const auto before = predict(trainer, samples(task.x));
  const auto more = trainer.fit(task.data(), {.epochs = 1, .batch_size = 16});
  BOOST_TEST((predict(trainer, samples(task.x)) == before));
  BOOST_TEST(more[0].epoch == 3);
  BOOST_TEST(more[0].steps == 16);
  BOOST_TEST(epochs == (std::vector<Index>{0, 1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(wrong_data_are_refused) {
  Task task;
  Trainer<float> trainer(tests::small_network(), CrossEntropyLoss(), SGD({.lr = 0.1}));
  const auto fit = [&](const Dataset& data) { return refusal<std::invalid_argument>([&] { trainer.fit(data); }); };
  const Dataset data = task.data();
  BOOST_TEST(holds(fit({.x = {task.x.data(), 64, {4, 2}}, .y = data.y}), "Linear"));
  BOOST_TEST(holds(fit({.x = data.x, .y = {task.classes.data(), 63}}), "64 samples and 63 targets"));
  const RowMatrix<double> doubles = RowMatrix<double>::Zero(64, 2);
  BOOST_TEST(holds(fit({.x = data.x, .y = targets(doubles)}), "another type than the model"));
  std::vector<double> weights(64, 1);
  weights[5] = -1;
  BOOST_TEST(holds(fit({.x = data.x, .y = data.y, .weights = weights.data()}), "weight -1 of row 5"));
  task.classes(7) = 2;
  BOOST_TEST(holds(fit(task.data()), "label 2 of row 7 is outside 0 … 1"));
  task.classes(7) = 1;
  BOOST_TEST(holds(fit({.x = data.x, .y = {task.x.data(), 64, 0}}), "targets of 0 values a row"));
  BOOST_TEST(holds(fit({.x = {task.x.data(), 64, {8}, 0}, .y = data.y}), "scale 0, shift 0; expected"));
  const auto negative = [&] { (void)trainer.predict({task.x.data(), -1, {8}}); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(negative), "got -1 rows"));
  std::vector<float> outputs(2);
  const auto in_place = [&] { tests::small_network().predict({task.x.data(), -1, {8}}, outputs.data()); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(in_place), "got -1 rows"));
  const auto nowhere = [&] { trainer.predict({task.x.data(), 8, {8}}, nullptr); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(nowhere), "outputs is null; expected room"));
  const auto its_nowhere = [&] { tests::small_network().predict({task.x.data(), 8, {8}}, nullptr); };
  BOOST_TEST(holds(refusal<std::invalid_argument>(its_nowhere), "outputs is null; expected room"));
  task.x(3, 3) = std::nanf("");
  BOOST_TEST(holds(refusal<std::runtime_error>([&] { trainer.fit(task.data()); }), "NaN or infinite"));
}

BOOST_AUTO_TEST_SUITE_END()
