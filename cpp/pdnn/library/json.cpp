#include "pdnn/library/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace pdnn::library {

namespace {

class Reader {
 public:
  Reader(std::string_view where, std::string_view text) : where_(where), text_(text) {}

  Json whole() {
    Json json = value(0);
    skip();
    if (at_ != text_.size()) fail("something follows the value");
    return json;
  }

 private:
  static constexpr int kDeepest = 64;

  [[noreturn]] void fail(const char* why) const {
    throw ValueError(message(where_, ": not JSON at byte ", at_, ": ", why));
  }
  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(char wanted, const char* why) {
    skip();
    if (at_ == text_.size() || text_[at_] != wanted) fail(why);
    ++at_;
  }

  Json value(int depth) {
    if (depth > kDeepest) fail("nested too deep");
    skip();
    if (at_ == text_.size()) fail("it ends early");
    if (text_[at_] == '"') return {string()};
    if (text_[at_] == '[') return {array(depth)};
    if (text_[at_] == '{') return {object(depth)};
    if (take("true")) return {true};
    if (take("false")) return {false};
    if (take("null")) return {nullptr};
    return {number()};
  }

  Json::Number number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view("+-.0123456789eE").find(text_[at_]) != std::string_view::npos) ++at_;
    double read = 0;
    const char* const end = text_.data() + at_;
    if (const auto found = std::from_chars(text_.data() + begin, end, read);
        found.ec != std::errc() || found.ptr != end || !std::isfinite(read))
      fail("expected a value");
    return {std::string(text_.substr(begin, at_ - begin))};
  }

  std::string string() {
    expect('"', "expected a string");
    std::string read;
    while (true) {
      if (at_ == text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) fail("a string has no end");
      const char c = text_[at_++];
      if (c == '"') return read;
      if (c == '\\') {
        escape(read);
      } else {
        read += c;
      }
    }
  }

  void escape(std::string& read) {
    if (at_ == text_.size()) fail("a string has no end");
    const char c = text_[at_++];
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const std::size_t name = kNames.find(c); name != std::string_view::npos) {
      read += kMeanings[name];
      return;
    }
    if (c != 'u') fail("an unknown escape");
    std::uint32_t code = unit();
    if (code >= 0xD800 && code < 0xDC00) {
      if (!take("\\u")) fail("half a character");
      const std::uint32_t low = unit();
      if (low < 0xDC00 || low > 0xDFFF) fail("half a character");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(read, code);
  }
  std::uint32_t unit() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto found = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || found.ptr != digits.data() + 4) fail("expected four hexadecimal digits");
    at_ += 4;
    return code;
  }
  static void append_utf8(std::string& to, std::uint32_t code) {
    const auto put = [&](std::uint32_t byte) { to += static_cast<char>(byte); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
      put(0xC0 | code >> 6);
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12);
      put(0x80 | (code >> 6 & 0x3F));
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
      put(0x80 | (code >> 6 & 0x3F));
    }
    put(0x80 | (code & 0x3F));
  }

  Json::Array array(int depth) {
    Json::Array all;
    expect('[', "expected an array");
    skip();
    if (take("]")) return all;
    while (true) {
      all.push_back(value(depth + 1));
      skip();
      if (take("]")) return all;
      expect(',', "expected , or ]");
    }
  }

  Json::Object object(int depth) {
    Json::Object all;
    expect('{', "expected an object");
    skip();
    if (take("}")) return all;
    while (true) {
      skip();
      std::string name = string();
      expect(':', "expected :");
      all.push_back({std::move(name), value(depth + 1)});
      skip();
      if (take("}")) return all;
      expect(',', "expected , or }");
    }
  }

  std::string_view where_, text_;
  std::size_t at_ = 0;
};

template <class Items, class Write>
std::string joined(char open, const Items& items, char close, Write write) {
  std::string all(1, open);
  for (const auto& item : items) {
    if (all.size() > 1) all += ", ";
    all += write(item);
  }
  return all + close;
}

struct Writer {
  std::string operator()(std::nullptr_t) const { return "null"; }
  std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  std::string operator()(const Json::Number& number) const { return number.text; }
  std::string operator()(const std::string& text) const { return json_string(text); }
  std::string operator()(const Json::Array& array) const {
    return joined('[', array, ']', [](const Json& item) { return item.text(); });
  }
  std::string operator()(const Json::Object& object) const {
    return joined('{', object, '}',
                  [](const Json::Member& member) { return json_string(member.name) + ": " + member.value.text(); });
  }
};

}  // namespace

Json Json::parse(std::string_view where, std::string_view text) { return Reader(where, text).whole(); }

std::string Json::text() const { return std::visit(Writer{}, value); }

const Json* Json::find(std::string_view name) const {
  const auto* const object = as<Object>();
  if (!object) return nullptr;
  const auto found = std::ranges::find(*object, name, &Json::Member::name);
  return found == object->end() ? nullptr : &found->value;
}

std::string json_string(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      all += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      all +=
          {'\\', 'u', '0', '0', kDigits[static_cast<std::size_t>(c) >> 4], kDigits[static_cast<std::size_t>(c) & 15]};
    } else {
      all += c;
    }
  }
  return all + '"';
}

std::string written(double number) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
  std::string text(digits.begin(), end);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

double as_double(std::string_view where, const Json& json) {
  const auto& [text] = existing(json.as<Json::Number>(), where, ": got ", json.text(), ", expected a number");
  double read = 0;
  std::from_chars(text.data(), text.data() + text.size(), read);
  return read;
}

Index as_index(std::string_view where, const Json& json) {
  const auto* const number = json.as<Json::Number>();
  Index read = 0;
  if (number) {
    const char* const end = number->text.data() + number->text.size();
    const auto found = std::from_chars(number->text.data(), end, read);
    if (found.ec == std::errc() && found.ptr == end) return read;
  }
  throw ValueError(message(where, ": got ", json.text(), ", expected a whole number"));
}

Options::Options(const Json& object)
    : object_(object),
      type_(existing(object.find_as<std::string>("type"), "got ", object.text(),
                     ", expected an object with its \"type\"")) {}

const Json* Options::find(std::string_view name) {
  asked_.emplace(name);
  return object_.find(name);
}

Index Options::integer(const char* name, Index least, std::optional<Index> otherwise) {
  const Json* const given = find(name);
  const Index number = given       ? as_index(type_ + ": " + name, *given)
                       : otherwise ? *otherwise
                                   : throw ValueError(message(type_, ": ", name, " is missing"));
  require(number >= least, type_, ": ", name, " = ", number, "; expected at least ", least);
  return number;
}

double Options::number(const char* name, std::optional<double> otherwise) {
  const Json* const given = find(name);
  if (given) return as_double(type_ + ": " + name, *given);
  if (otherwise) return *otherwise;
  throw ValueError(message(type_, ": ", name, " is missing"));
}

bool Options::flag(const char* name, bool otherwise) {
  const Json* const given = find(name);
  require(!given || given->as<bool>(), type_, ": ", name, " is neither true nor false");
  return given ? *given->as<bool>() : otherwise;
}

std::string Options::word(const char* name, const char* otherwise) {
  const Json* const given = find(name);
  require(!given || given->as<std::string>(), type_, ": ", name, " is not a string");
  return given ? *given->as<std::string>() : otherwise;
}

std::vector<double> Options::numbers(const char* name) {
  const Json* const given = find(name);
  if (!given) return {};
  const auto* const array = given->as<Json::Array>();
  const std::string where = type_ + ": " + name;
  if (!array) return {as_double(where, *given)};
  std::vector<double> all;
  for (const Json& item : *array) all.push_back(as_double(where, item));
  return all;
}

void Options::check(bool valid, const char* name, const char* expected) const {
  if (valid) return;
  const Json* const given = object_.find(name);
  throw ValueError(message(type_, ": ", name, " = ", given ? given->text() : "its default", "; expected ", expected));
}

void Options::done() const {
  for (const auto& [name, unused] : *object_.as<Json::Object>())
    require(asked_.contains(name), type_, ": unknown option \"", name, "\"");
}

}  // namespace pdnn::library
