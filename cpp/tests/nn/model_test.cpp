// Models: a clone has all that its original has, in memory of its own.
#include "pdnn/nn/model.hpp"

#include <boost/test/unit_test.hpp>

#include "pdnn/nn/layers/batch_norm.hpp"
#include "pdnn/nn/layers/linear.hpp"

using namespace pdnn;
using namespace pdnn::nn;

BOOST_AUTO_TEST_SUITE(nn_model)

BOOST_AUTO_TEST_CASE(a_clone_is_equal_and_apart) {
  const Model<double> model(
      std::make_shared<Network<double>>(std::vector<LayerPtr<double>>{
          std::make_shared<Linear<double>>(3, 2, true, Init{Init::Kind::uniform, 0.5}, Init{}),
          std::make_shared<BatchNorm<double>>(BatchNorm<double>::Options{.channels = 2, .images = false})}),
      3);
  model.grads->data()[1] = 4;
  model.buffers->data()[1] = 5;  // what training may have learned
  const std::unique_ptr<Model<double>> clone = model.clone();
  for (const auto& array : {&Model<double>::params, &Model<double>::grads, &Model<double>::buffers}) {
    const std::span<const double> one = ((*clone).*array)->span(), other = (model.*array)->span();
    BOOST_TEST(one == other, boost::test_tools::per_element());
    BOOST_TEST(one.data() != other.data());
  }
}

BOOST_AUTO_TEST_SUITE_END()
