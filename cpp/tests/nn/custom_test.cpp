// Layers of extensions: passes, sums by leaves, errors and what is refused.
#include "pdnn/nn/layers/custom.hpp"

#include <boost/test/unit_test.hpp>

#include "layer_check.hpp"
#include "pdnn/threads/team.hpp"

using namespace pdnn;
using tests::LayerRun;

BOOST_AUTO_TEST_SUITE(nn_custom)

namespace {

/// y = weight ∘ x²; x² is saved.
class Squares : public custom::Layer<double> {
 public:
  explicit Squares(Index width) : width_(width) {}
  std::vector<custom::Parameter> parameters() const override { return {{"weight", {width_}}}; }
  std::vector<Index> output_shape(const std::vector<Index>& in) const override {
    if (in != std::vector{width_}) throw std::invalid_argument("of another width");
    return in;
  }
  Index saved(const std::vector<Index>& in) const override { return in[0]; }
  void initialize(std::uint64_t seed, double* params) const override { params[0] = static_cast<double>(seed % 100); }
  void forward(const custom::Pass& pass, const double* params, custom::Batch<const double> x, custom::Batch<double> y,
               double* saved) const override {
    const auto [begin, rows] = pass.share(x.rows);
    for (Index i = begin * width_; i < (begin + rows) * width_; ++i) {
      saved[i] = x.data[i] * x.data[i];
      y.data[i] = params[i % width_] * saved[i];
    }
  }
  void backward(const custom::Pass& pass, const double* params, custom::Batch<const double> x,
                custom::Batch<const double> y, custom::Batch<const double> dy, const double* saved,
                custom::Batch<double> dx, double* grads) const override {
    if (y.data[0] > 1e6) throw std::runtime_error("too large");
    pass.barrier();
    const auto [begin, columns] = pass.share(width_);
    for (Index r = 0; r < x.rows; ++r)
      for (Index c = begin; c < begin + columns; ++c) {
        const Index i = r * width_ + c;
        if (dx.data) dx.data[i] = 2 * params[c] * x.data[i] * dy.data[i];
        grads[c] += dy.data[i] * saved[i];
      }
  }

 private:
  Index width_;
};

/// Has parameters, and does not say which samples fit.
class Unsaid : public custom::Layer<double> {
 public:
  std::vector<custom::Parameter> parameters() const override { return {{"weight", {5}}}; }
  void forward(const custom::Pass&, const double*, custom::Batch<const double>, custom::Batch<double>,
               double*) const override {}
  void backward(const custom::Pass&, const double*, custom::Batch<const double>, custom::Batch<const double>,
                custom::Batch<const double>, const double*, custom::Batch<double>, double*) const override {}
};

custom::abi::Layer* squares() { return custom::abi::wrap<double>(std::make_unique<Squares>(5)); }
nn::LayerPtr<double> layer() { return std::make_shared<nn::Custom<double>>("Squares", squares()); }

struct Says {
  std::string words;
  bool operator()(const std::exception& error) const {
    return std::string(error.what()).find(words) != std::string::npos;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(its_passes_are_a_layer_s) {
  for (const Index rows : {1, 2, 7}) {
    LayerRun alone(layer(), {5}, rows);
    BOOST_TEST(alone.gradient_error() <= 1e-7);
    const tests::Vector once = alone.grads;
    alone.forward();
    alone.backward({}, true, false);
    for (std::size_t i = 0; i < once.size(); ++i) BOOST_TEST(alone.grads[i] == 2 * once[i]);
    LayerRun shared(layer(), {5}, rows);
    threads::Team(3).run([&](const nn::Member& member) {
      shared.forward(member);
      shared.backward(member);
    });
    BOOST_TEST(shared.grads == once, boost::test_tools::per_element());
    BOOST_TEST(shared.dx == alone.dx, boost::test_tools::per_element());
  }
  LayerRun none(layer(), {5}, 0);
  none.grads.assign(5, 1);
  none.forward();
  none.backward();
  BOOST_TEST(none.grads == tests::Vector(5));
}

// Each of two halves of the leaves by itself, and both together, on teams of 1 and 2.
BOOST_AUTO_TEST_CASE(its_sums_are_those_of_the_leaves_tree) {
  constexpr Index kRows = 11, kLeaves = 5;
  LayerRun run(layer(), {5}, kRows);
  run.forward();
  const auto sums = [&](Range leaves, int members, bool add) {
    const LeafNodes nodes(Leaves{kLeaves, kRows, leaves});
    const Range rows = nodes.leaves().rows();
    tests::Vector grads(5, add ? 1.0 : 9.0), more((nodes.nodes().size() - 1) * 5, add ? 1.0 : 9.0);
    const nn::Sizes sizes = layer()->sizes({5});
    tests::Vector room(static_cast<std::size_t>(sizes.leaf_room(kLeaves))), dx(run.x.size());
    nn::Vars<double> vars = run.vars();
    vars.leaf_room = room;
    vars.more_nodes = more;
    vars.saved = slice(vars.saved, rows.begin * 5, rows.size() * 5);
    threads::Team(members).run([&](const nn::Member& member) {
      nn::Pass pass{.team = &member, .add = add};
      pass.leaves = &nodes;
      layer()->backward(pass, vars, Tensor<const double>{run.x.data(), kRows, {5}}.rows(rows),
                        Tensor<const double>{run.y.data(), kRows, {5}}.rows(rows),
                        Tensor<const double>{run.dy.data(), kRows, {5}}.rows(rows),
                        Tensor<double>{dx.data(), kRows, {5}}.rows(rows), grads);
    });
    grads.insert(grads.end(), more.begin(), more.end());
    return grads;
  };
  const auto leaf = [&](Index number, std::size_t column) {
    const Range rows = Leaves{kLeaves, kRows}.rows(number);
    double sum = 0;
    for (Index r = rows.begin; r < rows.end; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * 5 + column;
      sum += run.dy[at] * (run.x[at] * run.x[at]);
    }
    return sum;
  };
  for (const int members : {1, 2}) {
    const tests::Vector whole = sums({0, kLeaves}, members, false), left = sums({0, 4}, members, false),
                        parts = sums({1, 4}, members, false), added = sums({1, 4}, members, true);
    for (std::size_t c = 0; c < 5; ++c) {
      const double first = (leaf(0, c) + leaf(1, c)) + (leaf(2, c) + leaf(3, c));
      BOOST_TEST(left[c] == first);
      BOOST_TEST(whole[c] == first + leaf(4, c));
      BOOST_TEST(parts[c] == leaf(1, c));
      BOOST_TEST(parts[5 + c] == leaf(2, c) + leaf(3, c));
      BOOST_TEST(added[c] == 1 + leaf(1, c));
      BOOST_TEST(added[5 + c] == 1 + (leaf(2, c) + leaf(3, c)));
    }
  }
}

BOOST_AUTO_TEST_CASE(its_errors_are_the_core_s) {
  BOOST_CHECK_EXCEPTION(layer()->output_shape({4}), ValueError, Says{"Squares: of another width"});
  const nn::Custom<double> unsaid("Unsaid", custom::abi::wrap<double>(std::make_unique<Unsaid>()));
  BOOST_CHECK_EXCEPTION(unsaid.output_shape({5}), ValueError, Says{"Unsaid: has an array of parameters, weight"});
  LayerRun run(layer(), {5}, 3);
  run.y[0] = 1e9;
  BOOST_CHECK_EXCEPTION(run.backward(), std::runtime_error, Says{"Squares: too large"});
  BOOST_CHECK_THROW(threads::Team(2).run([&](const nn::Member& member) { run.backward(member); }), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(initial_values_are_a_function_of_the_key) {
  tests::Vector params(5, 7);
  layer()->initialize(Rng(123), params, {});
  BOOST_TEST(params == tests::Vector({23, 0, 0, 0, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(another_version_or_type_is_refused_and_left_alone) {
  custom::abi::Layer* const other = squares();
  BOOST_CHECK_EXCEPTION(nn::Custom<float>("Squares", other), ValueError, Says{"whose numbers have 8 bytes"});
  other->version = custom::abi::kVersion + 1;
  BOOST_CHECK_EXCEPTION(nn::Custom<double>("Squares", other), ValueError, Says{"was built for version 2"});
  other->destroy(other);
}

BOOST_AUTO_TEST_SUITE_END()
