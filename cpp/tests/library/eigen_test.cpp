/// Eigen's matrices in and out: addresses, and what Eigen computes itself.
#include <boost/test/unit_test.hpp>

#include "support.hpp"

using namespace pdnn;
using pdnn::tests::Task;

BOOST_AUTO_TEST_SUITE(library_eigen)

BOOST_AUTO_TEST_CASE(matrices_are_read_in_place) {
  const Task task;
  BOOST_TEST(samples(task.x).data == task.x.data());
  BOOST_TEST(targets(task.classes).data == task.classes.data());
  BOOST_TEST(targets(task.classes).width == 0);
  const Samples part = samples(task.x.block(10, 2, 20, 4));
  BOOST_TEST(part.data == &task.x(10, 2));
  BOOST_TEST(part.stride == 8);
  const Eigen::MatrixXf columns = task.x.transpose();  // a sample a column
  const Samples turned = samples(columns.transpose());
  BOOST_TEST(turned.data == columns.data());
  BOOST_TEST(turned.rows == 64);
  const auto network = tests::small_network();
  BOOST_TEST((predict(network, turned) == predict(network, samples(task.x))));
}

BOOST_AUTO_TEST_CASE(parameters_are_views_of_what_computes) {
  const Task task;
  auto network = tests::small_network();
  const std::vector<Array<float>> arrays = network.parameters();
  BOOST_REQUIRE(arrays.size() == 4);
  Eigen::Map<RowMatrix<float>> w = matrix(arrays[0]), b = matrix(arrays[1]), v = matrix(arrays[2]),
                               c = matrix(arrays[3]);
  BOOST_TEST(w.data() == arrays[0].data);
  BOOST_TEST((w.rows() == 8 && w.cols() == 12 && b.rows() == 1 && b.cols() == 12));
  w *= 0.5F;
  c.setConstant(2);
  const RowMatrix<float> hidden = ((task.x * w).rowwise() + b.row(0)).array().tanh();
  const RowMatrix<float> expected = (hidden * v).rowwise() + c.row(0);
  BOOST_TEST((predict(network, samples(task.x)) - expected).cwiseAbs().maxCoeff() < 1e-5F);
  BOOST_TEST(network.parameters()[0].data == w.data());
}

BOOST_AUTO_TEST_CASE(a_training_writes_into_the_views) {
  const Task task;
  auto network = tests::small_network();
  const Eigen::Map<RowMatrix<float>> w = matrix(network.parameters()[0]);
  const RowMatrix<float> before = w;
  Trainer<float> trainer(network, CrossEntropyLoss(), SGD({.lr = 0.5}));
  const double first = trainer.evaluate(task.data()).loss;
  trainer.fit(task.data(), {.epochs = 20, .batch_size = 16});
  BOOST_TEST(trainer.evaluate(task.data()).loss < first / 2);
  BOOST_TEST((before - w).norm() > 0.1F);
  BOOST_TEST(network.parameters()[0].data == w.data());
  BOOST_TEST((predict(trainer, samples(task.x)) == predict(network, samples(task.x))));
}

BOOST_AUTO_TEST_CASE(a_shape_has_all_elements_of_a_row) {
  const Task task;
  BOOST_TEST((samples(task.x, {2, 4}).sample == std::vector<Index>{2, 4}));
  for (const std::vector<Index>& shape : {std::vector<Index>{7}, std::vector<Index>{3, 3}})
    BOOST_CHECK_THROW((void)samples(task.x, shape), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(values_are_targets) {
  const Task task;
  const RowMatrix<float> y = task.x * Eigen::MatrixXf::Constant(8, 3, 0.5F);
  Sequential<float> network({Linear(8, 3)});
  Trainer<float> trainer(network, MSELoss(), SGD({.lr = 0.5}));
  const Dataset data{.x = samples(task.x), .y = targets(y)};
  BOOST_TEST(data.y.data == y.data());
  trainer.fit(data, {.epochs = 60, .batch_size = 8});
  BOOST_TEST(trainer.evaluate(data).loss < 1e-4);
  BOOST_TEST(!trainer.evaluate(data).accuracy.has_value());
}

BOOST_AUTO_TEST_SUITE_END()
