#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Python's string operations. Texts are UTF-8; lengths and indices count code points.
namespace shale::jinja {

bool is_space(uint32_t code);  // Python's str.isspace for a code point

enum class Side { kLeft, kRight, kBoth };
// Python's str.strip, lstrip and rstrip. Without `characters` it strips white space.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = {});

// Returns the first position of `part` at or after byte `from`; npos if there is none. Takes linear
// time.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
// Python's str.split with at most `cuts` splits; -1: no limit. Without a `separator` it splits at
// white space.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t cuts);
// Python's str.rsplit with a separator.
std::vector<std::string_view> split_from_right(std::string_view text, std::string_view separator,
                                               int64_t cuts);
std::vector<std::string_view> split_lines(std::string_view text);

int64_t length(std::string_view text);
// Returns the byte offset of code point number `index`; text.size() if the text is shorter.
size_t offset(std::string_view text, int64_t index);

enum class Case {
  kUpper,
  kLower,
  kCapital,     // str.capitalize
  kTitle,       // str.title: a letter after a character without case becomes a capital
  kTitleWords,  // Jinja's title filter: a letter after a space or bracket becomes a capital
};
// Changes the case of a text. Returns nullopt if it contains a non-ASCII letter that has a case;
// this is not supported.
std::optional<std::string> with_case(std::string_view text, Case to);

std::string repr(std::string_view text);
std::string repr(double value);
// Returns the text as a JSON string in ASCII, like json.dumps(text).
std::string ascii_json(std::string_view text);

}  // namespace shale::jinja
