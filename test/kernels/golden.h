#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "shale/test/support/fixtures.h"

namespace shale::test {

// What a kernel around one primitive reads, and what it has to write.
struct Golden {
  std::string name;
  std::vector<uint32_t> in, want;
};

// The text of a table: `head`, then of each its name, its words in and those out, in hexadecimal.
inline std::string table_text(const std::string& head, const std::vector<Golden>& all) {
  std::string text = head;
  const auto add = [&text](const char* what, const std::vector<uint32_t>& list) {
    text += what;
    char digits[16];
    for (size_t i = 0; i < list.size(); ++i) {
      std::snprintf(digits, sizeof digits, "%s%08x", i % 8 == 0 ? "\n " : " ", list[i]);
      text += digits;
    }
    text += "\n";
  };
  for (const Golden& golden : all) {
    text += "\n" + golden.name + "\n";
    add("in", golden.in);
    add("out", golden.want);
  }
  return text;
}

// The table test/fixtures/`name`; SHALE_WRITE_GOLDEN=DIR writes `text` there under its name. Empty
// if there is none.
inline std::string table_on_disk(const std::string& name, const std::string& text) {
  if (const char* folder = std::getenv("SHALE_WRITE_GOLDEN"); folder != nullptr) {
    std::ofstream(std::string(folder) + "/" + name) << text;
  }
  std::ifstream file(fixture_path(name));
  std::ostringstream table;
  table << file.rdbuf();
  return table.str();
}

}  // namespace shale::test
