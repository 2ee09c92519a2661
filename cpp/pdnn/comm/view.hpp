#pragma once
/// View: typed memory that a communicator reads or fills: a pointer, a count and the type of an element.
#include <span>
#include <type_traits>

#include "pdnn/core/types.hpp"

namespace pdnn::comm {

enum class DType : std::uint8_t { float32, float64, int32, int64, uint8 };

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  if constexpr (std::is_same_v<T, double>) return DType::float64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::int64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::uint8;
}

/// Calls visit(T{}) with the C++ type behind a DType.
template <class Visit>
void with_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::float32:
      return visit(float{});
    case DType::float64:
      return visit(double{});
    case DType::int32:
      return visit(std::int32_t{});
    case DType::int64:
      return visit(std::int64_t{});
    case DType::uint8:
      return visit(std::uint8_t{});
  }
}

constexpr Index size_of(DType dtype) {
  return dtype == DType::uint8 ? 1 : dtype == DType::float32 || dtype == DType::int32 ? 4 : 8;
}
constexpr bool is_floating(DType dtype) { return dtype == DType::float32 || dtype == DType::float64; }
/// "float32", as messages show it.
const char* name(DType dtype);

/// Memory to fill. Made from any std::span of one of the five types.
struct View {
  void* data = nullptr;
  Index count = 0;
  DType dtype = DType::uint8;

  View() = default;
  View(void* memory, Index elements, DType type) : data(memory), count(elements), dtype(type) {}
  template <class T, std::size_t N>
  View(std::span<T, N> values)  // NOLINT: a view of a view
    requires(!std::is_const_v<T>)
      : View(values.data(), static_cast<Index>(values.size()), dtype_of<T>()) {}
  Index bytes() const { return count * size_of(dtype); }
};

/// Memory to read.
struct ConstView {
  const void* data = nullptr;
  Index count = 0;
  DType dtype = DType::uint8;

  ConstView() = default;
  ConstView(const void* memory, Index elements, DType type) : data(memory), count(elements), dtype(type) {}
  ConstView(View view) : ConstView(view.data, view.count, view.dtype) {}  // NOLINT: a view of a view
  template <class T, std::size_t N>
  ConstView(std::span<T, N> values)  // NOLINT: a view of a view
      : ConstView(values.data(), static_cast<Index>(values.size()), dtype_of<std::remove_const_t<T>>()) {}
  Index bytes() const { return count * size_of(dtype); }
};

}  // namespace pdnn::comm
