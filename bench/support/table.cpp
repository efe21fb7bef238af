#include "shale/bench/support/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "shale/base/error.h"

namespace shale::bench {
namespace {

std::string padded(const std::string& cell, size_t width, bool left) {
  const std::string blanks(width - std::min(width, cell.size()), ' ');
  return left ? cell + blanks : blanks + cell;
}

std::string escaped(const std::string& cell) {
  std::string out;
  for (const char c : cell) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  if (cells.size() != titles_.size()) {
    throw InternalError(cat("table: ", cells.size(), " cells, expected ", titles_.size()));
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < titles_.size(); ++i) {
    size_t width = titles_[i].size();
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      text += (i == 0 ? "" : "  ") + padded(cells[i], widths[i], i == 0);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line(titles_);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string Table::markdown() const {
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    out += "|";
    for (const std::string& cell : cells) out += " " + escaped(cell) + " |";
    out += "\n";
  };
  line(titles_);
  out += "|";
  for (size_t i = 0; i < titles_.size(); ++i) out += i == 0 ? "---|" : "---:|";
  out += "\n";
  for (const auto& row : rows_) line(row);
  return out;
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  return fixed(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4);
}

std::string percent(double fraction) { return fixed(fraction * 100, 1) + "%"; }

}  // namespace shale::bench
