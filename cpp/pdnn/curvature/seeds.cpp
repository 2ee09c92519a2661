#include "pdnn/curvature/seeds.hpp"

#include <cmath>
#include <numeric>

#include "pdnn/core/errors.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/nn/losses/elementwise.hpp"

namespace pdnn::curvature {

namespace {

constexpr double kLeastProbability = 1e-12;  // in the curvature: r divides by its root

}  // namespace

Seeds::Seeds(const Loss<double>& loss, Kind kind, Index outputs) : loss_(loss), outputs_(outputs) {
  if (kind == Kind::fisher) return;
  if (dynamic_cast<const nn::MSELoss<double>*>(&loss)) {
    form_ = Form::squares;
    second_ = loss.reduction() == nn::Reduction::mean ? 2 / static_cast<double>(outputs) : 2;
    return;
  }
  require(dynamic_cast<const nn::CrossEntropyLoss<double>*>(&loss) != nullptr, loss.name(),
          " has no Gauss-Newton matrix here; MSELoss and CrossEntropyLoss have one, and optim.NaturalGradient and "
          "optim.LBFGS take every loss");
  require(!loss.weighs_classes(),
          "CrossEntropyLoss: its Gauss-Newton matrix takes no weights of classes; give each row the weight of its "
          "class, by Dataset(weight=) or step(weight=)");
  form_ = Form::softmax;
}

void Seeds::write(Range rows, const Tensor<const double>& y, const Tensor<const double>& dy,
                  const Target<double>& target, double scale, double* seeds, double* r) const {
  for (Index i = rows.begin; i < rows.end; ++i) {
    double *const own_seeds = seeds + i * count() * outputs_, *const own_r = r + i * count();
    const double weight = scale * loss_.factor(target, i);
    std::fill_n(own_seeds, count() * outputs_, 0.0);
    std::fill_n(own_r, count(), 0.0);
    if (!(weight > 0)) continue;
    if (form_ == Form::softmax && target.values.data) {
      const double* const wanted = target.values.row(i);
      const double sum = std::reduce(wanted, wanted + outputs_);
      require(std::abs(sum - 1) <= 1e-5, "CrossEntropyLoss: the targets of row ", i, " of the batch add up to ", sum,
              ", and only those that add up to 1 have a Gauss-Newton matrix here; divide them by that sum, and make it "
              "the row's weight");
    }
    write_row(weight, y.row(i), dy.row(i), own_seeds, own_r);
  }
}

void Seeds::write_row(double weight, const double* y, const double* dy, double* seeds, double* r) const {
  switch (form_) {
    case Form::gradients:  // s = √w l', r = √w
      r[0] = std::sqrt(weight);
      for (Index j = 0; j < outputs_; ++j) seeds[j] = dy[j] / r[0];
      return;
    case Form::squares: {  // s_k = √(w l'') e_k, r_k = dy_k / √(w l'')
      const double root = std::sqrt(weight * second_);
      for (Index k = 0; k < outputs_; ++k) {
        seeds[k * outputs_ + k] = root;
        r[k] = dy[k] / root;
      }
      return;
    }
    case Form::softmax:
      return write_softmax(weight, y, dy, seeds, r);
  }
}

/// H = diag p − p pᵀ = Σ_k s_k s_kᵀ with s_k = √p_k (e_k − p). As Σ dy = 0, r_k = dy_k / √p_k.
void Seeds::write_softmax(double weight, const double* y, const double* dy, double* seeds, double* r) const {
  const double largest = *std::max_element(y, y + outputs_), root = std::sqrt(weight);
  double sum = 0;
  for (Index k = 0; k < outputs_; ++k) sum += std::exp(y[k] - largest);
  const double whole = 1 + kLeastProbability * static_cast<double>(outputs_);
  const auto p = [&](Index k) { return (std::exp(y[k] - largest) / sum + kLeastProbability) / whole; };
  for (Index k = 0; k < outputs_; ++k) {
    const double root_p = std::sqrt(p(k));
    for (Index j = 0; j < outputs_; ++j) seeds[k * outputs_ + j] = -root * root_p * p(j);
    seeds[k * outputs_ + k] += root * root_p;
    r[k] = dy[k] / (root * root_p);
  }
}

}  // namespace pdnn::curvature
