// Codecs' kernels: halves against the compiler's own, the same bytes and values on every instruction set, at every
// remainder, between forbidden pages.
#include "pdnn/kernels/coding.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
using Bytes = std::vector<std::uint8_t>;
constexpr Index kMost = 2100;

/// Numbers over many magnitudes, and all that is special.
template <class T>
std::vector<T> wild(Index count) {
  constexpr T inf = std::numeric_limits<T>::infinity();
  const T special[] = {0,     T(-0.0), inf,     -inf,           std::numeric_limits<T>::quiet_NaN(),
                       65504, 65519,   65520,   T(3.4e38),      T(-3.39e38),
                       1,     -1,      T(1e-7), T(2.98023e-08), std::numeric_limits<T>::denorm_min()};
  std::vector<T> values = numbers<T>(count, 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= static_cast<T>(std::exp2(static_cast<double>(i % 61) - 30));
    if (i % 7 == 3) values[i] = special[i / 7 % std::size(special)];
  }
  return values;
}

/// Runs encode(table, n, x, bytes) and decode(table, n, bytes, into, x) for all sizes on all instruction sets, between
/// forbidden pages, and compares bits with the first one's.
template <class T, class Encode, class Decode>
void check_agreement(const std::vector<T>& all, Index byte_count(Index n), Encode encode, Decode decode) {
  static Guarded<T> memory(kMost);
  static Guarded<std::uint8_t> room(kMost * 16);
  for (Index n = 0; n < kMost; n = n < 70 ? n + 1 : n * 3 / 2) {
    Bytes bytes;
    std::vector<std::vector<T>> values;
    bool first = true;
    for_each_isa<T>([&](const Table<T>& table) {
      T* const x = memory.at_end(n);
      std::uint8_t* const to = room.at_end(byte_count(n));
      std::copy_n(all.data(), n, x);
      encode(table, n, x, to);
      BOOST_TEST((first || same_bits(bytes.data(), to, byte_count(n))), "bytes of " << n << " values");
      bytes.assign(to, to + byte_count(n));
      std::size_t way = 0;
      for (const Into into : {Into::store, Into::add, Into::subtract}) {
        fill(x, n, 17);
        decode(table, n, to, into, x);
        if (first) values.emplace_back(x, x + n);
        // NaN of any sign and payload are the same.
        for (Index i = 0; i < n; ++i) {
          const T want = values[way][static_cast<std::size_t>(i)];
          if (!(same_bits(x + i, &want, 1) || (std::isnan(want) && std::isnan(x[i]))))
            BOOST_ERROR("value " << i << " of " << n << ": " << x[i] << ", expected " << want);
        }
        ++way;
      }
      first = false;
    });
  }
}

BOOST_AUTO_TEST_SUITE(coding)

BOOST_AUTO_TEST_CASE_TEMPLATE(instruction_sets_agree_on_halves, T, Elements) {
  for (const Half half : {Half::float16, Half::bfloat16})
    check_agreement<T>(
        wild<T>(kMost), [](Index n) { return 2 * n; },
        [=](const Table<T>& t, Index n, const T* x, std::uint8_t* to) { t.encode_half(half, n, x, to); },
        [=](const Table<T>& t, Index n, const std::uint8_t* from, Into into, T* x) {
          t.decode_half(half, n, from, into, x);
        });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(instruction_sets_agree_on_int8, T, Elements) {
  for (const auto& values : {wild<T>(kMost), numbers<T>(kMost, 5)})
    check_agreement<T>(
        values, [](Index n) { return (n + 31) / 32 * 4 + n; },
        [](const Table<T>& t, Index n, const T* x, std::uint8_t* to) {
          t.encode_integers(8, 32, n, x, to, to + (n + 31) / 32 * 4);
        },
        [](const Table<T>& t, Index n, const std::uint8_t* from, Into into, T* x) {
          t.decode_integers(8, 32, n, from, from + (n + 31) / 32 * 4, into, x);
        });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(instruction_sets_agree_on_int4, T, Elements) {
  for (const auto& values : {wild<T>(kMost), numbers<T>(kMost, 5)})
    check_agreement<T>(
        values, [](Index n) { return (n + 31) / 32 * 4 + (n + 1) / 2; },
        [](const Table<T>& t, Index n, const T* x, std::uint8_t* to) {
          t.encode_integers(4, 32, n, x, to, to + (n + 31) / 32 * 4);
        },
        [](const Table<T>& t, Index n, const std::uint8_t* from, Into into, T* x) {
          t.decode_integers(4, 32, n, from, from + (n + 31) / 32 * 4, into, x);
        });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(int4_lies_as_documented, T, Elements) {
  const std::vector<T> x = {7, -7, 1, -1, T(2.4)};  // of scale 1
  const std::vector<std::uint8_t> want = {0x97, 0xf1, 0x02};
  for_each_isa<T>([&](const Table<T>& table) {
    std::vector<std::uint8_t> numbers(want.size());
    float scale = 0;
    table.encode_integers(4, 16, static_cast<Index>(x.size()), x.data(), reinterpret_cast<std::uint8_t*>(&scale),
                          numbers.data());
    BOOST_TEST(scale == 1);
    BOOST_TEST(numbers == want, boost::test_tools::per_element());
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(instruction_sets_agree_on_signs, T, Elements) {
  for (const auto& values : {wild<T>(kMost), numbers<T>(kMost, 5)})
    check_agreement<T>(
        values, [](Index n) { return (n + 47) / 48 * 8 + (n + 7) / 8; },
        [](const Table<T>& t, Index n, const T* x, std::uint8_t* to) {
          t.encode_signs(48, n, x, to, to + (n + 47) / 48 * 8);
        },
        [](const Table<T>& t, Index n, const std::uint8_t* from, Into into, T* x) {
          t.decode_signs(48, n, from, from + (n + 47) / 48 * 8, into, x);
        });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(magnitudes_are_counted_and_picked, T, Elements) {
  Guarded<T> memory(kMost);
  const std::vector<T> all = wild<T>(kMost);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  for_each_isa<T>([&](const Table<T>& table) {
    for (const Index n : {Index{1}, Index{15}, Index{16}, Index{17}, Index{333}, kMost}) {
      T* const x = memory.at_end(n);
      std::copy_n(all.data(), n, x);
      std::vector<Bits> magnitudes;
      for (Index i = 0; i < n; ++i) {
        Bits bits;
        std::memcpy(&bits, x + i, sizeof bits);
        magnitudes.push_back(bits << 1 >> 1);
      }
      const int digits = kMagnitudeDigits<T>;
      const Bits prefix = magnitudes[0] >> (digits - 4);
      std::vector<Index> counts(16), wanted(16), next(8), next_wanted(8);
      table.count_magnitudes(n, x, 0, digits, 4, counts.data());
      table.count_magnitudes(n, x, prefix, digits - 4, 3, next.data());
      for (const Bits m : magnitudes) {
        ++wanted[m >> (digits - 4)];
        if (m >> (digits - 4) == prefix) ++next_wanted[m >> (digits - 7) & 7];
      }
      BOOST_TEST(counts == wanted, boost::test_tools::per_element());
      BOOST_TEST(next == next_wanted, boost::test_tools::per_element());

      const Bits threshold = magnitudes[static_cast<std::size_t>(n / 2)];
      Bytes indices, values;
      Index ties = 1;
      for (std::uint32_t i = 0; i < magnitudes.size(); ++i) {
        if (magnitudes[i] < threshold || (magnitudes[i] == threshold && ties-- <= 0)) continue;
        const auto* index = reinterpret_cast<const std::uint8_t*>(&i);
        const auto* value = reinterpret_cast<const std::uint8_t*>(x + i);
        indices.insert(indices.end(), index, index + sizeof i);
        values.insert(values.end(), value, value + sizeof(T));
      }
      Bytes index_room(indices.size()), value_room(values.size());
      table.pick_largest(n, x, threshold, 1, index_room.data(), value_room.data());
      BOOST_TEST(index_room == indices, boost::test_tools::per_element());
      BOOST_TEST(value_room == values, boost::test_tools::per_element());
    }
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(residuals_are_added_and_kept_finite, T, Elements) {
  Guarded<T> memory(kMost);
  const std::vector<T> x = numbers<T>(kMost, 1), r = numbers<T>(kMost, 2);
  for_each_isa<T>([&](const Table<T>& table) {
    for (const Index n : {Index{0}, Index{1}, Index{31}, Index{1024}, Index{1025}, kMost}) {
      T* const sum = memory.at_end(n);
      std::copy_n(r.data(), n, sum);
      const double square = table.add_and_square(n, x.data(), sum);
      double wanted = 0;
      for (Index i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        BOOST_REQUIRE_EQUAL(sum[i], static_cast<T>(x[at] + r[at]));
        wanted += double{sum[i]} * double{sum[i]};
      }
      BOOST_TEST(square == wanted, boost::test_tools::tolerance(1e-5));
      if (n < 3) continue;
      const double lost = double{sum[0]} * double{sum[0]} + double{sum[n - 1]} * double{sum[n - 1]};
      sum[0] = std::numeric_limits<T>::quiet_NaN();
      sum[n - 1] = -std::numeric_limits<T>::infinity();
      BOOST_TEST(table.keep_finite(n, sum) == wanted - lost, boost::test_tools::tolerance(1e-4));
      BOOST_TEST((sum[0] == 0 && sum[n - 1] == 0));
    }
  });
}

#ifdef __FLT16_MAX__
#ifdef __aarch64__
using CompilersHalf = __fp16;
#else
using CompilersHalf = _Float16;
#endif
BOOST_AUTO_TEST_CASE(float16_is_the_compilers_for_every_float_between_two_halves) {
  // Each half, the floats beside it, the middle to the next one and the floats beside that.
  std::vector<float> values;
  for (std::uint32_t h = 0; h <= 0xffff; ++h)
    for (const std::uint32_t bits :
         {h << 13, (h << 13) + 1, (h << 13) + 0xfff, (h << 13) + 0x1000, (h << 13) + 0x1001}) {
      const std::uint32_t moved = ((bits & 0x0fffffff) + 0x38000000) | (bits & 0x10000000) << 3;
      for (const std::uint32_t some : {moved, moved - 0x08000000}) {
        float value;
        std::memcpy(&value, &some, sizeof value);
        values.push_back(value);
      }
    }
  const Index n = static_cast<Index>(values.size());
  Bytes bytes(2 * values.size());
  std::vector<float> back(values.size());
  for_each_isa<float>([&](const Table<float>& table) {
    table.encode_half(Half::float16, n, values.data(), bytes.data());
    table.decode_half(Half::float16, n, bytes.data(), Into::store, back.data());
    Index wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const CompilersHalf half = static_cast<CompilersHalf>(values[i]);
      std::uint16_t want, got;
      std::memcpy(&want, &half, sizeof want);
      std::memcpy(&got, bytes.data() + 2 * i, sizeof got);
      const float wide = static_cast<float>(half);
      const bool nan = std::isnan(wide);
      wrong += nan ? !std::isnan(back[i]) : got != want || !same_bits(&back[i], &wide, 1);
    }
    BOOST_TEST(wrong == 0);
  });
}
#endif

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
