#include "pdnn/curvature/quadratic_model.hpp"

#include <cmath>

#include "pdnn/curvature/solvers.hpp"

namespace pdnn::curvature {

namespace {

void resize(AlignedArray<double>& array, Index size) {
  if (array.size() == size)
    std::ranges::fill(array.span(), 0.0);
  else
    array = AlignedArray<double>(size);
}

}  // namespace

QuadraticModel::QuadraticModel(std::shared_ptr<const nn::Model<double>> model, std::shared_ptr<const Loss<double>> loss,
                               const Shape& sample, const std::vector<bool>& trained, Kind kind, int threads,
                               comm::Communicator* ranks)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      network_(model_->bound(sample)),
      jacobian_(model_->network(), sample, trained),
      seeds_(*loss_, kind, jacobian_.outputs()),
      ranks_(ranks),
      team_(threads),
      gradient_(jacobian_.parameters()),
      trained_(jacobian_.parameters()) {
  double* at = trained_.data();
  std::size_t array = 0;
  for (const nn::Parameter& parameter : model_->parameters())
    at = std::fill_n(at, parameter.count(), trained.at(array++) ? 1.0 : 0.0);
}

void QuadraticModel::take(const data::Source<double>& source, std::span<const Index> rows) {
  const Index samples = std::ssize(rows);
  if (!workspace_ || workspace_->capacity() < samples)
    workspace_ = std::make_unique<nn::Workspace<double>>(*network_, source.sample(), samples);
  team_.run([&](const Member& member) {
    const data::Batch<double> batch = source.gather(member, rows, *workspace_);
    if (member.first()) batch_ = batch;
  });
  weight_ = source.weight(*loss_, rows);
}

nn::LossValue QuadraticModel::loss() {
  nn::LossValue sums;
  const Tensor<double> y = workspace_->y(batch_.x.batch);
  team_.run([&](const Member& member) {
    network_->forward({.team = &member, .training = false}, model_->vars(*workspace_), batch_.x, y);
    const nn::LossValue all = (*loss_)(member, y, batch_.target, 1, {nullptr, y.batch, y.sample}, workspace_->rows());
    if (member.first()) sums = all;
  });
  return sums;
}

void QuadraticModel::linearize() {
  const Index samples = batch_.x.batch;
  jacobian_.resize(samples, seeds_.count());
  resize(r_, jacobian_.rows());
  resize(gradient_, parameters());
  has_normal_ = has_kernel_ = has_diagonal_ = false;
  const double scale = loss_->scale(weight_);
  const std::span<const double> params = model_->params->span();
  const Tensor<double> y = workspace_->y(samples), dy = workspace_->dy(samples);
  team_.run([&](const Member& member) {
    jacobian_.forward(member, params, batch_.x, y);
    member.barrier();
    (*loss_)(member, y, batch_.target, scale, dy, workspace_->rows());
    seeds_.write(member.range(samples), y, dy, batch_.target, scale, jacobian_.seeds(), r_.data());
    jacobian_.backward(member, params);
    member.barrier();
    jacobian_.transposed_times({}, member, r_.span(), gradient_.span());
  });
}

void QuadraticModel::add_up(std::span<double> parts) {
  const comm::Labeled labeled({.what = "curvature"});
  if (ranks_ && ranks_->size() > 1) ranks_->all_reduce(parts, parts);
}

const AlignedArray<double>& QuadraticModel::normal() {
  if (has_normal_) return normal_;
  resize(normal_, Triangle(parameters()).elements());
  team_.run([&](const Member& member) { jacobian_.add_normal_matrix(rank(), member, normal_.span()); });
  add_up(normal_.span());
  has_normal_ = true;
  return normal_;
}

const AlignedArray<double>& QuadraticModel::kernel() {
  if (has_kernel_) return kernel_;
  resize(kernel_, Triangle(rows()).elements());
  team_.run([&](const Member& member) { jacobian_.add_kernel_matrix(rank(), member, kernel_.span()); });
  add_up(kernel_.span());
  has_kernel_ = true;
  return kernel_;
}

std::span<const double> QuadraticModel::diagonal() {
  if (!has_diagonal_) {
    resize(diagonal_, parameters());
    team_.run([&](const Member& member) { jacobian_.add_squares({}, member, diagonal_.span()); });
    has_diagonal_ = true;
  }
  return diagonal_.span();
}

void QuadraticModel::matrix(std::span<double> out) {
  const AlignedArray<double> zeros(parameters());
  std::ranges::fill(out, 0.0);
  Triangle(parameters()).unpack(normal().data(), zeros.data(), out.data());
}

bool QuadraticModel::solve(Index size, const AlignedArray<double>& triangle, const double* diag, double* x) {
  resize(square_, size * size);
  for (const auto& by : {solvers().solve_llt, solvers().solve_ldlt}) {
    Triangle(size).unpack(triangle.data(), diag, square_.data());
    if (by(size, square_.data(), x)) return true;
  }
  return false;
}

bool QuadraticModel::solve_normal(std::span<const double> diag, std::span<double> x) {
  return solve(parameters(), normal(), diag.data(), x.data());
}

bool QuadraticModel::solve_kernel(double damping, std::span<double> x) {
  AlignedArray<double> u = r_.copy(), diag(rows());
  std::ranges::fill(diag.span(), damping);
  if (!solve(rows(), kernel(), diag.data(), u.data())) return false;
  std::ranges::fill(x, 0.0);
  team_.run([&](const Member& member) { jacobian_.transposed_times({}, member, u.span(), x); });
  return true;
}

void QuadraticModel::multiply(std::span<const double> diag, const double* v, std::span<double> out) {
  AlignedArray<double> masked(parameters()), u(rows());
  for (Index j = 0; j < parameters(); ++j) masked[j] = trained_[j] * v[j];
  team_.run([&](const Member& member) { jacobian_.times(rank(), member, masked.span(), u.span()); });
  add_up(u.span());
  std::ranges::fill(out, 0.0);
  team_.run([&](const Member& member) { jacobian_.transposed_times(rank(), member, u.span(), out); });
  add_up(out);
  for (std::size_t j = 0; j < diag.size(); ++j) out[j] += diag[j] * v[j];
}

Index QuadraticModel::solve_cg(std::span<const double> diag, double tolerance, Index most, std::span<double> x) {
  // D⁻¹ (B + diag) D⁻¹ (D x) = D⁻¹ b, whose diagonal is 1
  AlignedArray<double> inverse(parameters()), right(parameters()), scaled(parameters()), multiplied(parameters());
  const std::span<const double> squares = diagonal();
  for (std::size_t j = 0; j < diag.size(); ++j) {
    const auto at = static_cast<Index>(j);
    inverse[at] = 1 / std::sqrt(squares[j] + diag[j]);
    right[at] = inverse[at] * x[j];
  }
  auto product = [&](const double* v, double* out) {
    for (Index j = 0; j < parameters(); ++j) scaled[j] = inverse[j] * v[j];
    multiply(diag, scaled.data(), multiplied.span());
    for (Index j = 0; j < parameters(); ++j) out[j] = inverse[j] * multiplied[j];
  };
  const Multiply call = [](void* context, const double* v, double* out) {
    (*static_cast<decltype(product)*>(context))(v, out);
  };
  const Index made = solvers().solve_cg(parameters(), call, &product, right.data(), tolerance, most, x.data());
  for (Index j = 0; j < parameters(); ++j) x[static_cast<std::size_t>(j)] *= inverse[j];
  return made;
}

}  // namespace pdnn::curvature
