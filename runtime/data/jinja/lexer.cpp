#include "shale/runtime/data/jinja/lexer.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/jinja/python_text.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::string with_plain_newlines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view source)
      : text_(with_plain_newlines(text)), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t tag = find_tag();
      const bool is_raw = tag != text_.npos && raw_begin(tag) != text_.npos;
      add_data(tag);
      if (tag == text_.npos) break;
      const char kind = text_[tag + 1];
      if (is_raw) {
        read_raw(raw_begin(tag));
      } else if (kind == '#') {
        skip_comment();
      } else {
        read_tag(kind);
      }
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw DataError(cat(source_, ", line ", line_, ": ", problem));
  }
  void add(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, std::string(text), line_});
  }
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void move_to(size_t at) {
    line_ += static_cast<int>(std::count(text_.data() + at_, text_.data() + at, '\n'));
    at_ = at;
  }
  void skip_spaces() { move_to(text_.size() - strip(rest(), Side::kLeft).size()); }
  size_t spaces_end(size_t at) const {
    return text_.size() - strip(std::string_view(text_).substr(at), Side::kLeft).size();
  }

  size_t find_tag() const {
    size_t at = at_;
    for (; (at = text_.find('{', at)) != text_.npos; ++at) {
      const char next = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
    }
    return at;
  }

  // Adds the text before the tag. White space is removed from it according to the tag's sign or
  // lstrip_blocks.
  void add_data(size_t tag) {
    std::string_view data = rest().substr(0, tag == text_.npos ? text_.npos : tag - at_);
    const int line = line_;
    move_to(at_ + data.size());
    if (tag != text_.npos) {
      const char kind = text_[tag + 1];
      move_to(tag + 2);
      const char sign = peek();
      if (sign == '-' || sign == '+') move_to(at_ + 1);
      if (sign == '-') {
        data = strip(data, Side::kRight);
      } else if (sign != '+' && kind != '{') {
        const size_t begin = data.rfind('\n') + 1;  // position 0 if there is no newline
        const bool begins_line = begin > 0 || line_starting_;
        if (begins_line && strip(data.substr(begin), Side::kLeft).empty()) {
          data = data.substr(0, begin);
        }
      }
    }
    if (!data.empty()) tokens_.push_back({TokenKind::kData, std::string(data), line});
  }

  // Skips the end of a tag: its sign, its last two characters, and the white space that they
  // remove.
  void end_tag(char sign, size_t end, bool trims_newline) {
    move_to(end);
    if (sign == '-') {
      skip_spaces();
    } else if (trims_newline && sign != '+' && peek() == '\n') {
      move_to(at_ + 1);
    }
    line_starting_ = text_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail("a comment has no end; expected '#}'");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    end_tag(sign == '-' || sign == '+' ? sign : '\0', end + 2, true);
  }

  // If a tag consists of just this word, returns its end, and sets `sign` to the sign at its end.
  // Otherwise returns npos.
  size_t word_tag_end(size_t tag, std::string_view word, char& sign) const {
    size_t at = tag + 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    at = spaces_end(at);
    if (text_.compare(at, word.size(), word) != 0) return text_.npos;
    at = spaces_end(at + word.size());
    sign = at < text_.size() ? text_[at] : '\0';
    if (sign == '-' || sign == '+') ++at;
    return text_.compare(at, 2, "%}") == 0 ? at + 2 : text_.npos;
  }
  size_t raw_begin(size_t tag) const {
    char sign = '\0';
    return text_[tag + 1] == '%' ? word_tag_end(tag, "raw", sign) : text_.npos;
  }

  void read_raw(size_t begin) {
    end_tag(text_[begin - 3], begin, false);
    for (size_t tag = at_; (tag = text_.find("{%", tag)) != text_.npos; ++tag) {
      char sign = '\0';
      const size_t end = word_tag_end(tag, "endraw", sign);
      if (end == text_.npos) continue;
      add_data(tag);
      return end_tag(sign, end, true);
    }
    fail("a raw block has no end; expected '{% endraw %}'");
  }

  void read_tag(char kind) {
    const bool is_block = kind == '%';
    const std::string_view end = is_block ? "%}" : "}}";
    add(is_block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    std::string open;  // brackets that are not closed yet
    for (;;) {
      skip_spaces();
      if (at_ == text_.size()) fail(cat("a tag has no end; expected '", end, "'"));
      const bool has_sign = peek() == '-' || (peek() == '+' && is_block);
      const size_t end_at = at_ + (has_sign ? 1 : 0);
      if (open.empty() && text_.compare(end_at, 2, end) == 0) {
        add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
        return end_tag(has_sign ? peek() : '\0', end_at + 2, is_block);
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = peek();
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    if (is_name_start(c)) {
      size_t bytes = 1;
      while (is_name_start(peek(bytes)) || is_digit(peek(bytes))) ++bytes;
      add(TokenKind::kName, rest().substr(0, bytes));
      return move_to(at_ + bytes);
    }
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t bytes = 1;
    if (std::ranges::find(kLong, rest().substr(0, 2)) != std::end(kLong)) {
      bytes = 2;
    } else if (std::string_view("+-/*%~[](){}<>=.:|,").find(c) == std::string_view::npos) {
      fail(
          cat("unexpected character '", excerpt(rest().substr(0, utf8_bytes()), 20), "' in a tag"));
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (!open.ends_with(c)) fail(cat("unexpected '", c, "'"));
      open.pop_back();
    }
    add(TokenKind::kOperator, rest().substr(0, bytes));
    move_to(at_ + bytes);
  }
  size_t utf8_bytes() const {
    return tokenizer_internal::decode_utf8(text_.data() + at_, text_.data() + text_.size()).bytes;
  }

  void read_number() {
    size_t bytes = 0;
    const auto skip_digits = [&] {
      while (is_digit(peek(bytes)) || (peek(bytes) == '_' && is_digit(peek(bytes + 1)))) ++bytes;
    };
    skip_digits();
    TokenKind kind = TokenKind::kInteger;
    // true: an index after a dot, as in messages.0.content
    const bool is_index = at_ > 0 && text_[at_ - 1] == '.';
    if (!is_index && peek(bytes) == '.' && is_digit(peek(bytes + 1))) {
      kind = TokenKind::kFloat;
      ++bytes;
      skip_digits();
    }
    const size_t sign = peek(bytes + 1) == '-' || peek(bytes + 1) == '+' ? 1 : 0;
    if (!is_index && (peek(bytes) == 'e' || peek(bytes) == 'E') &&
        is_digit(peek(bytes + 1 + sign))) {
      kind = TokenKind::kFloat;
      bytes += 1 + sign;
      skip_digits();
    }
    std::string digits(rest().substr(0, bytes));
    std::erase(digits, '_');
    add(kind, digits);
    move_to(at_ + bytes);
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail(cat("a string has no end; expected ", quote));
    add(TokenKind::kString, unescaped(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    move_to(end + 1);
  }

  std::string unescaped(std::string_view text) const {
    std::string out;
    while (!text.empty()) {
      const size_t plain = std::min(text.find('\\'), text.size());
      out += text.substr(0, plain);
      text.remove_prefix(plain);
      if (text.size() < 2) break;
      text.remove_prefix(1 + append_escape(text.substr(1), out));
    }
    return out;
  }

  // Reads a Python escape and appends its character to `out`. `text` begins after the backslash,
  // such as "n" or "x41". Returns the number of bytes read.
  size_t append_escape(std::string_view text, std::string& out) const {
    static constexpr std::string_view kLetters = "\n\\'\"abfnrtv";
    static constexpr std::string_view kMeanings("\0\\'\"\a\b\f\n\r\t\v", 11);
    const char c = text[0];
    if (const size_t i = kLetters.find(c); i != kLetters.npos) {
      if (i > 0) out += kMeanings[i];  // i == 0: a backslash before a newline joins two lines
      return 1;
    }
    const bool is_octal = c >= '0' && c <= '7';
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N') fail("named characters, '\\N{...}', are not supported; use '\\u....'");
    if (digits == 0 && !is_octal) {
      out += '\\';
      return 0;
    }
    uint32_t code = 0;
    size_t at = is_octal ? 0 : 1;
    const size_t end = is_octal ? 3 : 1 + digits;
    const std::string_view allowed = is_octal ? "01234567" : "0123456789abcdef";
    for (; at < end && at < text.size(); ++at) {
      const char lower =
          text[at] >= 'A' && text[at] <= 'F' ? static_cast<char>(text[at] + 32) : text[at];
      const size_t digit = allowed.find(lower);
      if (digit == allowed.npos) break;
      code = code * (is_octal ? 8 : 16) + static_cast<uint32_t>(digit);
    }
    const bool is_character = code < 0xd800 || (code >= 0xe000 && code < 0x110000);
    if ((!is_octal && at < end) || !is_character) {
      fail(cat("the escape '\\", excerpt(text.substr(0, at), 12), "' is not a character"));
    }
    tokenizer_internal::append_utf8(code, out);
    return at;
  }

  const std::string text_;
  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // true: the previous tag ended with a newline, so a line begins here
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text, std::string_view source) {
  return Lexer(text, source).run();
}

}  // namespace shale::jinja
