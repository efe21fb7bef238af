#pragma once

#include <string>
#include <vector>

namespace shale::bench {

// A table of text cells. The first column is aligned left, the others right.
class Table {
 public:
  explicit Table(std::vector<std::string> titles) : titles_(std::move(titles)) {}

  void add(std::vector<std::string> cells);  // throws InternalError for a wrong number of cells
  bool empty() const { return rows_.empty(); }

  std::string text() const;      // columns padded with blanks, a line per row
  std::string markdown() const;  // '|' in cells is escaped

 private:
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

// `value` with so many decimals: fixed(3.14159, 2) is "3.14".
std::string fixed(double value, int decimals);
// A number for people, with about four digits: "1234", "56.78", "0.1234".
std::string short_number(double value);
std::string percent(double fraction);  // "81.3%"

}  // namespace shale::bench
