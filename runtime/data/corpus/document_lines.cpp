#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale {
namespace {

// Keeps the string under a key of an object.
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
  // Of two equal keys the last one counts.
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

std::string text_of_line(std::string_view line, std::string_view field, const std::string& place) {
  FieldFinder finder(field);
  visit_json(line, place, finder);
  if (!finder.found().is_string()) {
    throw DataError(
        cat(place, ": no string under '", excerpt(field), "', want an object that has one"));
  }
  return finder.found().text();
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
