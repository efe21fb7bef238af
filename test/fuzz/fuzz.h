#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shale/base/error.h"

// libFuzzer's entry point, for arbitrary bytes. Each file in this folder that defines it is a fuzz
// target. Findings are sanitizer reports, exceptions that the parser does not document, messages
// that are not one clear line, and false claims about accepted input.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace shale::fuzz {

// Checks that `holds` is true. Otherwise prints `claim` and ends the process, which libFuzzer
// treats as a crash.
void require(bool holds, std::string_view claim);

// Requires a clear message: one line of 1 to 4000 bytes, without control characters.
void require_clear(std::string_view message);

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Calls fn. Returns true if it returned, false if it threw E with a clear message; anything else is
// a finding.
template <typename E, typename Fn>
bool accepts(Fn&& fn) {
  try {
    fn();
    return true;
  } catch (const E& error) {
    require_clear(error.what());
    return false;
  }
}

}  // namespace shale::fuzz
