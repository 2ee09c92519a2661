/// Sources of rows, the orders in which epochs take them, and numbers that are read from text.
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "pdnn/data/augmentation.hpp"
#include "pdnn/data/epoch_order.hpp"
#include "source.hpp"

namespace pdnn::bindings {

data::Samples::Format format_of(const py::array& x) {
  using data::Samples;
  if (py::isinstance<py::array_t<std::uint8_t>>(x)) return Samples::Format::uint8;
  if (py::isinstance<py::array_t<float>>(x)) return Samples::Format::float32;
  if (py::isinstance<py::array_t<double>>(x)) return Samples::Format::float64;
  throw py::type_error(
      message("Source: x is ", std::string(py::str(x.dtype())), ", expected uint8, float32 or float64"));
}

namespace {

/// What Python's float reads, without its underscores: a field 1_0 of a table is no number.
double number_of(py::handle word) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(word.ptr(), &size);
  if (!text) throw py::error_already_set();
  double number = 0;
  const auto [end, error] = std::from_chars(text, text + size, number);
  if (error == std::errc() && end == text + size && std::isfinite(number)) return number;
  // A plus, spaces, infinity, ...
  const auto read = py::reinterpret_steal<py::object>(PyFloat_FromString(word.ptr()));
  if (!read) throw py::error_already_set();
  if (std::string_view(text, static_cast<std::size_t>(size)).find('_') != std::string_view::npos)
    throw ValueError(message("could not convert string to float: '", text, "'"));
  return PyFloat_AS_DOUBLE(read.ptr());
}

/// The fields of a line, without its end and the spaces before them; nothing if there are not so many, or the line is
/// one that Python's csv module reads otherwise.
bool split(std::string_view line, char delimiter, std::vector<std::string_view>& fields) {
  constexpr std::size_t kLongest = 100'000;  // csv refuses fields somewhat longer
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find_first_of(std::string_view("\"\r\n\0", 4)) != line.npos) return false;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const bool last = i + 1 == fields.size();
    const std::size_t end = line.find(delimiter);
    if ((end == line.npos) != last) return false;
    fields[i] = line.substr(0, end);
    if (fields[i].size() > kLongest) return false;
    fields[i].remove_prefix(std::min(fields[i].find_first_not_of(' '), fields[i].size()));
    if (!last) line.remove_prefix(end + 1);
  }
  return true;
}

bool is_plain_number(std::string_view text, double& number) {
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
}

using Texts = py::typing::List<py::str>;

std::optional<std::pair<py::array_t<double>, std::vector<Texts>>> plain_rows(const Texts& lines, char delimiter,
                                                                             Index width,
                                                                             const std::vector<Index>& places,
                                                                             const std::vector<Index>& texts) {
  for (const auto& columns : {places, texts})
    for (const Index column : columns)
      require(0 <= column && column < width, "plain_rows: column ", column, " of ", width);
  const auto rows = std::ssize(lines), columns = std::ssize(places);
  py::array_t<double> values(rows * columns);
  std::vector<Texts> words(texts.size());
  std::vector<std::string_view> fields(static_cast<std::size_t>(width));
  double* value = values.mutable_data();
  for (const py::handle line : lines) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(line.ptr(), &size);
    if (!text) throw py::error_already_set();
    if (!split({text, static_cast<std::size_t>(size)}, delimiter, fields)) return {};
    for (const Index place : places)
      if (!is_plain_number(fields[static_cast<std::size_t>(place)], *value++)) return {};
    for (std::size_t i = 0; i < texts.size(); ++i) words[i].append(py::str(fields[static_cast<std::size_t>(texts[i])]));
  }
  return std::pair(values, words);
}

}  // namespace

void bind_data(py::module_& m) {
  m.def(
      "numbers",
      [](const py::typing::List<py::str>& words) {
        py::array_t<double> numbers(std::ssize(words));
        std::ranges::transform(words, numbers.mutable_data(), number_of);
        return numbers;
      },
      py::arg("words"), "The numbers that are written in a list of str. Raises ValueError if one is none.");
  m.def("plain_rows", &plain_rows, py::arg("lines"), py::arg("delimiter"), py::arg("width"), py::arg("places"),
        py::arg("texts"),
        "Of lines of so many columns: the numbers at these places, row by row, and the texts of these columns. None if "
        "one of them is no plain number, a line has another number of columns, or anything is quoted.");
  m.def(
      "epoch_order",
      [](std::uint64_t seed, std::uint64_t epoch, Index count) {
        return copy_of<Index>(data::epoch_order(seed, epoch, count));
      },
      py::arg("seed"), py::arg("epoch"), py::arg("count"), "The order in which an epoch takes its rows.");
  m.def(
      "draw_rows",
      [](std::uint64_t seed, std::uint64_t epoch, Index count, Index rows) {
        return copy_of<Index>(data::draw_rows(seed, epoch, count, rows));
      },
      py::arg("seed"), py::arg("epoch"), py::arg("count"), py::arg("rows"), "Rows drawn with replacement.");
}

template <class T>
void bind_data(py::module_& m) {
  py::class_<HeldSource<T>>(m, "Source")
      .def(py::init<py::array, py::array, double, double, std::optional<py::array>>(), py::arg("x"), py::arg("target"),
           py::arg("scale") = 1.0, py::arg("shift") = 0.0, py::arg("weight") = py::none())
      .def(py::init<py::array, py::array, py::array, Index, py::array, std::optional<py::array>>(), py::arg("values"),
           py::arg("columns"), py::arg("starts"), py::arg("width"), py::arg("target"), py::arg("weight") = py::none())
      .def(
          "augment",
          [](HeldSource<T>& held, Index padding, bool flip, std::uint64_t seed, std::uint64_t epoch) {
            held.source.augment({padding, flip, data::augmentation_key(seed, epoch)});
          },
          py::arg("padding"), py::arg("flip"), py::arg("seed"), py::arg("epoch"),
          "From now on images are padded, cut and mirrored as they are gathered.")
      .def("gather", &HeldSource<T>::gather, py::arg("rows"), "The samples of these rows, as an array.");
}

template void bind_data<float>(py::module_&);
template void bind_data<double>(py::module_&);

}  // namespace pdnn::bindings
