#include "shale/base/json_limits.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {
std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}
std::string complaint(const std::string& text, const JsonLimits& limits = {}) {
  return message_of<DataError>([&] { check_json(text, limits, "a.json"); });
}
}  // namespace

TEST_CASE("check_json accepts documents within the limits", "[base]") {
  const std::string text =
      GENERATE(as<std::string>{}, "{}", "[]", "1", "null", "\"x\"",
               R"({"a": {"b": 1}, "c": [{"b": 1}, {"b": 2}]})", " [1.5e3] \n", R"(["\u00e9"])");
  CHECK_NOTHROW(check_json(text, {}, "a.json"));
}

TEST_CASE("check_json counts the depth of arrays and objects", "[base]") {
  CHECK_NOTHROW(check_json(nested(64), {}, "a.json"));
  CHECK(contains(complaint(nested(65)), "a.json: JSON is nested deeper than 64 levels"));
  CHECK_NOTHROW(check_json(R"([{"a": 1}, {"a": 1}])", {.max_depth = 2}, "a.json"));
  CHECK(contains(complaint(R"([{"a": []}])", {.max_depth = 2}), "deeper than 2"));
  // Deep enough to overflow the stack of a recursive parser.
  CHECK(contains(complaint(std::string(1 << 20, '[')), "deeper than 64"));
}

TEST_CASE("check_json refuses a key that appears twice in one object", "[base]") {
  CHECK(contains(complaint(R"({"lr": 1, "lr": 2})"), "a.json: the key 'lr' appears twice"));
  CHECK(contains(complaint(R"({"x": [{"k": 1, "j": 2, "k": 3}]})"), "'k' appears twice"));
  CHECK(contains(complaint(R"({"a": 1, "\u0061": 2})"), "'a' appears twice"));
}

TEST_CASE("check_json refuses text that is not one JSON document", "[base]") {
  const std::string text =
      GENERATE(as<std::string>{}, "", " ", "{", "}", "[1,]", "{\"a\":}", "{a: 1}", "[1] [2]",
               "{} x", "NaN", "[Infinity]", "[1e999]", "'x'", "// c\n1", "[01]", "\"\xff\"", "\"a",
               "\"\t\"", "[\"\\ud800\"]", "tru");
  CAPTURE(text);
  CHECK(contains(complaint(text), "a.json: not valid JSON"));
}

TEST_CASE("check_json refuses text above the size limit", "[base]") {
  CHECK_NOTHROW(check_json("[1, 2]", {.max_bytes = 6}, "a.json"));
  CHECK(contains(complaint("[1, 2]", {.max_bytes = 5}), "6 bytes of JSON, want at most 5"));
}

TEST_CASE("check_json counts values, keys included", "[base]") {
  const std::string text = R"({"a": [1, null, "x"], "b": {}})";  // 2 keys, 3 containers, 3 others
  CHECK_NOTHROW(check_json(text, {.max_values = 8}, "a.json"));
  CHECK(contains(complaint(text, {.max_values = 7}), "a.json: more than 7 values"));
}

TEST_CASE("read_text_file reads up to the limit and names what is wrong", "[base]") {
  const test::TempDir dir;
  const std::string path = dir.write("a.txt", "12345");
  CHECK(read_text_file(path, 5) == "12345");
  CHECK(contains(message_of<DataError>([&] { read_text_file(path, 4); }),
                 path + ": larger than 4 bytes"));
  CHECK(read_text_file(dir.write("empty", ""), 0).empty());
  const std::string absent = dir.file("absent");
  CHECK(contains(message_of<MissingInputError>([&] { read_text_file(absent, 5); }), absent));
  CHECK(contains(message_of<DataError>([&] { read_text_file(dir.path(), 5); }), "directory"));
  CHECK(contains(message_of<DataError>([] { read_text_file("/dev/zero", 1000); }), "larger than"));
}

}  // namespace shale
