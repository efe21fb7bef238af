#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shale/base/error.h"

// A fuzz target is one file here that defines the entry that libFuzzer calls. It may be given any
// bytes. What counts as a finding: a report of a sanitizer, an exception that the parser does not
// document, a message that is not one clear line, and a claim about accepted input that is false.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace shale::fuzz {

// Ends the process with `claim`, which libFuzzer takes for a crash, unless `holds`.
void require(bool holds, std::string_view claim);

// One line of at most 4000 bytes, which is not empty and has no control characters.
void require_clear(std::string_view message);

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Calls fn. True if it returned, false if it threw E with a clear message; anything else is a
// finding.
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
