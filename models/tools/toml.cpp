#include <algorithm>
#include <cctype>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/tools/config_import.h"

namespace shale::models {
namespace {

using Json = nlohmann::ordered_json;

class TomlReader {
 public:
  TomlReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Json read() {
    Json root = Json::object();
    Json* table = &root;
    for (skip_blank(); at_ < text_.size(); skip_blank()) {
      if (peek() == '[') {
        ++at_;
        if (peek() == '[') fail("a list of tables");
        table = &below(root, keys());
        expect(']');
      } else {
        std::vector<std::string> path = keys();
        expect('=');
        skip_spaces();
        const std::string last = path.back();
        path.pop_back();
        Json& place = below(*table, path);
        if (place.contains(last)) fail(cat("the key '", last, "' a second time"));
        place[last] = value();
      }
      end_of_line();
    }
    return root;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[noreturn]] void fail(std::string_view found) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    throw DataError(
        cat(source_, ":", line, ": expected a table or a key and its value, found ", found));
  }
  void expect(char c) {
    skip_spaces();
    if (peek() != c)
      fail(cat("'", excerpt(text_.substr(at_, 20)), "', want '", std::string(1, c), "'"));
    ++at_;
  }
  void skip_spaces() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  void skip_comment() {
    if (peek() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
  }
  // Also lines that say nothing.
  void skip_blank() {
    for (;;) {
      skip_spaces();
      skip_comment();
      if (peek() != '\n' && peek() != '\r') return;
      ++at_;
    }
  }
  void end_of_line() {
    skip_spaces();
    skip_comment();
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r') {
      fail(cat("'", excerpt(text_.substr(at_, 20)), "' behind a value"));
    }
  }
  std::vector<std::string> keys() {
    std::vector<std::string> path;
    for (;;) {
      skip_spaces();
      path.push_back(peek() == '"' || peek() == '\'' ? quoted() : bare_key());
      skip_spaces();
      if (peek() != '.') return path;
      ++at_;
    }
  }
  std::string bare_key() {
    const size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_' ||
           peek() == '-') {
      ++at_;
    }
    if (at_ == begin) fail(cat("'", excerpt(text_.substr(at_, 20)), "'"));
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string quoted() {
    const char quote = peek();
    std::string text;
    for (++at_; peek() != quote; ++at_) {
      if (at_ >= text_.size() || peek() == '\n') fail("a string without an end");
      if (peek() != '\\' || quote == '\'') {
        text += peek();
        continue;
      }
      ++at_;
      switch (peek()) {
        case 'n': text += '\n'; break;
        case 't': text += '\t'; break;
        case '"':
        case '\\': text += peek(); break;
        default: fail(cat("the escape \\", std::string(1, peek())));
      }
    }
    ++at_;
    return text;
  }
  Json value() {
    if (peek() == '"' || peek() == '\'') return quoted();
    if (peek() == '[') return list();
    if (peek() == '{') fail("a table in a line");
    const size_t begin = at_;
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n,]#").find(peek()) == std::string_view::npos) {
      ++at_;
    }
    std::string word(text_.substr(begin, at_ - begin));
    if (word == "true") return true;
    if (word == "false") return false;
    std::erase(word, '_');
    if (word.starts_with("+")) word.erase(0, 1);
    const bool is_real = word.find_first_of(".eE") != word.npos;
    if (const auto number = is_real ? std::nullopt : parse_int(word)) return *number;
    if (const auto number = parse_real(word)) return *number;
    fail(cat("the value '", excerpt(word), "'"));
  }
  Json list() {
    Json values = Json::array();
    ++at_;
    for (skip_blank(); peek() != ']'; skip_blank()) {
      values.push_back(value());
      skip_blank();
      if (peek() == ',') {
        ++at_;
      } else if (peek() != ']') {
        fail(cat("'", excerpt(text_.substr(at_, 20)), "' in a list"));
      }
    }
    ++at_;
    return values;
  }
  Json& below(Json& root, const std::vector<std::string>& path) {
    Json* place = &root;
    for (const std::string& key : path) {
      if (!place->contains(key)) (*place)[key] = Json::object();
      place = &(*place)[key];
      if (!place->is_object()) fail(cat("'", key, "', which has a value, as a table"));
    }
    return *place;
  }

  const std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

}  // namespace

Json parse_toml(std::string_view text, const std::string& source) {
  return TomlReader(text, source).read();
}

}  // namespace shale::models
