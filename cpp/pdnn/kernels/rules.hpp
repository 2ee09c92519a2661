#pragma once
/// The optimizers' rules as data. A rule is an optimizer's numbers; `at(lr, decay)`, or `at(step, lr, decay)` where
/// they change from step to step, are those of one step for parameters of one learning rate and weight decay, which
/// kernels apply. w are parameters, g their gradients; what a rule remembers of each parameter is its state.
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <variant>

namespace pdnn::kernels {

inline constexpr int kMostStates = 3;
/// Which arrays of state a rule keeps.
using States = std::array<bool, kMostStates>;

/// A number of a rule under the name that Python gives it.
template <class Rule, class Number>
struct Field {
  const char* name;
  Number Rule::* number;
};

/// d = g + l2 w; v = momentum v + d; w −= lr (nesterov ? d + momentum v : v). State: v, where momentum is not 0.
struct Sgd {
  static constexpr const char* kName = "SGD";
  double momentum = 0;
  bool nesterov = false;

  struct Step {
    double lr, momentum, l2;
    bool nesterov;
  };
  Step at(double lr, double decay) const { return {lr, momentum, decay, nesterov}; }
  States keeps() const { return {momentum != 0}; }
  std::string_view name() const { return kName; }
  static constexpr auto fields() {
    return std::tuple(Field{"momentum", &Sgd::momentum}, Field{"nesterov", &Sgd::nesterov});
  }
};

/// d = g + l2 w; m += (1 − beta1) (d − m); v = beta2 v + (1 − beta2) d²; w = shrink w − rate m / (√v / root + eps).
/// State: m, v. At step t, rate = lr / (1 − beta1ᵗ) and root = √(1 − beta2ᵗ). Kingma and Ba, ICLR 2015, algorithm 1;
/// decoupled weight decay λ is shrink = 1 − lr λ: Loshchilov and Hutter, ICLR 2019, algorithm 2.
struct Adam {
  static constexpr const char* kName = "Adam";
  double beta1, beta2, eps;
  bool decoupled;

  struct Step {
    double rate, root, beta1, beta2, eps, l2, shrink;
  };
  Step at(std::int64_t step, double lr, double decay) const {
    const double t = static_cast<double>(step);
    return {.rate = lr / (1 - std::pow(beta1, t)),
            .root = std::sqrt(1 - std::pow(beta2, t)),
            .beta1 = beta1,
            .beta2 = beta2,
            .eps = eps,
            .l2 = decoupled ? 0 : decay,
            .shrink = decoupled ? 1 - lr * decay : 1};
  }
  States keeps() const { return {true, true}; }
  std::string_view name() const { return decoupled ? "AdamW" : kName; }
  static constexpr auto fields() {
    return std::tuple(Field{"beta1", &Adam::beta1}, Field{"beta2", &Adam::beta2}, Field{"eps", &Adam::eps},
                      Field{"decoupled", &Adam::decoupled});
  }
};

/// d = g + l2 w; v = alpha v + (1 − alpha) d²; u = v, or if centered m += (1 − alpha) (d − m) and u = v − m²;
/// b = momentum b + d / (√u + eps); w −= lr b. State: v, b where momentum is not 0, m where centered. Tieleman and
/// Hinton, Coursera lecture 6.5 (2012); centered: Graves, arXiv:1308.0850, eq. 38 – 41.
struct RmsProp {
  static constexpr const char* kName = "RMSprop";
  double alpha, eps, momentum;
  bool centered;

  struct Step {
    double lr, alpha, eps, momentum, l2;
    bool centered;
  };
  Step at(double lr, double decay) const { return {lr, alpha, eps, momentum, decay, centered}; }
  States keeps() const { return {true, momentum != 0, centered}; }
  std::string_view name() const { return kName; }
  static constexpr auto fields() {
    return std::tuple(Field{"alpha", &RmsProp::alpha}, Field{"eps", &RmsProp::eps},
                      Field{"momentum", &RmsProp::momentum}, Field{"centered", &RmsProp::centered});
  }
};

/// w = shrink w − lr sign(beta1 m + (1 − beta1) g); m = beta2 m + (1 − beta2) g. State: m. shrink = 1 − lr λ. Chen et
/// al., arXiv:2302.06675, algorithm 2.
struct Lion {
  static constexpr const char* kName = "Lion";
  double beta1, beta2;

  struct Step {
    double lr, beta1, beta2, shrink;
  };
  Step at(double lr, double decay) const { return {lr, beta1, beta2, 1 - lr * decay}; }
  States keeps() const { return {true}; }
  std::string_view name() const { return kName; }
  static constexpr auto fields() { return std::tuple(Field{"beta1", &Lion::beta1}, Field{"beta2", &Lion::beta2}); }
};

using Rule = std::variant<Sgd, Adam, RmsProp, Lion>;

/// A rule whose numbers change from step to step.
template <class R>
concept ByStep = requires(const R& rule) { rule.at(std::int64_t{}, double{}, double{}); };

/// A step of one of them. Not a variant: kernels call no function that is compiled elsewhere.
struct RuleStep {
  enum class Kind { sgd, adam, rmsprop, lion } kind;
  union {
    Sgd::Step sgd;
    Adam::Step adam;
    RmsProp::Step rmsprop;
    Lion::Step lion;
  };
  RuleStep(const Sgd::Step& step) : kind(Kind::sgd), sgd(step) {}
  RuleStep(const Adam::Step& step) : kind(Kind::adam), adam(step) {}
  RuleStep(const RmsProp::Step& step) : kind(Kind::rmsprop), rmsprop(step) {}
  RuleStep(const Lion::Step& step) : kind(Kind::lion), lion(step) {}
};

}  // namespace pdnn::kernels
