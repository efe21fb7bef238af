// Checks Kubernetes manifests, such as those in deploy/, against tables of the fields that
// operators accept (fixtures/make_kubernetes.py), without Python.
//
//   manifest_check MANIFEST TABLE...
//
// Prints one line per problem and exits with 1 if there are any. Supports the YAML of such files:
// block and flow mappings and sequences, literal blocks, anchors, several documents.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Position in `text` where a value ends: at one of `ends` outside quotes and brackets.
size_t end_of(const std::string& text, size_t at, const std::string& ends) {
  char quote = 0;
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (depth == 0 && ends.find(c) != ends.npos) {
      return at;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text.npos;
}

// Position of the colon in "key: value" or "key:"; npos if the text is neither.
size_t colon_of(const std::string& text) {
  for (size_t at = 0; (at = end_of(text, at, ":")) != text.npos; ++at) {
    if (at + 1 == text.size() || text[at + 1] == ' ') return at;
  }
  return text.npos;
}

class Document {
 public:
  void add(int number, const std::string& line) { lines_.push_back({number, line}); }
  bool empty() const { return lines_.empty(); }
  Json read() {
    const Json value = block(indent_of(lines_.front().text));
    if (at_ != lines_.size()) fail_here("expected the end of the document");
    return value;
  }

 private:
  struct Line {
    int number;
    std::string text;
  };
  static size_t indent_of(const std::string& text) { return text.find_first_not_of(' '); }
  [[noreturn]] void fail_here(const std::string& what) const {
    fail("line " + std::to_string(lines_[std::min(at_, lines_.size() - 1)].number) + ": " + what);
  }
  bool here(size_t indent) const {
    return at_ < lines_.size() && indent_of(lines_[at_].text) == indent;
  }
  bool deeper(size_t indent) const {
    return at_ < lines_.size() && indent_of(lines_[at_].text) > indent;
  }
  static bool is_item(const std::string& text, size_t indent) {
    return text.compare(indent, 2, "- ") == 0 || text.substr(indent) == "-";
  }

  Json block(size_t indent) {
    if (is_item(lines_[at_].text, indent)) return sequence(indent);
    if (colon_of(lines_[at_].text.substr(indent)) == std::string::npos) {
      // The value of a list item: its continuation is indented deeper than the item's dash.
      return value(trimmed(lines_[at_++].text), indent - 1);
    }
    Json object = Json::object();
    while (here(indent) && !is_item(lines_[at_].text, indent)) {
      const std::string line = lines_[at_].text.substr(indent);
      const size_t colon = colon_of(line);
      if (colon == line.npos) fail_here("expected 'key: value', found '" + line + "'");
      const std::string key = unquoted(line.substr(0, colon)).get<std::string>();
      if (object.contains(key)) fail_here("'" + key + "' for the second time");
      ++at_;
      object[key] = value(trimmed(line.substr(colon + 1)), indent);
    }
    return object;
  }

  Json sequence(size_t indent) {
    Json list = Json::array();
    while (here(indent) && is_item(lines_[at_].text, indent)) {
      std::string& line = lines_[at_].text;
      line[indent] = ' ';
      const size_t inner = indent_of(line);
      if (inner == line.npos) fail_here("an item without a value");
      list.push_back(block(inner));
    }
    return list;
  }

  // Parses the value after a key or a dash, including lines below it.
  Json value(std::string text, size_t indent) {
    std::string anchor;
    if (text.starts_with("&")) {
      const size_t end = std::min(text.find(' '), text.size());
      anchor = text.substr(1, end - 1);
      text = trimmed(text.substr(end));
    }
    Json result;
    if (text == "|") {
      result = literal(indent);
    } else if (!text.empty()) {
      result = in_line(text);
    } else if (deeper(indent)) {
      result = block(indent_of(lines_[at_].text));
    } else if (here(indent) && is_item(lines_[at_].text, indent)) {
      result = sequence(indent);
    }
    if (!anchor.empty()) anchors_[anchor] = result;
    return result;
  }

  Json literal(size_t indent) {
    std::string text;
    while (deeper(indent)) text += lines_[at_++].text + "\n";
    return text;
  }

  Json in_line(const std::string& text) {
    if (text.starts_with("*")) {
      const auto known = anchors_.find(text.substr(1));
      if (known == anchors_.end()) fail_here("there is no anchor of '" + text + "'");
      return known->second;
    }
    const bool is_list = text.starts_with("[");
    if (!is_list && !text.starts_with("{")) return unquoted(text);
    if (text.back() != (is_list ? ']' : '}')) fail_here("no end of '" + text + "'");
    Json result = is_list ? Json::array() : Json::object();
    const std::string inside = text.substr(1, text.size() - 2);
    for (size_t at = 0; !trimmed(inside.substr(at)).empty();) {
      const size_t end = std::min(end_of(inside, at, ","), inside.size());
      const std::string item = trimmed(inside.substr(at, end - at));
      if (is_list) {
        result.push_back(in_line(item));
      } else {
        const size_t colon = colon_of(item);
        if (colon == item.npos) fail_here("expected 'key: value', found '" + item + "'");
        result[unquoted(item.substr(0, colon)).get<std::string>()] =
            in_line(trimmed(item.substr(colon + 1)));
      }
      at = std::min(end + 1, inside.size());
    }
    return result;
  }

  static Json unquoted(const std::string& text) {
    const char first = text.empty() ? ' ' : text.front();
    if ((first == '"' || first == '\'') && text.size() > 1 && text.back() == first) {
      return text.substr(1, text.size() - 2);
    }
    if (text == "true" || text == "false") return text == "true";
    const size_t digits = first == '-' ? 1 : 0;
    const bool is_number =
        text.size() > digits && text.find_first_not_of("0123456789", digits) == text.npos;
    if (is_number) return std::stoll(text, nullptr, text.starts_with("0") ? 8 : 10);
    return text;
  }

  std::vector<Line> lines_;
  size_t at_ = 0;
  std::map<std::string, Json> anchors_;
};

std::vector<Json> read_yaml(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("cannot be read");
  std::vector<Document> documents(1);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line == "---") {
      documents.emplace_back();
      continue;
    }
    if (line.find('\t') != line.npos) fail("line " + std::to_string(number) + ": a tab");
    const size_t hash = line.find(" #");
    if (hash != line.npos) line.resize(hash);
    while (line.ends_with(' ')) line.pop_back();
    if (!line.empty() && line.front() != '#') documents.back().add(number, line);
  }
  std::vector<Json> values;
  for (Document& document : documents) {
    if (!document.empty()) values.push_back(document.read());
  }
  return values;
}

// Fields that an operator accepts, by path.
class Table {
 public:
  explicit Table(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      if (line.starts_with("#")) continue;
      std::istringstream words(line);
      std::string name, word;
      words >> name;
      if (version_.empty()) {
        version_ = name;
        words >> kind_;
        continue;
      }
      Field& field = fields_[name];
      words >> field.type;
      while (words >> word) (word == "required" ? field.required : field.values) = word;
    }
    if (fields_.size() < 5) fail(path + " has no fields");
  }

  bool is_of(const Json& document) const {
    return document.value("apiVersion", "") == version_ && document.value("kind", "") == kind_;
  }

  void check(const Json& value, const std::string& path, const std::string& shown,
             std::vector<std::string>& wrong) const {
    if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        const std::string own = path.empty() ? key : path + "." + key;
        const bool listed = fields_.contains(own);
        const std::string there = listed ? own : path + ".*";
        const std::string name = shown.empty() ? key : shown + "." + key;
        if (!fields_.contains(there)) {
          wrong.push_back(name + ": " + kind_ + " has no such field");
          continue;
        }
        check_field(inner, there, name, wrong);
      }
      check_required(value, path, shown, wrong);
    } else if (value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) {
        check_field(value[i], path + "[]", shown + "[" + std::to_string(i) + "]", wrong);
      }
    }
  }

 private:
  struct Field {
    std::string type, required, values;  // values: separated by "|"
  };

  void check_field(const Json& value, const std::string& path, const std::string& shown,
                   std::vector<std::string>& wrong) const {
    const Field& field = fields_.at(path);
    if (field.type == "open") return;
    const std::string found = value.is_number_integer() ? "integer" : value.type_name();
    const bool fits = found == field.type || (field.type == "int-or-string" &&
                                              (found == "integer" || found == "string"));
    if (!fits) {
      wrong.push_back(shown + " is of type " + found + ", expected " + field.type);
      return;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (!field.values.empty() && ("|" + field.values + "|").find("|" + text + "|") == text.npos) {
      wrong.push_back(shown + " is " + text + ", expected " + field.values);
    }
    check(value, path, shown, wrong);
  }

  void check_required(const Json& value, const std::string& path, const std::string& shown,
                      std::vector<std::string>& wrong) const {
    const std::string prefix = path.empty() ? "" : path + ".";
    for (auto it = fields_.lower_bound(prefix); it != fields_.end(); ++it) {
      if (!it->first.starts_with(prefix)) break;
      const std::string name = it->first.substr(prefix.size());
      if (it->second.required.empty() || name.find_first_of(".[") != name.npos) continue;
      if (!value.contains(name)) wrong.push_back(shown + ": has no " + name);
    }
  }

  std::string version_, kind_;
  std::map<std::string, Field> fields_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> paths(argv + 1, argv + argc);
  std::vector<std::string> wrong;
  try {
    if (paths.size() < 2) fail("Usage: manifest_check MANIFEST TABLE...");
    std::vector<Table> tables;
    for (size_t i = 1; i < paths.size(); ++i) tables.emplace_back(paths[i]);
    const std::vector<Json> documents = read_yaml(paths[0]);
    if (documents.empty()) wrong.push_back("there is nothing in it");
    for (const Json& document : documents) {
      const auto table = std::find_if(tables.begin(), tables.end(),
                                      [&](const Table& one) { return one.is_of(document); });
      if (table == tables.end()) {
        wrong.push_back(document.value("apiVersion", "") + " " + document.value("kind", "") +
                        ": no operator takes it");
      } else {
        table->check(document, "", "", wrong);
      }
    }
  } catch (const std::exception& error) {
    wrong.push_back(error.what());
  }
  for (const std::string& line : wrong) std::cout << paths.at(0) << ": " << line << "\n";
  return wrong.empty() ? 0 : 1;
}
