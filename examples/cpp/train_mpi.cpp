/// Learns which quadrants points lie in, on the ranks of MPI:
///   mpiexec -n 2 train_mpi [STRATEGY]
/// With "serial/8" on one rank and "ddp/8" on any number, the model has the same bits.
#include <iostream>
#include <pdnn/mpi.hpp>

namespace {

void train(const pdnn::Ranks& ranks, const std::string& strategy) {
  constexpr pdnn::Index kSide = 20, kRows = kSide * kSide;
  std::vector<float> points;
  std::vector<std::int32_t> classes;
  for (pdnn::Index row = 0; row < kRows; ++row) {
    const float x = static_cast<float>(row % kSide) / 10 - 0.95F;
    const float y = static_cast<float>(row / kSide) / 10 - 0.95F;  // NOLINT: the row of a grid
    points.insert(points.end(), {x, y});
    classes.push_back(x * y > 0 ? 1 : 0);
  }
  const pdnn::Dataset data{.x = {points.data(), kRows, {2}}, .y = {classes.data(), kRows}};

  const pdnn::Sequential<float> model({pdnn::Linear(2, 16), pdnn::Tanh(), pdnn::Linear(16, 2)}, {.seed = 7});
  pdnn::Trainer<float> trainer(model, pdnn::CrossEntropyLoss(), pdnn::Adam({.lr = 0.02}),
                               {.strategy = strategy, .seed = 7, .ranks = ranks});
  trainer.fit(data, {.epochs = 30, .batch_size = 20});
  const pdnn::Scores scores = trainer.evaluate(data);
  if (ranks.rank() == 0)
    std::cout << ranks.size() << " ranks: accuracy " << scores.accuracy.value_or(0) << ", fingerprint "
              << model.fingerprint() << "\n";
}

}  // namespace

int main(int count, char** words) {
  int level = 0;
  MPI_Init_thread(&count, &words, MPI_THREAD_SERIALIZED, &level);
  try {
    train(pdnn::mpi_ranks(), count > 1 ? words[1] : "ddp");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);  // the other ranks would wait for this one
  }
  MPI_Finalize();
}
