#include "pdnn/kernels/table.hpp"

#include <chrono>

namespace pdnn::kernels {

const Tables& tables(Isa isa) {
  switch (isa) {
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
    default:
      return *tables_v2();
  }
}

template <class T>
double measure_peak(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double operations = 0, passed = 0;
  do {
    operations += table<T>().work_at_peak(2000);
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (passed < seconds);
  return operations / passed;
}

template double measure_peak<float>(double);
template double measure_peak<double>(double);

}  // namespace pdnn::kernels
