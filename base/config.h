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

// Options of a program: declared once for a plain struct, read from the command line and from a
// JSON file, printed by --help and --print-config.
//
//   struct TrainConfig { int64_t steps = 1000; float lr = 3e-4f; };
//   void describe(ConfigSpec& spec, TrainConfig& c) {
//     spec.section("Optimizer");
//     spec.add("steps", c.steps, "optimizer steps", {.min = 1});
//     spec.add("lr", c.lr, "peak learning rate", {.min = 0});
//   }
//
// The flag is --steps, the JSON key is the same with '_' for '-'. What the struct holds when a
// field is added is its default.

// How a field looks in --help; every field may leave all of it out.
struct HelpText {
  std::string metavar = "";  // what stands for the value: "N", "SECONDS", "PATH"
  std::string unit = "";     // of the default: "s", "steps"
  // For a default that is found at run time: "all cores". The field's initial value only marks
  // that, so it may break the limits, and JSON has null until a value is set.
  std::string default_text = "";
};

// The value must be in [min, max], or the open ends of that.
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
  HelpText help = {};
};
struct TextLimits {
  bool required = false;  // an error if it is not set, except with --print-config
  bool is_path = false;   // not empty ("$FOLDER" without a FOLDER), no control characters
  HelpText help = {};
};

struct ConfigField;
struct ConfigState;
struct ParseResult;

// An option that was declared, to say more of it.
class ConfigOption {
 public:
  ConfigOption(ConfigField& field) : field_(field) {}
  // A run that goes on after a stop may have another value than before.
  ConfigOption& may_change();
  // --help shows it, with this in place of its whole text, where the text of all options is long.
  ConfigOption& basic(std::string brief);

 private:
  ConfigField& field_;
};

// Value that an option chooses from a list; strings have an overload of their own.
template <typename T>
concept ChoiceValue = !std::is_same_v<T, std::string>;

// The options that a program declares: flags, and the keys of its --config file.
class ConfigSpec {
 public:
  // `summary` is one line for --help, without the name.
  ConfigSpec(std::string program, std::string summary);
  ~ConfigSpec();
  ConfigSpec(ConfigSpec&&) noexcept;
  ConfigSpec& operator=(ConfigSpec&&) noexcept;

  void section(std::string title);    // the fields added next belong to it
  void example(std::string command);  // a line under "Examples"

  // `name` is the flag without dashes. The field must outlive parsing. Throws InternalError if the
  // name is taken, is not made of a-z, 0-9 and '-', or if the default breaks the limits.
  ConfigOption add(std::string name, int& field, std::string help, IntLimits limits = {});
  ConfigOption add(std::string name, int64_t& field, std::string help, IntLimits limits = {});
  ConfigOption add(std::string name, float& field, std::string help, RealLimits limits = {});
  ConfigOption add(std::string name, double& field, std::string help, RealLimits limits = {});
  ConfigOption add(std::string name, bool& field, std::string help);  // --name or --name=true|false
  ConfigOption add(std::string name, std::string& field, std::string help, TextLimits limits = {});
  // Bytes: "512MiB", "2GiB", "1e6".
  ConfigOption add_size(std::string name, int64_t& bytes, std::string help, IntLimits limits = {});
  // One of `names`.
  ConfigOption add_choice(std::string name, std::string& field, std::vector<std::string> names,
                          std::string help, HelpText text = {});
  // One of several values, such as an enum's: {{"cosine", Schedule::kCosine}, ...}.
  template <ChoiceValue Value>
  ConfigOption add_choice(std::string name, Value& field,
                          std::vector<std::pair<std::string, Value>> choices, std::string help,
                          HelpText text = {});
  // Options that do nothing without others: `names`, with blanks between them, need one of
  // `wanted`, such as "--zero 3 or --offload", where a flag alone stands for any value but its
  // default, 0 and none. parse_config() refuses them if they have another value than their default.
  // Flags that the program does not have count for nothing.
  void needs(std::string names, std::string wanted);
  // An argument without a flag, in the order of these calls. The JSON file knows it by its name.
  void add_positional(std::string name, std::string& field, std::string help,
                      TextLimits limits = {});

  // Whether the command line or the file gave a value. Throws InternalError for an unknown name.
  bool was_set(std::string_view name) const;

  std::string help(int columns = 80) const;  // of all options
  // What --help prints with `topic` behind it. Nothing: all options if they take at most 60 lines,
  // else the basic ones and the names of the groups, which are made of the sections' titles.
  // "all": all; a group's name, or its first letters: those of the group; "table": see
  // option_table(). Throws ConfigError, which names the groups, for another topic.
  std::string help_about(std::string_view topic) const;
  std::string to_json() const;  // all fields; --config reads it back to the same values
  // Fills fields from the text of a --config file; `source` is what messages call it. Throws as
  // parse_config does for that file.
  void read_json(std::string_view text, const std::string& source);
  // The flags' names and what their fields hold now, as JSON, in the order of declaration.
  std::vector<std::pair<std::string, std::string>> values() const;
  // Of those whose default is found at run time, what stands for it before.
  std::map<std::string, std::string> open_values() const;
  // Those of ConfigOption::may_change().
  std::vector<std::string> changeable() const;

 private:
  friend ParseResult parse_config(ConfigSpec& spec, int argc, const char* const* argv);
  ConfigOption add_indexed(std::string name, std::vector<std::string> names, size_t initial,
                           std::function<void(size_t)> assign, std::string help, HelpText text);
  std::unique_ptr<ConfigState> state_;
};

// What a program does after parse_config().
struct ParseResult {
  bool should_exit = false;  // --help, --version or --print-config: print `output`, end with 0
  std::string output;
};

// Fills the described fields: first from --config FILE.json, then from the flags, the last of equal
// ones winning. argv[0] is skipped. Throws ConfigError, which names the flag or the file and key,
// what was expected and what was found; MissingInputError if FILE.json does not exist.
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
