#include "shale/base/config.h"

#include <algorithm>
#include <optional>
#include <span>

#include "shale/base/config_internal.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/removed_options.h"
#include "shale/base/version.h"

namespace shale {
namespace {

void check_name(const std::string& name) {
  const bool valid =
      !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      });
  if (!valid)
    throw InternalError(cat("config: expected a flag of a-z, 0-9 and '-', found '", name, "'"));
}

std::vector<std::string_view> split(std::string_view text, std::string_view between) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; end != text.npos;) {
    end = text.find(between);
    parts.push_back(text.substr(0, end));
    if (end != text.npos) text.remove_prefix(end + between.size());
  }
  return parts;
}

// Returns true for a dash with text after it, except for a negative number ("-1", "-.5").
bool looks_like_flag(std::string_view argument) {
  if (argument.size() < 2 || argument[0] != '-') return false;
  return !parse_real(argument);
}

// The command line, split into flags and values before any field is set.
class CommandLine {
 public:
  CommandLine(const ConfigState& state, std::span<const char* const> arguments)
      : state_(state), arguments_(arguments) {
    bool only_positionals = false;
    while (next_ < arguments_.size()) {
      const std::string_view argument = arguments_[next_++];
      if (!only_positionals && argument == "--") {
        only_positionals = true;
      } else if (!only_positionals && looks_like_flag(argument)) {
        read_flag(argument);
      } else {
        read_positional(argument);
      }
    }
  }

  // Values by field. If a flag is given twice, its last value counts.
  const std::map<ConfigField*, std::string_view>& values() const { return values_; }

 private:
  void read_flag(std::string_view argument) {
    const size_t equals = argument.find('=');
    const std::string_view spelled = argument.substr(0, equals);
    ConfigField* field = spelled == "-h"             ? state_.find("help")
                         : spelled.starts_with("--") ? state_.find(spelled.substr(2))
                                                     : nullptr;
    if (field == nullptr || field->positional) throw unknown_flag(spelled);
    previous_flag_ = spelled;
    if (equals != argument.npos) {
      values_[field] = argument.substr(equals + 1);
    } else if (field->is_bool()) {
      values_[field] = "true";
    } else {
      values_[field] = take_value(*field);
    }
  }

  std::string_view take_value(const ConfigField& field) {
    if (next_ == arguments_.size()) {
      throw ConfigError(mismatch(field.spelled(), field, "no value"));
    }
    const std::string_view value = arguments_[next_];
    if (looks_like_flag(value)) {
      throw ConfigError(cat(mismatch(field.spelled(), field, cat("the flag ", value)), "; write ",
                            field.spelled(), "=", excerpt(value), " if that is the value"));
    }
    ++next_;
    return value;
  }

  void read_positional(std::string_view argument) {
    size_t index = positionals_read_++;
    for (const FieldPtr& field : state_.fields) {
      if (!field->positional || index-- > 0) continue;
      values_[field.get()] = argument;
      return;
    }
    const bool is_bool = argument == "true" || argument == "false";
    // a program such as "shale report RUN..."
    const bool takes_many = state_.program.ends_with("...");
    ConfigField* const data = state_.find("data");
    throw ConfigError(cat("unexpected argument '", excerpt(argument), "'",
                          is_bool && !previous_flag_.empty()
                              ? cat("; did you mean ", previous_flag_, "=", argument, "?")
                          : takes_many
                              ? cat("; put it before the flags: ", state_.program, " --flag")
                          : data != nullptr && data->required && !values_.contains(data)
                              ? cat("; did you mean --data ", excerpt(argument), "?")
                              : ""));
  }

  ConfigError unknown_flag(std::string_view spelled) const {
    std::vector<std::string> names;
    for (const FieldPtr& field : state_.fields) {
      if (!field->positional) names.push_back(field->name);
    }
    for (const FieldPtr& field : state_.builtin_fields) names.push_back(field->name);
    std::string name(spelled.substr(std::min(spelled.find_first_not_of('-'), spelled.size())));
    std::replace(name.begin(), name.end(), '_', '-');
    if (const RemovedOption* const removed = find_removed_option(name)) {
      return ConfigError(removed_message(spelled, *removed));
    }
    if (const std::string advice = synonym_advice(state_, name); !advice.empty()) {
      return ConfigError(cat("unknown flag ", spelled, "; ", advice));
    }
    const auto nearest = nearest_name(name, names);
    return ConfigError(cat("unknown flag ", excerpt(spelled),
                           nearest ? cat("; did you mean --", *nearest, "?")
                                   : cat("; ", state_.program, " --help lists the flags")));
  }

  const ConfigState& state_;
  const std::span<const char* const> arguments_;
  size_t next_ = 0;
  size_t positionals_read_ = 0;
  std::string_view previous_flag_;
  std::map<ConfigField*, std::string_view> values_;
};

void assign(const ConfigState& state, ConfigField& field, std::string_view value) {
  if (field.assign_text(value)) {
    field.is_set = true;
    return;
  }
  if (const RemovedOption* const removed = find_removed_option(field.name, value)) {
    throw ConfigError(removed_message(cat(field.spelled(), " ", value), *removed));
  }
  const std::string advice = synonym_advice(state, cat(field.name, "=", value));
  throw ConfigError(cat(mismatch(field.spelled(), field, cat("'", value, "'")),
                        advice.empty() ? "" : "; ", advice));
}

// Returns the topic after --help, if --help is given.
std::optional<std::string_view> help_topic(std::span<const char* const> arguments) {
  constexpr std::string_view kWithTopic = "--help=";
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") break;
    if (argument.starts_with(kWithTopic)) return argument.substr(kWithTopic.size());
    if (argument != "--help" && argument != "-h") continue;
    const std::string_view next = i + 1 < arguments.size() ? arguments[i + 1] : "";
    return next.starts_with("-") ? "" : next;
  }
  return {};
}

// Returns whether the field has the value `wanted`. If `wanted` is empty: whether it has any value
// but its default, 0, "none" and the empty string.
bool has(const ConfigField& field, std::string_view wanted) {
  const std::string value = field.value_text();
  if (!wanted.empty()) return value == wanted;
  return value != field.default_value && !value.empty() && value != "0" && value != "none";
}

// Throws ConfigError if an option is set without the options that it needs.
void check_needs(const ConfigState& state) {
  for (const auto& [names, wanted] : state.needs) {
    std::string missing;
    bool is_there = false;
    for (const std::string_view flag : split(wanted, " or ")) {
      const size_t blank = std::min(flag.find(' '), flag.size());
      const ConfigField* const field = state.find(flag.substr(2, blank - 2));
      if (field == nullptr) continue;
      is_there |= has(*field, flag.substr(std::min(blank + 1, flag.size())));
      missing += cat(missing.empty() ? "" : " or ", flag);
    }
    if (is_there || missing.empty()) continue;
    for (const std::string_view name : split(names, " ")) {
      const ConfigField* const field = state.find(name);
      if (field == nullptr) throw InternalError(cat("config: no option is named '", name, "'"));
      if (!field->is_set || field->value_text() == field->default_value) continue;
      throw ConfigError(cat(field->spelled(), " has no effect without ", missing,
                            "; add it, or leave out ", field->spelled()));
    }
  }
}

void check_required(const ConfigState& state) {
  for (const FieldPtr& field : state.fields) {
    if (!field->required || (field->is_set && !field->value_text().empty())) continue;
    throw ConfigError(cat(field->spelled(), " is required: ", field->help));
  }
}

}  // namespace

ConfigField::ConfigField(std::string field_name, std::string field_help, HelpText help_text)
    : name(std::move(field_name)), help(std::move(field_help)), text(std::move(help_text)) {}

std::string ConfigField::key() const {
  std::string spelling = name;
  std::replace(spelling.begin(), spelling.end(), '-', '_');
  return spelling;
}

std::string ConfigField::spelled() const {
  if (!positional) return cat("--", name);
  std::string shouted = text.metavar.empty() ? name : text.metavar;
  for (char& c : shouted) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return shouted;
}

std::string mismatch(std::string_view where, const ConfigField& field, std::string_view found) {
  return cat(where, ": expected ", field.expected(), ", found ", excerpt(found));
}

std::string removed_message(std::string_view what, const RemovedOption& option) {
  return cat(what, " was removed; ", option.instead);
}

ConfigField* ConfigState::find(std::string_view name) const {
  for (const auto* list : {&fields, &builtin_fields}) {
    for (const FieldPtr& field : *list) {
      if (field->name == name) return field.get();
    }
  }
  return nullptr;
}

ConfigField& ConfigState::add(FieldPtr field) {
  check_name(field->name);
  if (find(field->name) != nullptr)
    throw InternalError(cat("config: --", field->name, " is declared twice"));
  if (field->text.default_text.empty() && !field->in_limits()) {
    throw InternalError(
        cat("config: the default of --", field->name, " is not ", field->expected()));
  }
  field->default_value = field->value_text();
  if (!field->in_limits()) field->open_json = field->to_json();
  if (sections.empty()) sections.push_back({"Options", {}});
  sections.back().fields.push_back(field.get());
  fields.push_back(std::move(field));
  return *fields.back();
}

ConfigOption& ConfigOption::may_change() {
  field_.may_change = true;
  return *this;
}

ConfigOption& ConfigOption::basic(std::string brief) {
  field_.brief = std::move(brief);
  return *this;
}

ConfigSpec::ConfigSpec(std::string program, std::string summary)
    : state_(std::make_unique<ConfigState>()) {
  state_->program = std::move(program);
  state_->summary = std::move(summary);
  ConfigState::Builtin& builtin = state_->builtin;
  auto& list = state_->builtin_fields;
  const TextLimits file = {.is_path = true, .help = {.metavar = "FILE"}};
  list.push_back(make_text_field(
      "config", builtin.config,
      "read options from a JSON file (keys are flag names with '_' for '-'); flags override it",
      file));
  list.push_back(make_bool_field("print-config", builtin.print_config,
                                 "print all options as a file for --config and exit"));
  list.push_back(make_bool_field("version", builtin.version, "print the version and exit"));
  list.push_back(make_text_field(
      "help", builtin.help,
      "print help and exit; all: every flag; GROUP: one group; table: tab-separated",
      {.help = {.metavar = "[GROUP]"}}));
}

ConfigSpec::~ConfigSpec() = default;
ConfigSpec::ConfigSpec(ConfigSpec&&) noexcept = default;
ConfigSpec& ConfigSpec::operator=(ConfigSpec&&) noexcept = default;

void ConfigSpec::section(std::string title) {
  state_->sections.push_back({std::move(title), {}});
}
void ConfigSpec::needs(std::string names, std::string wanted) {
  state_->needs.emplace_back(std::move(names), std::move(wanted));
}
void ConfigSpec::example(std::string command) {
  state_->examples.push_back(std::move(command));
}

ConfigOption ConfigSpec::add(std::string name, int& field, std::string help, IntLimits limits) {
  return state_->add(make_int_field(std::move(name), field, std::move(help), std::move(limits)));
}
ConfigOption ConfigSpec::add(std::string name, int64_t& field, std::string help, IntLimits limits) {
  return state_->add(make_int_field(std::move(name), field, std::move(help), std::move(limits)));
}
ConfigOption ConfigSpec::add(std::string name, float& field, std::string help, RealLimits limits) {
  return state_->add(make_real_field(std::move(name), field, std::move(help), std::move(limits)));
}
ConfigOption ConfigSpec::add(std::string name, double& field, std::string help, RealLimits limits) {
  return state_->add(make_real_field(std::move(name), field, std::move(help), std::move(limits)));
}
ConfigOption ConfigSpec::add(std::string name, bool& field, std::string help) {
  return state_->add(make_bool_field(std::move(name), field, std::move(help)));
}
ConfigOption ConfigSpec::add(std::string name, std::string& field, std::string help,
                             TextLimits limits) {
  return state_->add(make_text_field(std::move(name), field, std::move(help), std::move(limits)));
}
ConfigOption ConfigSpec::add_size(std::string name, int64_t& bytes, std::string help,
                                  IntLimits limits) {
  return state_->add(make_size_field(std::move(name), bytes, std::move(help), std::move(limits)));
}

ConfigOption ConfigSpec::add_choice(std::string name, std::string& field,
                                    std::vector<std::string> names, std::string help,
                                    HelpText text) {
  const size_t initial =
      static_cast<size_t>(std::find(names.begin(), names.end(), field) - names.begin());
  const auto assign_name = [&field, names](size_t i) { field = names[i]; };
  return add_indexed(std::move(name), names, initial, assign_name, std::move(help),
                     std::move(text));
}

ConfigOption ConfigSpec::add_indexed(std::string name, std::vector<std::string> names,
                                     size_t initial, std::function<void(size_t)> assign_index,
                                     std::string help, HelpText text) {
  return state_->add(make_choice_field(std::move(name), std::move(names), initial,
                                       std::move(assign_index), std::move(help), std::move(text)));
}

void ConfigSpec::add_positional(std::string name, std::string& field, std::string help,
                                TextLimits limits) {
  state_->add(make_text_field(std::move(name), field, std::move(help), std::move(limits)))
      .positional = true;
}

bool ConfigSpec::was_set(std::string_view name) const {
  const ConfigField* field = state_->find(name);
  if (field == nullptr) throw InternalError(cat("config: no option is named '", name, "'"));
  return field->is_set;
}

std::string ConfigSpec::to_json() const {
  std::string out = "{";
  for (const FieldPtr& field : state_->fields) {
    out += cat(out.size() > 1 ? ",\n  " : "\n  ", json_quote(field->key()), ": ",
               field->is_open() ? "null" : field->to_json());
  }
  return out + "\n}\n";
}

void ConfigSpec::read_json(std::string_view text, const std::string& source) {
  read_config_text(*state_, text, source);
}

std::vector<std::pair<std::string, std::string>> ConfigSpec::values() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const FieldPtr& field : state_->fields) values.emplace_back(field->name, field->to_json());
  return values;
}

std::map<std::string, std::string> ConfigSpec::open_values() const {
  std::map<std::string, std::string> values;
  for (const FieldPtr& field : state_->fields) {
    if (!field->open_json.empty()) values[field->name] = field->open_json;
  }
  return values;
}

std::vector<std::string> ConfigSpec::changeable() const {
  std::vector<std::string> names;
  for (const FieldPtr& field : state_->fields) {
    if (field->may_change) names.push_back(field->name);
  }
  return names;
}

ParseResult parse_config(ConfigSpec& spec, int argc, const char* const* argv) {
  ConfigState& state = *spec.state_;
  const auto arguments =
      std::span(argv, static_cast<size_t>(std::max(argc, 0))).subspan(argc > 0 ? 1 : 0);
  // --help comes before all error messages, because its users do not know the flags yet.
  if (const auto topic = help_topic(arguments)) {
    return {.should_exit = true, .output = spec.help_about(*topic)};
  }

  state.builtin = {};  // values of other options stay, such as a recipe's
  const CommandLine line(state, arguments);
  for (const FieldPtr& field : state.builtin_fields) {
    if (const auto it = line.values().find(field.get()); it != line.values().end()) {
      assign(state, *field, it->second);
    }
  }
  if (state.builtin.version) {
    return {.should_exit = true, .output = cat(state.program, " (Shale) ", shale_version(), "\n")};
  }
  if (!state.builtin.config.empty()) read_config_file(state, state.builtin.config);
  for (const FieldPtr& field : state.fields) {
    if (const auto it = line.values().find(field.get()); it != line.values().end()) {
      assign(state, *field, it->second);
    }
  }
  if (state.builtin.print_config) return {.should_exit = true, .output = spec.to_json()};
  check_required(state);
  check_needs(state);
  return {};
}

}  // namespace shale
