#include "shale/base/json_limits.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

// Follows the parser's events and keeps the keys of the objects that are open.
class LimitChecker : public nlohmann::json_sax<nlohmann::json> {
 public:
  LimitChecker(const JsonLimits& limits, std::string_view source)
      : limits_(limits), source_(source) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    count();
    if (!keys_.back().insert(name).second) fail(cat("the key '", excerpt(name), "' appears twice"));
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& e) override {
    // "[json.exception.parse_error.101] parse error at ...": the library's tag helps nobody.
    const std::string_view what = e.what();
    const size_t tag_end = what.find("] ");
    fail(cat("not valid JSON at byte ", position, ": ",
             excerpt(what.substr(tag_end == what.npos ? 0 : tag_end + 2), 300)));
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(cat(source_, ": ", problem));
  }

  bool count() {
    if (++values_ > limits_.max_values) fail(cat("more than ", limits_.max_values, " values"));
    return true;
  }

  bool open() {
    count();
    if (static_cast<int>(keys_.size()) == limits_.max_depth) {
      fail(cat("JSON is nested deeper than ", limits_.max_depth, " levels"));
    }
    keys_.emplace_back();
    return true;
  }

  bool close() {
    keys_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  const std::string_view source_;
  int64_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  // arrays have an entry too: the size is the depth
};

}  // namespace

void check_json(std::string_view text, const JsonLimits& limits, std::string_view source) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    throw DataError(
        cat(source, ": ", text.size(), " bytes of JSON, want at most ", limits.max_bytes));
  }
  LimitChecker checker(limits, source);
  nlohmann::json::sax_parse(text, &checker);
}

std::string read_text_file(const std::string& path, int64_t max_bytes) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) {
    const std::string message = cat(path, ": cannot be opened: ", std::strerror(errno));
    if (errno == ENOENT || errno == ENOTDIR) throw MissingInputError(message);
    throw DataError(message);
  }
  // Read in pieces, because a pipe or a file in /proc does not tell its size.
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), count);
    if (static_cast<int64_t>(text.size()) > max_bytes) {
      throw DataError(cat(path, ": larger than ", max_bytes, " bytes"));
    }
  }
  if (std::ferror(file.get()) != 0) {
    throw DataError(cat(path, ": cannot be read: ", std::strerror(errno)));
  }
  return text;
}

}  // namespace shale
