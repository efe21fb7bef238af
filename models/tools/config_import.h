#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/json.h"
#include "shale/base/text.h"

namespace shale::models {

// Converts options of another trainer to Shale's. Every key of the source is taken once: it becomes
// an option, is left out because it does not change results, or has no counterpart, which is a
// problem unless it is waived.
class ConfigImport {
 public:
  // theirs: source options; nested keys are joined with dots. ranks: number of ranks; 0: unknown.
  ConfigImport(const Json& theirs, int64_t ranks, std::set<std::string> waived);

  bool has(const std::string& key) const { return values_.contains(key); }
  // Returns true if the key exists with this value, such as null or "auto".
  bool is(const std::string& key, const Json& value) const;
  // Takes a key. Returns nothing if it is missing, null, or "auto", for which the command that
  // starts the run decides.
  std::optional<Json> take(const std::string& key);
  std::optional<double> number(const std::string& key);
  std::optional<std::vector<double>> numbers(const std::string& key);  // a list of numbers
  std::optional<int64_t> integer(const std::string& key);  // accepts numbers such as 5e8 too
  std::optional<bool> flag(const std::string& key);
  std::optional<std::string> text(const std::string& key);

  // Takes a key and sets Shale's `option` to its value: a number, or a text with a number.
  void maps(const std::string& key, const std::string& option);
  // Like maps(), but sets `option` to `fallback`, the source's default, if the key is missing or
  // null.
  void maps(const std::string& key, const std::string& option, const Json& fallback);
  // Takes a key and sets Shale's `option` to its text.
  void maps_text(const std::string& key, const std::string& option);
  // Sets Shale's `option`; `key` is the key that caused it, for notes.
  void set(const std::string& option, const Json& value, std::string_view key);
  bool is_set(const std::string& option) const { return options_.contains(option); }
  const Json& option(const std::string& name) const { return options_[name]; }

  // Takes keys that affect only speed or output, and notes `why` they are left out.
  void leave_out(const std::vector<std::string>& keys, std::string_view why);
  // Takes an existing key that Shale cannot express, and reports it as a problem.
  void refuse(const std::string& key, std::string_view why);
  // Reports a missing key as a problem, because Shale cannot express its default.
  void lacks(const std::string& key, std::string_view why);
  // Takes a key if it exists, and refuses it unless it has the value `harmless`, or is an empty
  // object. A text with a number counts as the number.
  void refuse_unless(const std::string& key, const Json& harmless, std::string_view why);
  // Takes all remaining keys with this prefix, and notes `why` they are left out.
  void leave_out_rest(std::string_view prefix, std::string_view why);

  int64_t ranks() const { return ranks_; }
  // Sets the global batch to micro_batch * accumulated * ranks sequences. micro_batch: sequences
  // per rank and forward; accumulated: forwards per step; key: source key, for messages.
  void set_global_batch(int64_t micro_batch, int64_t accumulated, std::string_view key);

  // Reports every key that was not taken and is not null as a problem.
  void finish();
  const Json& options() const { return options_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::optional<Json> numeric(const std::string& key);
  [[noreturn]] void mistyped(const std::string& key, std::string_view want,
                             const Json& found) const;

  std::map<std::string, Json> values_;  // options of the source by dotted key
  const int64_t ranks_;
  const std::set<std::string> waived_;
  std::set<std::string> taken_;
  Json options_ = Json::object();  // Shale's options, in the format of --config
  std::vector<std::string> notes_;
  std::vector<std::string> problems_;
};

// Lists the keys of a table for messages: "a, b, c".
std::string keys_of(const std::map<std::string, std::string>& names);

// Importers, one per trainer. Each sets the trainer's default for a missing key if Shale's differs.
void import_deepspeed(ConfigImport& in);   // DeepSpeed JSON
void import_torchtitan(ConfigImport& in);  // TOML, or dotted options
void import_trainer(ConfigImport& in);     // Hugging Face TrainingArguments

// Parses TOML; dates and times become text. Throws DataError, with `source` and line, for invalid
// TOML, inf and nan, and tables nested deeper than JsonLimits allows.
Json parse_toml(std::string_view text, const std::string& source);

}  // namespace shale::models
