#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Python's string operations. Texts are UTF-8; lengths and indices count code points.
namespace shale::jinja {

bool is_space(uint32_t code);  // like str.isspace

enum class Side { kLeft, kRight, kBoth };
// Like str.strip, lstrip and rstrip; without `characters` they strip white space.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = {});

// First position of `part` at or after byte `from`, in linear time; npos: not found.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
// Like str.split with at most `cuts` cuts (-1: no limit); no `separator`: at white space.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t cuts);
// Like str.rsplit with a separator.
std::vector<std::string_view> split_from_right(std::string_view text, std::string_view separator,
                                               int64_t cuts);
std::vector<std::string_view> split_lines(std::string_view text);

int64_t length(std::string_view text);
// Byte offset of code point `index`; text.size() beyond the end.
size_t offset(std::string_view text, int64_t index);

enum class Case {
  kUpper,
  kLower,
  kCapital,     // like str.capitalize
  kTitle,       // like str.title: a letter after a character without case is a capital
  kTitleWords,  // like Jinja's title filter: a letter after a space or bracket is a capital
};
// Changes the case. nullopt: a non-ASCII letter has cases, which is not supported.
std::optional<std::string> with_case(std::string_view text, Case to);

std::string repr(std::string_view text);
std::string repr(double value);
// Returns the text as a JSON string in ASCII, like json.dumps(text).
std::string ascii_json(std::string_view text);

}  // namespace shale::jinja
