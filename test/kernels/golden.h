#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "shale/base/rng.h"
#include "shale/base/text.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"

namespace shale::test {

// Input words of a kernel that wraps one primitive, and the expected output words.
struct Golden {
  std::string name;
  std::vector<uint32_t> in, want;
};

// Returns the name, input words and output words in hexadecimal.
inline std::string text_of(const Golden& golden) {
  std::string text = cat(golden.name, "\n");
  const auto add = [&text](const char* what, const std::vector<uint32_t>& list) {
    text += what;
    char digits[16];
    for (size_t i = 0; i < list.size(); ++i) {
      std::snprintf(digits, sizeof digits, "%s%08x", i % 8 == 0 ? "\n " : " ", list[i]);
      text += digits;
    }
    text += "\n";
  };
  add("in", golden.in);
  add("out", golden.want);
  return text;
}

// Compares cases with test/fixtures/`name`.txt. That file has `head` and, for each case, a line
// with its number of words and the FNV-1a hash of its text. SHALE_WRITE_GOLDEN=DIR writes that file
// and `name`_words.txt with all texts.
inline void check_table(const std::string& name, const std::string& head,
                        const std::vector<Golden>& all) {
  std::string table = head, words;
  for (const Golden& golden : all) {
    const std::string text = text_of(golden);
    char hash[20];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_name(text)));
    table += cat(hash, " ", golden.in.size(), " ", golden.want.size(), " ", golden.name, "\n");
    words += cat(text, "\n");
  }
  if (const char* folder = std::getenv("SHALE_WRITE_GOLDEN"); folder != nullptr) {
    std::ofstream(cat(folder, "/", name, ".txt")) << table;
    std::ofstream(cat(folder, "/", name, "_words.txt")) << words;
  }
  std::ifstream file(fixture_path(name + ".txt"));
  std::ostringstream stored;
  stored << file.rdbuf();
  CHECK(stored.str() == table);
}

}  // namespace shale::test
