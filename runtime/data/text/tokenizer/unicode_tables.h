#pragma once

#include <cstddef>
#include <cstdint>

// Tables that make_unicode.py writes.
namespace shale::tokenizer_internal {

// First code point << 4 | class, ascending; a run reaches to the next. A class is a CharClass, or
// kAlternatingCase: capital and small letters in turns.
inline constexpr uint32_t kAlternatingCase = 9;
extern const uint32_t kClassRuns[];
extern const size_t kClassRunsSize;

// Characters first..last of one canonical combining class, which is not 0.
struct CombiningRun {
  uint32_t first = 0;
  uint32_t last = 0;
  uint8_t combining_class = 0;
};
extern const CombiningRun kCombiningRuns[];
extern const size_t kCombiningRunsSize;

// The canonical decomposition of a character, as Unicode has it: the first part may have one too.
struct Decomposition {
  uint32_t whole = 0;
  uint32_t first = 0;
  uint32_t second = 0;  // 0: there is only one part
};
extern const Decomposition kCompositions[];  // of which NFC makes the whole again
extern const size_t kCompositionsSize;
extern const Decomposition kOneWayDecompositions[];
extern const size_t kOneWayDecompositionsSize;

}  // namespace shale::tokenizer_internal
