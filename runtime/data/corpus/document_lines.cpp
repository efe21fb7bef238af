#include <algorithm>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale {
namespace {

// Finds the string under one key of a JSON object.
class FieldFinder final : public JsonVisitor {
 public:
  explicit FieldFinder(std::string_view field) : field_(field) {}

  void key(std::string&& name) override { is_wanted_ = depth_ == 1 && name == field_; }
  void value(Json&& scalar) override { keep(std::move(scalar)); }
  void start_object() override { open(); }
  void start_array() override { open(); }
  void end_object() override { --depth_; }
  void end_array() override { --depth_; }

  const Json& found() const { return found_; }

 private:
  // If a key is repeated, its last value counts.
  void keep(Json value) {
    if (is_wanted_) found_ = std::move(value);
    is_wanted_ = false;
  }
  void open() {
    keep(nullptr);
    ++depth_;
  }

  std::string_view field_;
  int64_t depth_ = 0;
  bool is_wanted_ = false;
  Json found_;
};

// Finds out whether a line is a non-empty JSON object, and whether it has one of the keys of
// training data.
class LineKeys final : public JsonVisitor {
 public:
  explicit LineKeys(std::string_view field) : field_(field) {}

  // Returns false for invalid or incomplete JSON. Keys before the error still count.
  bool read(std::string_view json) {
    depth_ = 0;
    try {
      visit_json(json, "", *this);
    } catch (const DataError&) {
      return false;
    }
    return true;
  }

  void key(std::string&& name) override {
    if (depth_ != 1) return;
    is_object = true;
    has_known = has_known || name == field_ || name == "messages" || name == "prompt" ||
                name == "shale.data";
  }
  void value(Json&&) override {}
  void start_object() override { ++depth_; }
  void start_array() override { ++depth_; }
  void end_object() override { --depth_; }
  void end_array() override { --depth_; }

  bool is_object = false, has_known = false;

 private:
  std::string_view field_;
  int64_t depth_ = 0;
};

// Byte order mark (U+FEFF), which some editors write.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string text_of_line(std::string_view line, std::string_view field, const std::string& place) {
  FieldFinder finder(field);
  visit_json(line, place, finder);
  if (!finder.found().is_string()) {
    throw DataError(cat(place, ": expected a string with the key '", excerpt(field), "', found ",
                        keys_text(Json::parse(line, {}, place)),
                        "; use --data-field KEY (of shale tokenize: --field)"));
  }
  return finder.found().text();
}

void check_text(std::string_view text, int64_t offset, const std::string& path) {
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    throw DataError(
        cat(path, ": byte 0 at position ", offset + static_cast<int64_t>(nul), ", expected text"));
  }
  if (const size_t broken = tokenizer_internal::find_broken_utf8(text); broken != text.npos) {
    throw DataError(cat(path, ": not UTF-8 at byte ", offset + static_cast<int64_t>(broken)));
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

}  // namespace

std::string keys_text(const Json& object) {
  constexpr size_t kShown = 6;
  if (!object.is_object() || object.empty()) return "none";
  std::string text;
  for (const auto& [key, value] :
       std::span(object.items()).first(std::min(object.size(), kShown))) {
    text += cat(text.empty() ? "'" : ", '", excerpt(key, 40), "'");
  }
  return cat(text, object.size() > kShown ? ", ..." : "");
}

TextKind find_kind(std::string text, ByteSource& source, std::string_view field) {
  constexpr size_t kReadBytes = size_t{1} << 16;
  bool at_end = false;
  const auto read_more = [&] {
    const size_t had = text.size();
    text.resize(had + std::max(kReadBytes, had));
    const size_t got = source.read(std::span(text).subspan(had));
    text.resize(had + got);
    at_end = got == 0;
  };
  TextKind kind = TextKind::kPlain;
  size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (int line = 0; line < 2; ++line) {
    while ((begin = text.find_first_not_of(" \t\r\n", begin)) == text.npos) {
      begin = text.size();
      if (!at_end) read_more();
      if (at_end) return kind;
    }
    if (line == 0 && text[begin] == '[') {
      const size_t item = text.find_first_not_of(" \t\r\n", begin + 1);
      return item != text.npos && text[item] == '{' ? TextKind::kRecords : TextKind::kJson;
    }
    if (text[begin] != '{') return kind;
    size_t newline = text.find('\n', begin);
    while (newline == text.npos && !at_end && text.size() - begin <= BatchReader::kMaxLineBytes) {
      const size_t from = text.size();
      read_more();
      newline = text.find('\n', from);
    }
    // the line is longer than the text that was read
    if (newline == text.npos && !at_end) return kind;
    LineKeys keys(field);
    if (!keys.read(std::string_view(text).substr(begin, newline - begin))) {
      if (line == 1) return kind;
      keys.read(std::string_view(text).substr(begin));
      return keys.has_known ? TextKind::kRecords : TextKind::kJson;
    }
    if (keys.has_known || (line == 1 && keys.is_object)) return TextKind::kJsonLines;
    if (!keys.is_object) return kind;
    kind = TextKind::kJson;
    begin = std::min(newline, text.size());
  }
  return kind;
}

void for_each_line(
    const DocumentBatch& batch, const CorpusFile& file,
    const std::function<void(std::string_view line, const std::string& place)>& on_line) {
  int64_t number = batch.begin.line;
  std::string_view rest = batch.text;
  if (batch.begin.offset == 0 && rest.starts_with(kByteOrderMark)) {
    rest.remove_prefix(kByteOrderMark.size());
  }
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    if (is_blank(line) || line.starts_with(kStreamEnd)) continue;
    if (number == 1 && line == kStreamBegin) continue;
    const std::string place = cat(file.path, ":", number);
    if (line == kStreamBegin) {
      throw DataError(cat(place,
                          ": a second stream of shale.data begins here, expected one stream; run "
                          "shale.data once with all paths, and keep its order of lines"));
    }
    if (line.size() > BatchReader::kMaxLineBytes) {
      throw DataError(cat(place, ": the line has more than ",
                          format_bytes(static_cast<double>(BatchReader::kMaxLineBytes)),
                          ", expected less"));
    }
    on_line(line, place);
  }
}

void for_each_document(const DocumentBatch& batch, const CorpusFile& file, std::string_view field,
                       const std::function<void(std::string_view text)>& on_document) {
  if (!file.is_jsonl) {
    check_text(batch.text, batch.begin.offset, file.path);
    on_document(batch.text);
    return;
  }
  for_each_line(batch, file, [&](std::string_view line, const std::string& place) {
    const std::string text = text_of_line(line, field, place);
    if (!text.empty()) on_document(text);
  });
}

}  // namespace shale
