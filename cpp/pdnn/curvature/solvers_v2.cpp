// The plain generic build.
#define Eigen Eigen_v2
#include "pdnn/curvature/impl/solvers.hpp"

const pdnn::curvature::Solvers* pdnn::curvature::solvers_v2() { return &kSolvers; }
