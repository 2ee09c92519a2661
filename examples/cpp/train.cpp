/// Trains a network on images of digits, as MNIST's files have them, and writes the model for Python or C++ to load:
///   train IMAGES LABELS [mlp|cnn] [STRATEGY] [MODEL]
///   train train-images-idx3-ubyte train-labels-idx1-ubyte cnn team:2 model.safetensors
#include <array>
#include <exception>
#include <fstream>
#include <iostream>
#include <pdnn/pdnn.hpp>
#include <stdexcept>

namespace {

/// The bytes of an IDX file, without the header of so many numbers.
std::vector<std::uint8_t> read_idx(const std::string& path, std::size_t numbers) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 4 * numbers) throw std::runtime_error(path + ": not an IDX file");
  return {bytes.begin() + static_cast<std::ptrdiff_t>(4 * numbers), bytes.end()};
}

std::vector<pdnn::Layer> network(const std::string& kind) {
  using namespace pdnn;
  if (kind == "mlp") return {Flatten(), Linear(784, 256), Sigmoid(), Linear(256, 10)};
  if (kind != "cnn") throw std::invalid_argument(kind + ": expected mlp or cnn");
  return {Conv2d(1, 8, 5), ReLU(),         MaxPool2d(2), Conv2d(8, 16, 3, 1, 1, {.weight_init = kaiming_uniform()}),
          BatchNorm2d(16), ReLU(),         MaxPool2d(2), Flatten(),
          Dropout(0.25),   Linear(576, 10)};
}

void train(const std::vector<std::string>& arguments) {
  const auto argument = [&](std::size_t at, const char* otherwise) {
    return arguments.size() > at ? arguments[at] : otherwise;
  };
  const std::vector<std::uint8_t> images = read_idx(arguments.at(1), 4), labels = read_idx(arguments.at(2), 2);
  const std::vector<std::int32_t> classes(labels.begin(), labels.end());
  const auto rows = static_cast<pdnn::Index>(classes.size());
  if (images.size() != 784 * classes.size()) throw std::runtime_error("expected a 28 x 28 image for each label");

  // Views: the images stay bytes, scaled as a batch is gathered.
  const pdnn::Dataset data{.x = {images.data(), rows, {1, 28, 28}, 1.0 / 255}, .y = {classes.data(), rows}};
  const pdnn::Sequential<float> model(network(argument(3, "mlp")), {.seed = 7});
  pdnn::Trainer<float> trainer(model, pdnn::CrossEntropyLoss(), pdnn::SGD({.lr = 0.1, .momentum = 0.9}),
                               {.strategy = argument(4, "serial"), .seed = 7});
  trainer.fit(data, {.epochs = 2, .batch_size = 64, .progress = [](const pdnn::Progress& progress) {
                       if (progress.finished)
                         std::cout << "epoch " << progress.epoch << ": loss " << progress.training.loss << "\n";
                       return true;  // go on
                     }});
  const pdnn::Scores scores = trainer.evaluate(data);
  std::cout << "accuracy " << scores.accuracy.value_or(0) << ", fingerprint " << model.fingerprint() << "\n";

  const std::string path = argument(5, "model.safetensors");
  model.save(path);
  const bool same = pdnn::Sequential<float>::load(path).predict(data.x) == model.predict(data.x);
  std::cout << path << (same ? " predicts the same\n" : " predicts something else\n");
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words, words + count);
  try {
    if (count < 3) throw std::invalid_argument("usage: train IMAGES LABELS [mlp|cnn] [STRATEGY] [MODEL]");
    train(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
