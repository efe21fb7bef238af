#pragma once

#include <string>
#include <vector>

namespace shale::bench {

// A table of text cells. The first column is left-aligned, the other columns right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> titles) : titles_(std::move(titles)) {}

  void add(std::vector<std::string> cells);  // throws InternalError for a wrong number of cells
  bool empty() const { return rows_.empty(); }

  std::string text() const;      // one line per row, with columns padded by blanks
  std::string markdown() const;  // Markdown, with '|' in cells escaped

 private:
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

// Formats `value` with `decimals` decimals: fixed(3.14159, 2) is "3.14".
std::string fixed(double value, int decimals);
// Formats a number with about four digits: "1234", "56.78", "0.1234".
std::string short_number(double value);
std::string percent(double fraction);  // formats as "81.3%"

}  // namespace shale::bench
