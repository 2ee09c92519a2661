#include "pdnn/kernels/table.hpp"

#include <chrono>
#include <vector>

namespace pdnn::kernels {

const Tables& tables(Isa isa) {
  switch (isa) {
#if defined(PDNN_WITH_V4) && defined(PDNN_WITH_V4_BF16) && defined(PDNN_WITH_V4_AMX)
    case Isa::v4_amx: {
      static const Tables all{tables_v4()->floats,
                              tables_v4()->doubles,
                              {*bfloat16_v4_amx(), tables_v4()->bfloat16, tables_v4()->bfloat16, {}}};
      return all;
    }
#endif
#if defined(PDNN_WITH_V4) && defined(PDNN_WITH_V4_BF16)
    case Isa::v4_bf16: {
      static const Tables all{tables_v4()->floats, tables_v4()->doubles, *bfloat16_v4_bf16()};
      return all;
    }
#endif
#ifdef PDNN_WITH_V4
    case Isa::v4:
      return *tables_v4();
#endif
#ifdef PDNN_WITH_V3
    case Isa::v3:
      return *tables_v3();
#endif
#if defined(PDNN_WITH_NEON) && defined(PDNN_WITH_NEON_BF16)
    case Isa::neon_bf16: {
      static const Tables all{tables_neon()->floats, tables_neon()->doubles, *bfloat16_neon_bf16()};
      return all;
    }
#endif
#ifdef PDNN_WITH_NEON
    case Isa::neon:
      return *tables_neon();
#endif
    default:
      return *tables_v2();
  }
}

namespace {

/// Operations a second of work(), which returns how many it was.
template <class Work>
double measure_rate(double seconds, Work work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double operations = 0, passed = 0;
  do {
    operations += work();
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (passed < seconds);
  return operations / passed;
}

}  // namespace

template <class T>
double measure_peak(double seconds) {
  return measure_rate(seconds, [] { return table<T>().work_at_peak(2000); });
}

double measure_bfloat16(Isa isa, double seconds) {
  constexpr Index batch = 64, width = 256;
  const std::vector<float> x(batch * width, 1), w(width * width, 1);
  std::vector<float> y(batch * width);
  return measure_rate(seconds, [&] {
    tables(isa).bfloat16.product_nn({}, {x.data(), batch, width}, {w.data(), width, width}, nullptr,
                                    Activation::identity, {y.data(), batch, width});
    return 2.0 * batch * width * width;
  });
}

template double measure_peak<float>(double);
template double measure_peak<double>(double);

}  // namespace pdnn::kernels
