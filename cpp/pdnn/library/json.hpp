#pragma once
/// JSON, as descriptions and the headers of model files have it; and the options of a described object.
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pdnn/core/errors.hpp"
#include "pdnn/core/types.hpp"

namespace pdnn::library {

struct Json {
  /// As it was written.
  struct Number {
    std::string text;
  };
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;
  std::variant<std::nullptr_t, bool, Number, std::string, Array, Object> value;

  /// ValueError, which begins with `where`, if the text is not JSON, or is nested deeper than 64.
  static Json parse(std::string_view where, std::string_view text);
  std::string text() const;

  /// A member of an object; null if this is none, or has none of this name.
  const Json* find(std::string_view name) const;
  template <class Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&value);
  }
  /// A member of an object, of this kind; null if there is none.
  template <class Kind>
  const Kind* find_as(std::string_view name) const {
    const Json* const found = find(name);
    return found ? found->as<Kind>() : nullptr;
  }
};

struct Json::Member {
  std::string name;
  Json value;
};

/// What a pointer points to. ValueError of these words if it is null.
template <class T, class... Words>
T& existing(T* pointer, const Words&... words) {
  if (!pointer) throw ValueError(message(words...));
  return *pointer;
}

/// A string as JSON has it; a number so that reading it gives the same bits.
std::string json_string(std::string_view text);
std::string written(double number);
/// A number's value. ValueError if it is none, or for an Index not a whole one.
double as_double(std::string_view where, const Json& json);
Index as_index(std::string_view where, const Json& json);

/// An object's members, each asked for once by its name; what nobody asked for is refused.
class Options {
 public:
  /// ValueError if it is no object with a "type".
  explicit Options(const Json& object);

  const std::string& type() const { return type_; }
  const Json* find(std::string_view name);
  Index integer(const char* name, Index least, std::optional<Index> otherwise = {});
  double number(const char* name, std::optional<double> otherwise = {});
  bool flag(const char* name, bool otherwise);
  std::string word(const char* name, const char* otherwise);
  /// One number or a list of them; none if it is left out.
  std::vector<double> numbers(const char* name);
  /// ValueError, with the option's name, unless it is `valid`.
  void check(bool valid, const char* name, const char* expected) const;
  /// ValueError if there is a member that was not asked for.
  void done() const;

 private:
  const Json& object_;
  std::string type_;
  std::set<std::string, std::less<>> asked_{"type"};
};

}  // namespace pdnn::library
