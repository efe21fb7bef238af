#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale {
namespace {

// Follows the parser through one object and keeps the string under a key.
class FieldFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldFinder(std::string_view field) : field_(field) {}

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    is_wanted_ = depth_ == 1 && name == field_;
    return true;
  }
  bool string(string_t& value) override {
    if (!is_wanted_) return other();
    found_ = std::move(value);
    is_wanted_ = false;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    broken_at_ = position;
    return false;
  }

  std::optional<std::string>& found() { return found_; }
  const std::optional<size_t>& broken_at() const { return broken_at_; }

 private:
  bool other() {
    if (is_wanted_) found_.reset();  // of two equal keys the last one counts
    is_wanted_ = false;
    return true;
  }
  bool open() {
    other();
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::string_view field_;
  int64_t depth_ = 0;
  bool is_wanted_ = false;
  std::optional<std::string> found_;
  std::optional<size_t> broken_at_;
};

std::string text_of_line(std::string_view line, std::string_view field, const std::string& place) {
  FieldFinder finder(field);
  const bool is_json = nlohmann::json::sax_parse(line.begin(), line.end(), &finder);
  if (finder.broken_at()) {
    throw DataError(cat(place, ": not valid JSON at byte ", *finder.broken_at(), " of the line"));
  }
  if (!is_json || !finder.found()) {
    throw DataError(
        cat(place, ": no string under '", excerpt(field), "', want an object that has one"));
  }
  return std::move(*finder.found());
}

void check_text(std::string_view text, int64_t offset, const std::string& path) {
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    throw DataError(cat(path, ": byte 0 at position ", offset + static_cast<int64_t>(nul),
                        ", want text, which has none"));
  }
  if (const size_t broken = tokenizer_internal::find_broken_utf8(text); broken != text.npos) {
    throw DataError(cat(path, ": not UTF-8 at byte ", offset + static_cast<int64_t>(broken)));
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

}  // namespace

void for_each_line(
    const DocumentBatch& batch, const CorpusFile& file,
    const std::function<void(std::string_view line, const std::string& place)>& on_line) {
  int64_t number = batch.begin.line;
  std::string_view rest = batch.text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    if (is_blank(line)) continue;
    const std::string place = cat(file.path, ":", number);
    if (line.size() > BatchReader::kMaxLineBytes) {
      throw DataError(cat(place, ": a line of more than ",
                          format_bytes(static_cast<double>(BatchReader::kMaxLineBytes)),
                          ", want less"));
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
