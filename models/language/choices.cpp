#include <algorithm>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/models/language/likelihood.h"
#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/data/jinja/python_text.h"

namespace shale::models {
namespace {

std::string stripped(const std::string& text) {
  return std::string(jinja::strip(text, jinja::Side::kBoth));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Removes WikiHow markup from a text, as lm-evaluation-harness does.
std::string cleaned(const std::string& text) {
  std::string clean = stripped(text);
  replace_all(clean, " [title]", ". ");
  for (size_t open = clean.find('['); open != clean.npos; open = clean.find('[', open)) {
    const size_t close = clean.find(']', open);
    if (close == clean.npos) break;
    const size_t line = clean.find('\n', open);
    if (line < close) {
      ++open;  // the bracket does not close on this line: keep it
      continue;
    }
    clean.erase(open, close + 1 - open);
  }
  // Replaces double spaces in a single pass, like Python's str.replace.
  std::string single;
  for (size_t i = 0; i < clean.size(); ++i) {
    single += clean[i];
    if (clean[i] == ' ' && i + 1 < clean.size() && clean[i + 1] == ' ') ++i;
  }
  return single;
}

// Makes the first letter a capital and the other letters small. ASCII only.
std::string capitalized(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    char& c = text[i];
    if (i == 0 && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (i > 0 && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// JSON object in a line, read key by key.
class Line {
 public:
  Line(std::string_view line, std::string place) : place_(std::move(place)) {
    object_ = Json::parse(line, {}, place_);
    if (!object_.is_object()) fail("is not a JSON object");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(cat(place_, ": ", what));
  }
  bool has(const char* key) const { return object_.contains(key); }
  std::string text(const char* key) const { return text_of(member(object_, key), key); }
  std::vector<std::string> texts(const char* key) const {
    return texts_of(member(object_, key), key);
  }
  std::vector<std::string> texts(const char* key, const char* inner) const {
    return texts_of(member(member(object_, key), inner), inner);
  }
  // Reads a number, or a string of digits.
  int64_t index(const char* key, size_t count) const {
    const Json& value = member(object_, key);
    const std::optional<int64_t> found =
        value.is_string() ? parse_int(value.text()) : value.int64();
    if (!found || *found < 0 || *found >= static_cast<int64_t>(count)) {
      fail(cat("'", key, "' is ", excerpt(value.dump()), ", expected 0 to ", count - 1));
    }
    return *found;
  }

 private:
  const Json& member(const Json& of, const char* key) const {
    if (!of.contains(key)) fail(cat("no '", key, "'"));
    return of[key];
  }
  std::string text_of(const Json& value, const char* key) const {
    if (!value.is_string())
      fail(cat("'", key, "' is ", excerpt(value.dump()), ", expected a string"));
    return value.text();
  }
  std::vector<std::string> texts_of(const Json& list, const char* key) const {
    if (!list.is_array() || list.size() < 2) {
      fail(cat("'", key, "' is ", excerpt(list.dump()), ", expected at least two strings"));
    }
    std::vector<std::string> all;
    for (const Json& value : list) all.push_back(text_of(value, key));
    return all;
  }

  std::string place_;
  Json object_;
};

ChoiceItem hellaswag(const Line& line) {
  ChoiceItem item;
  item.context = cleaned(cat(line.text("activity_label"), ": ", line.text("ctx_a"), " ",
                             capitalized(line.text("ctx_b"))));
  for (const std::string& ending : line.texts("endings")) item.answers.push_back(cleaned(ending));
  item.right = line.index("label", item.answers.size());
  return item;
}

ChoiceItem arc(const Line& line) {
  ChoiceItem item{.context = cat("Question: ", line.text("question"), "\nAnswer:"),
                  .answers = line.texts("choices", "text")};
  const std::vector<std::string> labels = line.texts("choices", "label");
  const std::string key = line.text("answerKey");
  const auto found = std::find(labels.begin(), labels.end(), key);
  if (found == labels.end() || labels.size() != item.answers.size()) {
    line.fail(cat("the answer '", excerpt(key), "' is not one of the labels"));
  }
  item.right = found - labels.begin();
  return item;
}

ChoiceItem mmlu(const Line& line) {
  ChoiceItem item;
  if (line.has("subject")) {
    std::string subject = line.text("subject");
    std::replace(subject.begin(), subject.end(), '_', ' ');
    item.context =
        cat("The following are multiple choice questions (with answers) about ", subject, ".\n\n");
  }
  item.context += stripped(line.text("question"));
  const std::vector<std::string> choices = line.texts("choices");
  constexpr size_t kLetters = 26;
  if (choices.size() > kLetters) {
    line.fail(cat("'choices' has ", choices.size(), " entries, expected at most ", kLetters,
                  " (A to Z)"));
  }
  char letter = 'A';
  for (const std::string& choice : choices) {
    item.context += cat("\n", letter, ". ", choice);
    item.answers.emplace_back(1, letter++);
  }
  item.context += "\nAnswer:";
  item.right = line.index("answer", item.answers.size());
  return item;
}

}  // namespace

std::vector<ChoiceItem> read_choices(const std::string& path, ChoiceFormat format) {
  const std::vector<CorpusFile> files = list_corpus({path});
  BatchReader reader(files, [](std::string_view text, size_t) { return text.size(); });
  std::vector<ChoiceItem> items;
  for (DocumentBatch batch; reader.next(batch);) {
    const CorpusFile& file = files[static_cast<size_t>(batch.begin.file)];
    for_each_line(batch, file, [&](std::string_view text, const std::string& place) {
      const Line line(text, place);
      items.push_back(format == ChoiceFormat::kHellaSwag ? hellaswag(line)
                      : format == ChoiceFormat::kArc     ? arc(line)
                                                         : mmlu(line));
    });
  }
  if (items.empty()) throw DataError(cat(path, ": found no questions, expected one per line"));
  return items;
}

}  // namespace shale::models
