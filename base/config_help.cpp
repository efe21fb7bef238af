#include <algorithm>

#include "shale/base/config_internal.h"
#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale {
namespace {

constexpr int kColumns = 80;
constexpr size_t kMaxFlagColumn = 30;
constexpr size_t kMostShort = 60;  // maximum number of lines of --help without a topic
constexpr const char* kConfiguration = "Configuration";  // group of options in every program

// A space at which wrap() does not break: "default 0.1" is hard to read across two lines.
constexpr char kFixedBlank = '\x01';

std::string unbroken(std::string text) {
  if (text.size() < kMaxFlagColumn) std::replace(text.begin(), text.end(), ' ', kFixedBlank);
  return text;
}

constexpr size_t kMostJoined = 44;

// Returns the end of the first word of a line, including flags that follow it. A line that begins
// with a flag would look like the description of that flag.
size_t end_of_word(std::string_view text) {
  size_t end = std::min(text.find(' '), text.size());
  while (text.substr(end).starts_with(" --")) {
    const size_t next = std::min(text.find(' ', end + 1), text.size());
    if (next > kMostJoined) break;
    end = next;
  }
  return end;
}

// Breaks the text at spaces so that lines end before `width`. A longer word gets a separate line.
std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const size_t end = end_of_word(text);
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(std::exchange(line, ""));
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty() || lines.empty()) lines.push_back(line);
  for (std::string& done : lines) std::replace(done.begin(), done.end(), kFixedBlank, ' ');
  return lines;
}

std::string left_column(const ConfigField& field) {
  if (field.positional || field.is_bool()) return cat("  ", field.spelled());
  return cat("  ", field.spelled(), " ", field.metavar());
}

// Text of the right column. brief: the short help text, without the possible values.
std::string right_column(const ConfigField& field, bool brief = false) {
  std::string notes = brief ? "" : unbroken(field.range_text());
  const std::string shown =
      field.text.default_text.empty() ? field.default_value : field.text.default_text;
  const auto note = [&notes](const std::string& text) {
    notes += notes.empty() ? text : cat("; ", text);
  };
  if (field.required) {
    note("required");
  } else if (!shown.empty()) {
    const bool with_unit = field.text.default_text.empty() && !field.text.unit.empty();
    note(unbroken(cat("default ", shown, with_unit ? cat(" ", field.text.unit) : "")));
  }
  const std::string& help = brief ? field.brief : field.help;
  return notes.empty() ? help : cat(help, " (", notes, ")");
}

void append_field(std::string& out, const ConfigField& field, size_t column, size_t columns,
                  bool brief) {
  std::string line = left_column(field);
  if (line.size() + 2 > column) {
    out += line + "\n";
    line.clear();
  }
  for (const std::string& text : wrap(right_column(field, brief), columns - column)) {
    line.resize(column, ' ');
    out += cat(line, text, "\n");
    line.clear();
  }
}

std::string usage(const ConfigState& state) {
  std::string line = cat("Usage: ", state.program);
  for (const FieldPtr& field : state.fields) {
    if (field->required && !field->positional) {
      line += cat(" ", field->spelled(), " ", field->metavar());
    }
  }
  line += " [FLAGS]";
  for (const FieldPtr& field : state.fields) {
    if (!field->positional) continue;
    line += field->required ? cat(" ", field->spelled()) : cat(" [", field->spelled(), "]");
  }
  return line + "\n";
}

size_t flag_column(const ConfigState& state) {
  size_t column = 0;
  const auto widen = [&column](const ConfigField& field) {
    const size_t width = left_column(field).size() + 2;
    if (width <= kMaxFlagColumn) column = std::max(column, width);
  };
  for (const FieldPtr& field : state.fields) widen(*field);
  for (const FieldPtr& field : state.builtin_fields) widen(*field);
  return column;
}

// The command without its arguments: "shale report" for "shale report RUN...".
std::string command_of(const ConfigState& state) {
  std::string command;
  for (const std::string& word : wrap(state.program, 1)) {
    if (word.front() >= 'A' && word.front() <= 'Z') break;
    command += cat(command.empty() ? "" : " ", word);
  }
  return command;
}

std::string option_line(const std::string& command, const ConfigField& field,
                        std::string_view section) {
  std::string help = right_column(field);
  std::replace(help.begin(), help.end(), kFixedBlank, ' ');
  const char* const kind = field.positional ? "argument" : field.is_bool() ? "flag" : "value";
  return cat(command, "\t", kind, "\t", field.spelled(), "\t",
             field.positional || field.is_bool() ? "" : field.metavar(), "\t", field.offered(),
             "\t", help, "\t", section, "\n");
}

// Group name of a section title: device-and-ranks for "Device and ranks".
std::string group_name(std::string_view title) {
  std::string name;
  for (const char c : title) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper || (c >= 'a' && c <= 'z')) {
      name += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!name.ends_with('-')) {
      name += '-';
    }
  }
  return name;
}

// Formats the parts of a help text.
class HelpWriter {
 public:
  HelpWriter(const ConfigState& state, int columns) : state_(state), column_(flag_column(state)) {
    // If this column were narrower than 30 characters, most of its lines would hold a single word.
    width_ = std::max(static_cast<size_t>(std::max(columns, 0)), column_ + 30);
  }

  void add_lines(const std::string& text) {
    for (const std::string& line : wrap(text, width_)) out_ += line + "\n";
  }
  void add_head() {
    add_lines(cat(state_.program, ": ", state_.summary));
    out_ += cat("\n", usage(state_));
    if (!state_.examples.empty()) out_ += "\nExamples\n";
    for (const std::string& command : state_.examples) out_ += cat("  ", command, "\n");
  }
  void add_group(std::string_view title, const std::vector<const ConfigField*>& fields,
                 bool brief = false) {
    out_ += cat(out_.empty() ? "" : "\n", title, "\n");
    for (const ConfigField* field : fields) append_field(out_, *field, column_, width_, brief);
  }
  std::string take() { return std::move(out_); }

 private:
  const ConfigState& state_;
  const size_t column_;
  size_t width_;
  std::string out_;
};

struct Group {
  std::string title;
  std::vector<const ConfigField*> fields;
};

std::vector<Group> groups_of(const ConfigState& state) {
  std::vector<Group> groups;
  for (const ConfigState::Section& section : state.sections) {
    if (section.fields.empty()) continue;
    groups.push_back({section.title, {section.fields.begin(), section.fields.end()}});
  }
  groups.push_back({kConfiguration, {}});
  for (const FieldPtr& field : state.builtin_fields) groups.back().fields.push_back(field.get());
  return groups;
}

std::string names_of(const std::vector<Group>& groups) {
  std::string names;
  for (const Group& group : groups) {
    names += cat(names.empty() ? "" : ", ", group_name(group.title));
  }
  return names;
}

std::string short_help(const ConfigState& state) {
  const std::vector<Group> groups = groups_of(state);
  std::vector<const ConfigField*> basic;
  for (const FieldPtr& field : state.fields) {
    if (!field->brief.empty()) basic.push_back(field.get());
  }
  HelpWriter text(state, kColumns);
  text.add_head();
  text.add_group("Flags to begin with", basic, /*brief=*/true);
  text.add_group(kConfiguration, groups.back().fields);
  text.add_lines(cat("\nGroups, for --help GROUP: ", names_of(groups)));
  return text.take();
}

// Help of the group with this name, or of the only group whose name begins with `topic`.
std::string group_help(const ConfigState& state, std::string_view topic) {
  const std::vector<Group> groups = groups_of(state);
  std::vector<const Group*> found;
  for (const Group& group : groups) {
    const std::string name = group_name(group.title);
    if (name == topic) found.assign(1, &group);
    if (name == topic) break;
    if (name.starts_with(topic)) found.push_back(&group);
  }
  if (found.size() != 1) {
    throw ConfigError(cat("--help: expected all, table or a group, found '", excerpt(topic),
                          "'; groups are ", names_of(groups)));
  }
  HelpWriter text(state, kColumns);
  text.add_group(found[0]->title, found[0]->fields);
  return text.take();
}

}  // namespace

std::string option_table(const ConfigState& state) {
  const std::string command = command_of(state);
  std::string table = cat(command, "\tsummary\t\t\t\t", state.summary, "\t\n");
  for (const ConfigState::Section& section : state.sections) {
    for (const ConfigField* field : section.fields) {
      table += option_line(command, *field, section.title);
    }
  }
  for (const FieldPtr& field : state.builtin_fields) {
    table += option_line(command, *field, kConfiguration);
  }
  return table;
}

std::string ConfigSpec::help(int columns) const {
  HelpWriter text(*state_, columns);
  text.add_head();
  for (const Group& group : groups_of(*state_)) text.add_group(group.title, group.fields);
  return text.take();
}

std::string ConfigSpec::help_about(std::string_view topic) const {
  if (topic == "table") return option_table(*state_);
  std::string all = help();
  const auto lines = static_cast<size_t>(std::count(all.begin(), all.end(), '\n'));
  if (topic == "all" || (topic.empty() && lines <= kMostShort)) return all;
  return topic.empty() ? short_help(*state_) : group_help(*state_, topic);
}

}  // namespace shale
