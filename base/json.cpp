#include "shale/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

const std::string& key_of(const Json::Object::value_type& member) {
  return member.first;
}

// Forwards the parser's events to a JsonVisitor.
class EventForwarder {
 public:
  EventForwarder(JsonVisitor& visitor, std::string_view source)
      : visitor_(visitor), source_(source) {}

  bool null() { return value(nullptr); }
  bool boolean(bool value_read) { return value(value_read); }
  // a number that begins with '-'; -0 becomes the real number -0.0
  bool number_integer(int64_t number) { return number == 0 ? value(-0.0) : value(number); }
  bool number_unsigned(uint64_t number) { return value(number); }
  bool number_float(double number, const std::string&) { return value(number); }
  bool string(std::string& text) { return value(std::move(text)); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // does not occur in JSON
  bool key(std::string& name) {
    visitor_.key(std::move(name));
    return true;
  }
  bool start_object(size_t) {
    visitor_.start_object();
    return true;
  }
  bool end_object() {
    visitor_.end_object();
    return true;
  }
  bool start_array(size_t) {
    visitor_.start_array();
    return true;
  }
  bool end_array() {
    visitor_.end_array();
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& e) {
    // Removes the library's prefix "[json.exception.parse_error.101] parse error at ...".
    const std::string_view what = e.what();
    const size_t tag_end = what.find("] ");
    throw DataError(cat(source_, ": not valid JSON at byte ", position, ": ",
                        excerpt(what.substr(tag_end == what.npos ? 0 : tag_end + 2), 300)));
  }

 private:
  bool value(Json scalar) {
    visitor_.value(std::move(scalar));
    return true;
  }

  JsonVisitor& visitor_;
  const std::string_view source_;
};

// Builds a Json value from the parser's events.
class TreeBuilder final : public JsonVisitor {
 public:
  TreeBuilder(const JsonLimits& limits, std::string_view source)
      : limits_(limits), source_(source) {}

  void value(Json&& scalar) override {
    count();
    add(std::move(scalar));
  }
  void key(std::string&& name) override {
    count();
    open_.back().key = std::move(name);
  }
  void start_object() override { open(true); }
  void start_array() override { open(false); }
  void end_array() override { close(); }
  void end_object() override {
    check_keys(open_.back().members);
    close();
  }

  Json take() { return std::move(root_); }

 private:
  // An object or array that has not ended yet; `key` is the key of its next member.
  struct Open {
    bool is_object = false;
    Json::Array items;
    Json::Object members;
    std::string key;
  };

  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(cat(source_, ": ", problem));
  }
  void count() {
    if (++values_ > limits_.max_values)
      fail(cat("JSON has more than ", limits_.max_values, " values"));
  }
  void open(bool is_object) {
    count();
    if (static_cast<int>(open_.size()) == limits_.max_depth) {
      fail(cat("JSON is nested deeper than ", limits_.max_depth, " levels"));
    }
    open_.push_back({.is_object = is_object, .items = {}, .members = {}, .key = {}});
  }
  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(done.is_object ? Json(std::move(done.members)) : Json(std::move(done.items)));
  }
  void add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& parent = open_.back(); parent.is_object) {
      parent.members.emplace_back(std::move(parent.key), std::move(value));
    } else {
      parent.items.push_back(std::move(value));
    }
  }
  void check_keys(const Json::Object& members) const {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : members) keys.push_back(key);
    std::ranges::sort(keys);
    const auto same = std::ranges::adjacent_find(keys);
    if (same != keys.end()) fail(cat("the key '", excerpt(*same), "' appears twice"));
  }

  const JsonLimits limits_;
  const std::string_view source_;
  int64_t values_ = 0;
  std::vector<Open> open_;
  Json root_;
};

// Writes the text of a value and of all values inside it.
class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void write(const Json& value) {
    if (value.is_array()) {
      write_all('[', value, ']', [this](const Json& item) { write(item); });
    } else if (value.is_object()) {
      write_all('{', value.items(), '}', [this](const Json::Object::value_type& member) {
        text_ += json_quote(member.first) + (indent_ < 0 ? ":" : ": ");
        write(member.second);
      });
    } else {
      text_ += scalar(value);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  static std::string scalar(const Json& value) {
    if (value.is_null()) return "null";
    if (value.is_boolean()) return value.boolean() ? "true" : "false";
    if (value.is_string()) return json_quote(value.text());
    if (const auto number = value.int64()) return std::to_string(*number);
    if (value.is_integer()) return std::to_string(value.get<uint64_t>());
    return nlohmann::json(value.real()).dump();  // the shortest digits that read back the same
  }
  template <typename Items, typename Write>
  void write_all(char open, const Items& items, char close, const Write& write_item) {
    text_ += open;
    ++level_;
    for (const auto& item : items) {
      if (&item != &*items.begin()) text_ += ',';
      break_line();
      write_item(item);
    }
    --level_;
    if (!items.empty()) break_line();
    text_ += close;
  }
  void break_line() {
    if (indent_ < 0) return;
    text_ += '\n';
    text_.append(static_cast<size_t>(indent_ * level_), ' ');
  }

  const int indent_;
  int level_ = 0;
  std::string text_;
};

}  // namespace

Json::Json(std::initializer_list<Json> items) {
  const auto is_member = [](const Json& item) {
    return item.is_array() && item.size() == 2 && item[0].is_string();
  };
  if (!std::ranges::all_of(items, is_member)) {
    value_ = Array(items);
    return;
  }
  Object members;
  for (const Json& item : items) members.emplace_back(item[0].text(), item[1]);
  value_ = std::move(members);
}

Json Json::parse(std::string_view text, const JsonLimits& limits, std::string_view source) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    throw DataError(
        cat(source, ": ", text.size(), " bytes of JSON, expected at most ", limits.max_bytes));
  }
  TreeBuilder builder(limits, source);
  visit_json(text, source, builder);
  return builder.take();
}

void visit_json(std::string_view text, std::string_view source, JsonVisitor& visitor) {
  EventForwarder events(visitor, source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

std::string Json::dump(int indent) const {
  Writer writer(indent);
  writer.write(*this);
  return writer.take();
}

void Json::mistyped(std::string_view expected) const {
  throw DataError(cat("expected ", expected, ", found ", excerpt(dump(), 80)));
}

bool Json::boolean() const {
  if (!is_boolean()) mistyped("true or false");
  return std::get<bool>(value_);
}

double Json::real() const {
  if (const auto* number = std::get_if<double>(&value_)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value_)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value_)) return static_cast<double>(*number);
  mistyped("a number");
}

const std::string& Json::text() const {
  if (!is_string()) mistyped("a string");
  return std::get<std::string>(value_);
}

std::optional<int64_t> Json::int64() const {
  if (!is<int64_t>()) return std::nullopt;
  return std::get<int64_t>(value_);
}

int64_t Json::integer(int64_t min, int64_t max) const {
  const std::optional<int64_t> value = int64();
  if (!value || *value < min || *value > max) mistyped(cat("an integer from ", min, " to ", max));
  return *value;
}

size_t Json::size() const {
  if (is_array()) return std::get<Array>(value_).size();
  return items().size();
}

const Json::Array& Json::items_of_array() const {
  if (!is_array()) mistyped("an array");
  return std::get<Array>(value_);
}

const Json& Json::operator[](size_t index) const {
  if (index >= items_of_array().size()) mistyped(cat("an array with an item ", index));
  return std::get<Array>(value_)[index];
}

Json& Json::operator[](size_t index) {
  return const_cast<Json&>(std::as_const(*this)[index]);
}

void Json::push_back(Json item) {
  if (is_null()) value_ = Array();
  if (!is_array()) mistyped("an array");
  std::get<Array>(value_).push_back(std::move(item));
}

const Json::Object& Json::items() const {
  if (!is_object()) mistyped("an object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const auto found = std::ranges::find(items(), key, key_of);
  return found == items().end() ? nullptr : &found->second;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) mistyped(cat("an object with the key '", key, "'"));
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  if (!is_object()) mistyped("an object");
  return std::get<Object>(value_).emplace_back(key, nullptr).second;
}

void Json::erase(std::string_view key) {
  if (!is_object()) mistyped("an object");
  std::erase_if(std::get<Object>(value_),
                [key](const auto& member) { return member.first == key; });
}

void Json::sort_keys() {
  if (auto* array = std::get_if<Array>(&value_)) {
    for (Json& item : *array) item.sort_keys();
  } else if (auto* object = std::get_if<Object>(&value_)) {
    for (auto& [key, value] : *object) value.sort_keys();
    std::ranges::sort(*object, {}, key_of);
  }
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    return std::ranges::all_of(a.items(), [&b](const auto& member) {
      const Json* other = b.find(member.first);
      return other != nullptr && *other == member.second;
    });
  }
  if (a.is<double>() != b.is<double>() && a.is_number() && b.is_number()) {
    return a.real() == b.real();
  }
  return a.value_ == b.value_;
}

}  // namespace shale
