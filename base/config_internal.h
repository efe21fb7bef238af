#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/removed_options.h"

namespace shale {

// A value in the JSON file. `found` describes it for error messages: "the string "12"", "an array".
struct JsonValue {
  // monostate stands for null, an array or an object, which no field accepts.
  std::variant<std::monostate, bool, int64_t, double, std::string> value;
  std::string found;
};

// One option: its help texts, and how to parse and print its value.
class ConfigField {
 public:
  ConfigField(std::string field_name, std::string field_help, HelpText help_text);
  virtual ~ConfigField() = default;

  // Returns false, without any change, if the value does not match expected().
  virtual bool assign_text(std::string_view text) = 0;
  virtual bool assign_json(const JsonValue& json) = 0;
  virtual std::string to_json() const = 0;
  virtual std::string expected() const = 0;    // "an integer of at least 1"
  virtual std::string value_text() const = 0;  // value as printed by --help; empty: not shown
  virtual std::string range_text() const { return ""; }
  virtual std::string default_metavar() const = 0;
  // Completions that a shell offers: words separated by spaces, "FILE" for paths, or empty.
  virtual std::string offered() const { return ""; }
  virtual bool is_bool() const { return false; }
  virtual bool in_limits() const { return true; }  // checks the field's current value

  // True if the default is found at run time and no value is set yet (null in JSON).
  bool is_open() const { return !is_set && !text.default_text.empty(); }
  std::string metavar() const { return text.metavar.empty() ? default_metavar() : text.metavar; }
  std::string key() const;      // name with '_' for '-'
  std::string spelled() const;  // name as users type it: --name, or the metavar of a positional

  const std::string name;
  const std::string help;
  const HelpText text;
  std::string default_value;  // value_text() before parsing
  std::string open_json;      // to_json() before parsing, only for options with is_open()
  bool positional = false;
  bool required = false;
  bool is_set = false;
  bool may_change = false;  // see ConfigOption::may_change()
  std::string brief;        // see ConfigOption::basic()
};

using FieldPtr = std::unique_ptr<ConfigField>;

FieldPtr make_int_field(std::string name, int& field, std::string help, IntLimits limits);
FieldPtr make_int_field(std::string name, int64_t& field, std::string help, IntLimits limits);
FieldPtr make_size_field(std::string name, int64_t& field, std::string help, IntLimits limits);
FieldPtr make_real_field(std::string name, float& field, std::string help, RealLimits limits);
FieldPtr make_real_field(std::string name, double& field, std::string help, RealLimits limits);
FieldPtr make_bool_field(std::string name, bool& field, std::string help);
FieldPtr make_text_field(std::string name, std::string& field, std::string help, TextLimits limits);
FieldPtr make_choice_field(std::string name, std::vector<std::string> names, size_t initial,
                           std::function<void(size_t)> assign, std::string help, HelpText text);

struct ConfigState {
  struct Section {
    std::string title;
    std::vector<ConfigField*> fields;
  };
  // Options that every program has. They are not part of the JSON file.
  struct Builtin {
    std::string config;
    bool print_config = false;
    bool version = false;
    std::string help;  // topic of "--help TOPIC"; parse_config() reads it before the other flags
  };

  std::string program;
  std::string summary;
  std::vector<std::string> examples;
  std::vector<Section> sections;
  std::vector<std::pair<std::string, std::string>> needs;  // see ConfigSpec::needs()
  std::vector<FieldPtr> fields;
  Builtin builtin;
  std::vector<FieldPtr> builtin_fields;  // point into `builtin`

  ConfigField& add(FieldPtr field);
  ConfigField* find(std::string_view name) const;  // null if there is no such option
};

// Sets fields from a file or from its text. Errors look like "FILE: key: expected ..., found ...".
void read_config_file(ConfigState& state, const std::string& path);
void read_config_text(ConfigState& state, std::string_view text, const std::string& source);

// Error text such as "--steps: expected an integer of at least 1, found 'x'".
std::string mismatch(std::string_view where, const ConfigField& field, std::string_view found);

// Error text such as "--optimizer 01-adam was removed; use --optimizer 1bit-adam".
std::string removed_message(std::string_view what, const RemovedOption& option);

// Returns what to use in place of an option that other trainers have: "use --lr" for
// "learning-rate". To ask about a value of an option, pass both as `name`: "device=gpu". Returns an
// empty string if the name is not known or the program has no such option.
std::string synonym_advice(const ConfigState& state, std::string_view name);

// Returns a table of all options, one a line, from which shell completions and manual pages are
// generated. Columns are separated by tabs: the command; "flag", "value" or "argument"; the
// spelling; the placeholder of the value; offered(); the help text as in --help; the section. The
// first line is different: its columns are the command, "summary", and as the sixth column the
// summary.
std::string option_table(const ConfigState& state);

}  // namespace shale
