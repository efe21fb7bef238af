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

// Options of another trainer while they become ours. Every key of theirs is taken once: it becomes
// an option, is left out because it changes no result, or has no counterpart, which is a problem
// unless it is waived.
class ConfigImport {
 public:
  // `theirs`: objects inside objects; keys are joined by dots from here on. ranks: 0: not known.
  ConfigImport(const Json& theirs, int64_t ranks, std::set<std::string> waived);

  bool has(const std::string& key) const { return values_.contains(key); }
  // Whether the key is there with this value, such as null or "auto".
  bool is(const std::string& key, const Json& value) const;
  // Takes a key; nothing if it is not there, null, or "auto", which leaves it to who starts the
  // run.
  std::optional<Json> take(const std::string& key);
  std::optional<double> number(const std::string& key);
  std::optional<std::vector<double>> numbers(const std::string& key);  // a list
  std::optional<int64_t> integer(const std::string& key);  // also written 5e8
  std::optional<bool> flag(const std::string& key);
  std::optional<std::string> text(const std::string& key);

  // Takes a key whose value, a number or a text that is one, is our option's.
  void maps(const std::string& key, const std::string& option);
  // The same, with what theirs is without the key, or where it is null.
  void maps(const std::string& key, const std::string& option, const Json& fallback);
  // The same of a text.
  void maps_text(const std::string& key, const std::string& option);
  // Sets an option, because of `key`.
  void set(const std::string& option, const Json& value, std::string_view key);
  bool is_set(const std::string& option) const { return options_.contains(option); }
  const Json& option(const std::string& name) const { return options_[name]; }

  // Takes keys that only say how fast something is done, or what is printed.
  void leave_out(const std::vector<std::string>& keys, std::string_view why);
  // Takes a key that is there, which has no counterpart.
  void refuse(const std::string& key, std::string_view why);
  // A key that is not there, and whose default has no counterpart.
  void lacks(const std::string& key, std::string_view why);
  // A key that is there, if it has another value than this one, which asks for nothing, or is an
  // object with anything in it. A text that is a number counts as one.
  void refuse_unless(const std::string& key, const Json& harmless, std::string_view why);
  // All keys that begin so and were not taken.
  void leave_out_rest(std::string_view prefix, std::string_view why);

  int64_t ranks() const { return ranks_; }
  // Sequences of a step, from those of a rank and forward and how many of those add up.
  void set_global_batch(int64_t micro_batch, int64_t accumulated, std::string_view key);

  // What was not taken is a problem, unless it is null.
  void finish();
  const Json& options() const { return options_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::optional<Json> numeric(const std::string& key);
  [[noreturn]] void mistyped(const std::string& key, std::string_view want,
                             const Json& found) const;

  std::map<std::string, Json> values_;  // by dotted key
  const int64_t ranks_;
  const std::set<std::string> waived_;
  std::set<std::string> taken_;
  Json options_ = Json::object();  // ours, as --config reads them
  std::vector<std::string> notes_;
  std::vector<std::string> problems_;
};

// Their names in a table of names, for messages: "a, b, c".
std::string keys_of(const std::map<std::string, std::string>& names);

// One for each trainer. Each takes the other side's default where a key is missing and ours is
// another.
void import_deepspeed(ConfigImport& in);   // its JSON
void import_torchtitan(ConfigImport& in);  // its TOML, or its dotted options
void import_trainer(ConfigImport& in);     // Hugging Face's TrainingArguments

// TOML; dates and times become text. Throws DataError, with `source` and line, for what is no TOML,
// for inf and nan, and for tables deeper inside each other than JsonLimits allows.
Json parse_toml(std::string_view text, const std::string& source);

}  // namespace shale::models
