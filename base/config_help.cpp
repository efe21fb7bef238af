#include <algorithm>
#include <span>

#include "shale/base/config_internal.h"
#include "shale/base/text.h"

namespace shale {
namespace {

constexpr size_t kMaxFlagColumn = 30;

// Stands for a blank at which no line breaks: "default 0.1" reads badly on two lines.
constexpr char kFixedBlank = '\x01';

std::string unbroken(std::string text) {
  if (text.size() < kMaxFlagColumn) std::replace(text.begin(), text.end(), ' ', kFixedBlank);
  return text;
}

// Breaks at blanks so that lines end before `width`; a longer word has a line of its own.
std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
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

std::string right_column(const ConfigField& field) {
  std::string notes = unbroken(field.range_text());
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
  return notes.empty() ? field.help : cat(field.help, " (", notes, ")");
}

void append_field(std::string& out, const ConfigField& field, size_t column, size_t columns) {
  std::string line = left_column(field);
  if (line.size() + 2 > column) {
    out += line + "\n";
    line.clear();
  }
  for (const std::string& text : wrap(right_column(field), columns - column)) {
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

// "shale report RUN..." without what stands for arguments.
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

}  // namespace

std::string option_table(const ConfigState& state) {
  const std::string command = command_of(state);
  std::string table = cat(command, "\tsummary\t\t\t\t", state.summary, "\t\n");
  for (const ConfigState::Section& section : state.sections) {
    for (const ConfigField* field : section.fields) {
      if (!field->is_former) table += option_line(command, *field, section.title);
    }
  }
  for (const FieldPtr& field : state.builtin_fields) {
    table += option_line(command, *field, "Configuration");
  }
  return table;
}

std::string ConfigSpec::help(int columns) const {
  const size_t column = flag_column(*state_);
  // Below that, wrapping gives a column of single words.
  const size_t width = std::max(static_cast<size_t>(std::max(columns, 0)), column + 30);
  std::string out;
  for (const std::string& line : wrap(cat(state_->program, ": ", state_->summary), width)) {
    out += line + "\n";
  }
  out += cat("\n", usage(*state_));
  if (!state_->examples.empty()) {
    out += "\nExamples\n";
    for (const std::string& command : state_->examples) out += cat("  ", command, "\n");
  }
  for (const ConfigState::Section& section : state_->sections) {
    if (section.fields.empty()) continue;
    out += cat("\n", section.title, "\n");
    for (const ConfigField* field : section.fields) {
      if (!field->is_former) append_field(out, *field, column, width);
    }
  }
  out += "\nConfiguration\n";
  for (const FieldPtr& field : state_->builtin_fields) append_field(out, *field, column, width);
  return out;
}

}  // namespace shale
