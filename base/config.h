#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shale {

// Options of a program. They are declared once, for the fields of a plain struct. Then they are
// read from the command line and a JSON file, and printed by --help and --print-config.
//
//   struct TrainConfig {
//     int64_t steps = 1000;
//     float lr = 3e-4f;
//   };
//   void describe(ConfigSpec& spec, TrainConfig& c) {
//     spec.section("Optimizer");
//     spec.add("steps", c.steps, "optimizer steps", {.min = 1});
//     spec.add("lr", c.lr, "peak learning rate", {.min = 0});
//   }
//
// The flag is --steps; the JSON key is the same with '_' for '-'. The default of an option is the
// value that its field has when it is added.

// How --help shows a field. All members are optional.
struct HelpText {
  std::string metavar = "";  // placeholder for the value: "N", "SECONDS", "PATH"
  std::string unit = "";     // unit of the default: "s", "steps"
  // Text that --help shows if the default is found at run time: "all cores". The field's initial
  // value then only means that no value is set: it may be outside the limits, and is null in JSON.
  std::string default_text = "";
};

// Limits of a number. They are inclusive, except where exclude_min or exclude_max is set.
struct IntLimits {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  HelpText help = {};
};
struct RealLimits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool exclude_min = false;
  bool exclude_max = false;
  bool may_be_auto = false;  // the word auto is accepted too, and makes the field -1
  HelpText help = {};
};
struct TextLimits {
  bool required = false;  // an error if it is not set, except with --print-config
  bool is_path = false;   // the value must be non-empty, without control characters
  HelpText help = {};
};

struct ConfigField;
struct ConfigState;
struct ParseResult;

// A declared option, for setting further properties of it.
class ConfigOption {
 public:
  ConfigOption(ConfigField& field) : field_(field) {}
  // Allows a resumed run to have another value than the run before.
  ConfigOption& may_change();
  // Makes --help without a topic show the option, with `brief` instead of its full text.
  ConfigOption& basic(std::string brief);

 private:
  ConfigField& field_;
};

// Type of an option whose value is chosen by name. Strings have a separate add_choice().
template <typename T>
concept ChoiceValue = !std::is_same_v<T, std::string>;

// The options that a program declares: its flags and the keys of its --config file.
class ConfigSpec {
 public:
  // `summary` describes the program in one line for --help, without the program's name.
  ConfigSpec(std::string program, std::string summary);
  ~ConfigSpec();
  ConfigSpec(ConfigSpec&&) noexcept;
  ConfigSpec& operator=(ConfigSpec&&) noexcept;

  void section(std::string title);    // starts a section, for the fields added next
  void example(std::string command);  // adds a line under "Examples"

  // `name` is the flag without dashes. The field must outlive parsing. Throws InternalError if the
  // name is taken, is not made of a-z, 0-9 and '-', or if the default breaks the limits.
  ConfigOption add(std::string name, int& field, std::string help, IntLimits limits = {});
  ConfigOption add(std::string name, int64_t& field, std::string help, IntLimits limits = {});
  ConfigOption add(std::string name, float& field, std::string help, RealLimits limits = {});
  ConfigOption add(std::string name, double& field, std::string help, RealLimits limits = {});
  ConfigOption add(std::string name, bool& field, std::string help);  // --name or --name=true|false
  ConfigOption add(std::string name, std::string& field, std::string help, TextLimits limits = {});
  // Adds an option whose value is a size in bytes: "512MiB", "2GiB", "1e6".
  ConfigOption add_size(std::string name, int64_t& bytes, std::string help, IntLimits limits = {});
  // Adds an option whose value is a string that must be one of `names`.
  ConfigOption add_choice(std::string name, std::string& field, std::vector<std::string> names,
                          std::string help, HelpText text = {});
  // Adds an option that chooses a value, such as an enum's, by name: {{"cosine", kCosine}, ...}.
  template <ChoiceValue Value>
  ConfigOption add_choice(std::string name, Value& field,
                          std::vector<std::pair<std::string, Value>> choices, std::string help,
                          HelpText text = {});
  // Declares that the options `names` (separated by spaces) have no effect without one of `wanted`,
  // such as "--zero 3 or --offload". A flag without a value in `wanted` stands for any value but
  // its default, 0 and none. parse_config() throws if an option in `names` is set to a value other
  // than its default, and nothing in `wanted` is set. Ignores flags in `wanted` that the program
  // does not have.
  void needs(std::string names, std::string wanted);
  // Adds a positional argument after the earlier ones. Its JSON key is the name.
  void add_positional(std::string name, std::string& field, std::string help,
                      TextLimits limits = {});

  // Returns whether the option was set. Throws InternalError for an unknown name.
  bool was_set(std::string_view name) const;

  std::string help(int columns = 80) const;  // help text of all options, wrapped to this width
  // Returns what "--help TOPIC" prints:
  // - an empty topic: all options if they fit into 60 lines, otherwise the basic ones and the names
  //   of the groups, which come from the section titles;
  // - "all": all options;
  // - a group's name, or a unique prefix of it: that group;
  // - "table": option_table().
  //
  // Throws ConfigError, which lists the groups, for another topic.
  std::string help_about(std::string_view topic) const;
  std::string to_json() const;  // all fields, as JSON that --config reads back to the same values
  // Sets fields from the text of a --config file; `source` names it in error messages. Throws the
  // same errors as parse_config() does for a file.
  void read_json(std::string_view text, const std::string& source);
  // Flag names and their current values as JSON, in the order of declaration.
  std::vector<std::pair<std::string, std::string>> values() const;
  // Options whose default is found at run time, each with its field's initial value as JSON.
  std::map<std::string, std::string> open_values() const;
  // Names of the options that may change when a run resumes, see ConfigOption::may_change().
  std::vector<std::string> changeable() const;

 private:
  friend ParseResult parse_config(ConfigSpec& spec, int argc, const char* const* argv);
  ConfigOption add_indexed(std::string name, std::vector<std::string> names, size_t initial,
                           std::function<void(size_t)> assign, std::string help, HelpText text);
  std::unique_ptr<ConfigState> state_;
};

// Result of parse_config().
struct ParseResult {
  bool should_exit = false;  // --help, --version or --print-config: print `output` and exit with 0
  std::string output;
};

// Sets the described fields, first from --config FILE.json, then from the flags. If a flag is given
// several times, the last one counts. Skips argv[0]. Throws ConfigError, which names the flag or
// key, what was expected and what was found; MissingInputError if FILE.json does not exist.
ParseResult parse_config(ConfigSpec& spec, int argc, const char* const* argv);

template <ChoiceValue Value>
ConfigOption ConfigSpec::add_choice(std::string name, Value& field,
                                    std::vector<std::pair<std::string, Value>> choices,
                                    std::string help, HelpText text) {
  std::vector<std::string> names;
  size_t initial = choices.size();
  for (size_t i = 0; i < choices.size(); ++i) {
    names.push_back(choices[i].first);
    if (choices[i].second == field) initial = i;
  }
  const auto assign = [&field, choices = std::move(choices)](size_t i) {
    field = choices[i].second;
  };
  return add_indexed(std::move(name), std::move(names), initial, assign, std::move(help),
                     std::move(text));
}

}  // namespace shale
