#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/models/training/report/metrics.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale {
namespace {

constexpr JsonLimits kLineLimits = {.max_bytes = 16384, .max_depth = 1};

// Reader of the fields of a row. Errors name the key, the expected type and the value found.
class RowReader {
 public:
  RowReader(const Json& row, std::string where) : row_(row), where_(std::move(where)) {}

  bool has(const std::string& key) const { return row_.contains(key); }

  // Returns the name of the counted item: the word before "_per_s" in a key; "tokens" if there is
  // no such key.
  std::string item() const {
    const std::vector<std::string> words = words_in("", "_per_s");
    return words.empty() ? "tokens" : words.front();
  }
  // Returns the name of the counted item of a validation: the word after "val_" in a key that has
  // no other meaning.
  std::string evaluated_item() const {
    for (const std::string& word : words_in("val_", "")) {
      if (word != "loss" && word != "ms") return word;
    }
    return "tokens";
  }
  // Returns the top-k accuracies. k is the number after "val_top" in a key.
  std::map<int64_t, double> top_k() const {
    constexpr std::string_view kPrefix = "val_top";
    std::map<int64_t, double> shares;
    for (const auto& [key, value] : row_.items()) {
      if (!key.starts_with(kPrefix)) continue;
      const std::optional<int64_t> k = parse_int(std::string_view(key).substr(kPrefix.size()));
      if (!k) continue;
      const std::optional<double> share = optional_number(key);
      if (!share || *share < 0 || *share > 1) fail(key, "a number from 0 to 1", value);
      shares[*k] = *share;
    }
    return shares;
  }
  // Returns the results of a validation other than loss, items, time and top-k accuracies.
  std::map<std::string, double> more(const std::string& item) const {
    std::map<std::string, double> figures = numbers_with("val_");
    for (const std::string& word : {std::string("loss"), std::string("ms"), item}) {
      figures.erase(word);
    }
    return figures;
  }
  // Returns the known numbers whose keys begin with `prefix`. Their names are the rest of the key.
  std::map<std::string, double> numbers_with(const std::string& prefix) const {
    std::map<std::string, double> numbers;
    for (const std::string& word : words_in(prefix, "")) {
      if (const auto value = optional_number(prefix + word)) numbers[word] = *value;
    }
    return numbers;
  }
  double number(const std::string& key) const {
    const auto value = optional_number(key);
    if (!value) fail(key, "a number", at(key));
    return *value;
  }
  // Returns the bytes sent. Rows of runs with one rank, and older rows, have none.
  std::optional<SentBytes> sent() const {
    if (!has("sent_gradients_bytes")) return std::nullopt;
    SentBytes sent{.gradients = number("sent_gradients_bytes"),
                   .parameters = number("sent_parameters_bytes"),
                   .activations = number("sent_activations_bytes")};
    if (has("sent_replicas_bytes")) sent.replicas = number("sent_replicas_bytes");
    return sent;
  }
  // Returns the fields of MoE models; a row has either all or none of them.
  std::optional<ExpertMetrics> experts() const {
    if (!has("expert_tokens_min")) return std::nullopt;
    return ExpertMetrics{.tokens_min = number("expert_tokens_min"),
                         .tokens_mean = number("expert_tokens_mean"),
                         .tokens_max = number("expert_tokens_max"),
                         .dropped_share = number("dropped_share")};
  }
  // Returns the values in a row about all ranks. Their names are the keys that end in "_median",
  // without this ending.
  std::map<std::string, std::optional<Spread>> figures() const {
    std::map<std::string, std::optional<Spread>> figures;
    for (const std::string& name : words_in("", "_median")) figures[name] = spread(name);
    return figures;
  }

  int64_t count(const std::string& key) const {
    const std::optional<int64_t> value = at(key).int64();
    if (!value || *value < 0) fail(key, "an integer of at least 0", at(key));
    return *value;
  }
  std::optional<int64_t> optional_count(const std::string& key) const {
    if (at(key).is_null()) return std::nullopt;
    return count(key);
  }
  std::optional<double> optional_number(const std::string& key) const {
    const Json& value = at(key);
    if (value.is_null()) return std::nullopt;
    if (!value.is_number()) fail(key, "a number or null", value);
    return value.real();
  }
  // Returns a loss; null stands for a non-finite value.
  float loss(const std::string& key) const {
    const auto value = optional_number(key);
    if (!value) return std::numeric_limits<float>::quiet_NaN();
    // The 9 digits of the largest float may round to a number that is slightly larger.
    const auto narrow = static_cast<float>(*value);
    if (!std::isfinite(narrow)) fail(key, "a number that fp32 can hold", at(key));
    return narrow;
  }
  float bits(const std::string& key) const {
    const Json& value = at(key);
    const std::string text = value.is_string() ? value.text() : "";
    uint32_t bits = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
    if (text.size() != 8 || error != std::errc{} || end != text.data() + text.size()) {
      fail(key, "8 hex digits", value);
    }
    return std::bit_cast<float>(bits);
  }

 private:
  // Returns the text between prefix and suffix of each key that has both, in the order of the row.
  std::vector<std::string> words_in(std::string_view prefix, std::string_view suffix) const {
    std::vector<std::string> words;
    for (const auto& [key, value] : row_.items()) {
      if (!key.starts_with(prefix) || !key.ends_with(suffix)) continue;
      if (key.size() <= prefix.size() + suffix.size()) continue;
      const std::string word =
          std::string(key).substr(prefix.size(), key.size() - prefix.size() - suffix.size());
      const auto in_word = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
      if (std::all_of(word.begin(), word.end(), in_word)) words.push_back(word);
    }
    return words;
  }
  std::optional<Spread> spread(const std::string& name) const {
    const auto median = optional_number(name + "_median");
    if (!median) return std::nullopt;
    const auto number = [&](const char* what) {
      const auto value = optional_number(name + what);
      if (!value) fail(name + what, "a number", at(name + what));
      return *value;
    };
    const auto rank = [&](const char* what) {
      const int64_t value = count(name + what);
      if (value > std::numeric_limits<int>::max()) fail(name + what, "a rank", at(name + what));
      return static_cast<int>(value);
    };
    return Spread{.least = number("_min"),
                  .median = *median,
                  .most = number("_max"),
                  .least_rank = rank("_min_rank"),
                  .most_rank = rank("_max_rank")};
  }
  const Json& at(const std::string& key) const {
    const Json* value = row_.find(key);
    if (value == nullptr) throw DataError(cat(where_, ": the key \"", key, "\" is missing"));
    return *value;
  }
  [[noreturn]] void fail(const std::string& key, std::string_view expected,
                         const Json& found) const {
    throw DataError(
        cat(where_, ": ", key, ": expected ", expected, ", found ", excerpt(found.dump())));
  }

  const Json& row_;
  const std::string where_;
};

MetricsRow row_of(std::string_view line, const std::string& where) {
  const Json object = Json::parse(line, kLineLimits, where);
  if (!object.is_object())
    throw DataError(cat(where, ": expected an object, found ", excerpt(line)));
  const RowReader row(object, where);
  if (row.has("val_loss")) {
    EvalMetrics metrics{.step = row.count("step"), .val_loss = row.loss("val_loss")};
    if (row.has("ema_val_loss")) metrics.ema_val_loss = row.optional_number("ema_val_loss");
    metrics.top_k = row.top_k();
    metrics.item = row.evaluated_item();
    const std::string items = "val_" + metrics.item;
    if (row.has(items)) metrics.items = row.optional_count(items);  // not in files of version 0.1
    if (row.has("val_ms")) metrics.ms = row.optional_number("val_ms");
    metrics.more = row.more(metrics.item);
    return metrics;
  }
  if (row.has("ranks")) {
    return RanksMetrics{
        .step = row.count("step"), .ranks = row.count("ranks"), .figures = row.figures()};
  }
  const std::string item = row.item();
  return StepMetrics{
      .step = row.count("step"),
      .loss = row.bits("loss_bits"),
      .grad_norm = row.optional_number("grad_norm"),
      .lr = row.optional_number("lr"),
      .item = item,
      .items = row.optional_count(item),
      .items_per_s = row.optional_number(item + "_per_s"),
      .step_ms = row.optional_number("step_ms"),
      .comm_exposed_ms = row.optional_number("comm_exposed_ms"),
      .mfu = row.optional_number("mfu"),
      .device_peak_bytes = row.optional_count("device_peak_bytes"),
      .host_peak_bytes = row.optional_count("host_peak_bytes"),
      .epoch = row.has("epoch") ? row.optional_number("epoch") : std::nullopt,
      .data_wait_ms = row.has("data_wait_ms") ? row.optional_number("data_wait_ms") : std::nullopt,
      .bubble_ms = row.has("bubble_ms") ? row.optional_number("bubble_ms") : std::nullopt,
      .sent = row.sent(),
      .loss_scale = row.has("loss_scale") ? row.optional_number("loss_scale") : std::nullopt,
      .skipped_steps =
          row.has("skipped_steps") ? row.optional_count("skipped_steps") : std::nullopt,
      .outlier_steps =
          row.has("outlier_steps") ? row.optional_count("outlier_steps") : std::nullopt,
      .experts = row.experts(),
      .more = row.numbers_with("own_")};
}

// Calls visit(line, row) for each complete line; `line` includes its newline.
void for_each_row(std::string_view text, const std::string& source,
                  const std::function<void(std::string_view, const MetricsRow&)>& visit) {
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == text.npos) return;
    visit(text.substr(0, end + 1), row_of(text.substr(0, end), cat(source, ":", number)));
    text.remove_prefix(end + 1);
  }
}

// Returns the last line, without its newline, of a text that ends with one.
std::string_view last_line(std::string_view text) {
  text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);  // without '\n', npos + 1 is 0: the whole text
}

// Returns the step at the beginning of a row; nullopt: the line is not a row.
std::optional<int64_t> step_of(std::string_view line) {
  constexpr std::string_view kBegin = "{\"step\": ";
  if (!line.starts_with(kBegin) || !line.ends_with('}')) return std::nullopt;
  line.remove_prefix(kBegin.size());
  return parse_int(line.substr(0, line.find(',')));
}

bool is_valid(std::string_view line) {
  try {
    row_of(line, "");
    return true;
  } catch (const DataError&) {
    return false;
  }
}

// Maps the file into memory, because the file of a long run is larger than its parsed rows.
MappedFile map(const std::string& path) {
  return MappedFile(path, {.pattern = AccessPattern::kSequential, .allow_empty = true});
}

}  // namespace

std::vector<MetricsRow> parse_metrics(std::string_view text, const std::string& source) {
  std::vector<MetricsRow> rows;
  for_each_row(text, source,
               [&rows](std::string_view, const MetricsRow& row) { rows.push_back(row); });
  return rows;
}

std::vector<MetricsRow> read_metrics(const std::string& path) {
  const MappedFile file = map(path);
  std::vector<MetricsRow> rows = parse_metrics(file.text(), path);
  file.check();
  return rows;
}

std::vector<MetricsRow> read_newest_metrics(const std::string& path, size_t bytes) {
  const MappedFile file(path, {.allow_empty = true});
  std::string_view text = file.text();
  if (text.size() > bytes) {
    text.remove_prefix(text.size() - bytes);
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  std::vector<MetricsRow> rows = parse_metrics(text, path);
  file.check();
  return rows;
}

// Reads from the end, because the file of a long run has millions of rows before the last step.
int64_t drop_metrics_after(const std::string& path, int64_t last_step) {
  if (!std::filesystem::exists(path)) return 0;
  const MappedFile old(path, {.allow_empty = true});
  std::string_view kept = old.text();
  kept = kept.substr(0, kept.rfind('\n') + 1);  // without '\n', npos + 1 is 0: nothing
  int64_t dropped = 0;
  std::string_view damaged;  // first damaged line after the rows to keep
  while (!kept.empty()) {
    const std::string_view line = last_line(kept);
    const std::optional<int64_t> step = step_of(line);
    const bool is_row = step && (*step > last_step || is_valid(line));
    if (is_row && *step <= last_step) break;
    if (!is_row) damaged = line;
    dropped += is_row ? 1 : 0;
    kept.remove_suffix(line.size() + 1);
  }
  // Rows after the last step may be damaged, because they were not synced. Other rows must not be
  // damaged.
  if (damaged.data() != nullptr) {
    const bool has_last = !kept.empty() && step_of(last_line(kept)) == last_step;
    const auto before = std::count(old.text().data(), damaged.data(), '\n');
    const std::string where = cat(path, ":", before + 1);
    if (!has_last) {
      row_of(damaged, where);
      throw DataError(cat(where, ": is not a row of metrics"));
    }
    log_warning(where, ": is not a row of metrics; dropped it and all rows after step ", last_step);
  }
  const size_t bytes = kept.size(), all = old.text().size();
  old.check();
  if (bytes == all) return 0;
  const FileHandle file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.is_open() || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fsync(file.get()) != 0) {
    throw DiskError(cat(path, ": cannot be shortened to ", bytes, " bytes: ", std::strerror(errno),
                        " (errno ", errno, ")"));
  }
  return dropped;
}

}  // namespace shale
