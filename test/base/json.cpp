#include "shale/base/json.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/json.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {

Json parse(std::string_view text, const JsonLimits& limits = {}) {
  return Json::parse(text, limits, "a.json");
}
std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}
std::string complaint(const std::string& text, const JsonLimits& limits = {}) {
  return message_of<DataError>([&] { parse(text, limits); });
}
template <typename Use>
std::string refusal(const Use& use) {
  return message_of<DataError>(use);
}

}  // namespace

// ---- Values ----

TEST_CASE("a Json is null, a boolean, a number, a string, an array or an object", "[base]") {
  CHECK(Json().is_null());
  CHECK(Json(nullptr).is_null());
  CHECK(Json(true).is_boolean());
  CHECK(Json(1).is_integer());
  CHECK(Json(uint64_t{1} << 63).is_integer());
  CHECK_FALSE(Json(1.0).is_integer());
  CHECK(Json(1.0).is_number());
  CHECK(Json(1).is_number());
  CHECK(Json("x").is_string());
  CHECK(Json::array().is_array());
  CHECK(Json::object().is_object());
}

TEST_CASE("a list of pairs of a string and a value is an object, another list an array", "[base]") {
  CHECK(Json{{"b", 1}, {"a", {2, "x"}}}.dump() == R"({"b":1,"a":[2,"x"]})");
  CHECK(Json{{"a", 1}, {"b"}}.dump() == R"([["a",1],["b"]])");
  CHECK(Json::array({{"a", 1}}).dump() == R"([["a",1]])");
  CHECK(Json(std::vector<std::string>{"a", "b"}).dump() == R"(["a","b"])");
  CHECK(Json(Json::Object{{"a", nullptr}}).dump() == R"({"a":null})");
}

TEST_CASE("members keep their order, and equality does not see it", "[base]") {
  Json object = parse(R"({"b": 1, "a": [{"z": 1, "y": 2}]})");
  CHECK(object.dump() == R"({"b":1,"a":[{"z":1,"y":2}]})");
  CHECK(object == parse(R"({"a": [{"y": 2, "z": 1}], "b": 1})"));
  CHECK(object != parse(R"({"a": [{"y": 2, "z": 1}], "c": 1})"));
  CHECK(object != parse(R"({"a": [{"y": 2, "z": 1}]})"));
  object.sort_keys();
  CHECK(object.dump() == R"({"a":[{"y":2,"z":1}],"b":1})");
}

TEST_CASE("values are compared by what they are", "[base]") {
  CHECK(Json(1) == 1.0);
  CHECK(Json(uint64_t{1} << 63) == 0x1p63);
  CHECK(Json(1) != 2);
  CHECK(Json(1) != true);
  CHECK(Json(1) != "1");
  CHECK(Json("a") == "a");
  CHECK(Json({1, 2}) != Json({2, 1}));
  CHECK(Json() == nullptr);
  CHECK(Json(INT64_MAX) != uint64_t{1} << 63);
}

TEST_CASE("members and items are added where they are missing", "[base]") {
  Json value;
  value["a"] = 1;
  value["b"]["c"] = 2;
  value["a"] = "x";
  value["d"].push_back(3);
  value["d"].push_back({4, 5});
  CHECK(value.dump() == R"({"a":"x","b":{"c":2},"d":[3,[4,5]]})");
  value["d"][0] = nullptr;
  value.erase("b");
  value.erase("none");
  CHECK(value.dump() == R"({"a":"x","d":[null,[4,5]]})");
  CHECK(value.size() == 2);
  CHECK(value.contains("a"));
  CHECK(value.find("b") == nullptr);
  CHECK_FALSE(value["d"].contains("a"));
  CHECK(*value.find("a") == "x");
}

TEST_CASE("what is asked of a value of another type says what was found", "[base]") {
  const Json value = {{"a", {1, 2}}, {"b", "x"}, {"c", 1.5}};
  CHECK(refusal([&] { static_cast<void>(value["x"]); }) ==
        R"(expected an object with the key 'x', found {"a":[1,2],"b":"x","c":1.5})");
  CHECK(refusal([&] { static_cast<void>(value["a"]["x"]); }) ==
        "expected an object with the key 'x', found [1,2]");
  CHECK(refusal([&] { static_cast<void>(value["a"][2]); }) ==
        "expected an array with an item 2, found [1,2]");
  CHECK(refusal([&] { static_cast<void>(value["b"].size()); }) ==
        R"(expected an object, found "x")");
  CHECK(refusal([&] { static_cast<void>(value["b"].real()); }) ==
        R"(expected a number, found "x")");
  CHECK(refusal([&] { static_cast<void>(value["c"].text()); }) == "expected a string, found 1.5");
  CHECK(refusal([&] { static_cast<void>(value["c"].boolean()); }) ==
        "expected true or false, found 1.5");
  CHECK(contains(refusal([&] { value["c"].get<int>(); }), "expected an integer from -2147483648"));
  CHECK(contains(refusal([] { Json(300).get<uint8_t>(); }),
                 "expected an integer from 0 to 255, found 300"));
  CHECK(contains(refusal([] { Json(-1).get<uint64_t>(); }), "found -1"));
  CHECK(contains(refusal([] { Json(1).push_back(2); }), "expected an array, found 1"));
}

TEST_CASE("get reads numbers, texts and lists of them", "[base]") {
  CHECK(Json(3).get<double>() == 3);
  CHECK(Json(255).get<uint8_t>() == 255);
  CHECK(Json(UINT64_MAX).get<uint64_t>() == UINT64_MAX);
  CHECK(Json({1, 2}).get<std::vector<int64_t>>() == std::vector<int64_t>{1, 2});
  CHECK(Json({{1, 2}, {3}}).get<std::vector<std::vector<int>>>() ==
        std::vector<std::vector<int>>{{1, 2}, {3}});
  CHECK(Json({"a"}).get<std::vector<std::string>>() == std::vector<std::string>{"a"});
}

// ---- Texts ----

TEST_CASE("integers are exact from -2^63 to 2^64 - 1, and doubles beyond", "[base]") {
  CHECK(parse("9223372036854775807").int64() == INT64_MAX);
  CHECK(parse("-9223372036854775808").int64() == INT64_MIN);
  CHECK(parse("9223372036854775808").int64() == std::nullopt);
  CHECK(parse("9223372036854775808").get<uint64_t>() == uint64_t{1} << 63);
  CHECK(parse("18446744073709551615").dump() == "18446744073709551615");
  CHECK(parse("18446744073709551616").real() == 0x1p64);
  CHECK_FALSE(parse("18446744073709551616").is_integer());
  CHECK(parse("-9223372036854775809").real() == -0x1p63);
  CHECK(contains(complaint("[1e400]"), "a.json: not valid JSON at byte"));
}

TEST_CASE("doubles are written with the fewest digits that read back the same", "[base]") {
  CHECK(Json(1.0).dump() == "1.0");
  CHECK(Json(-0.0).dump() == "-0.0");
  CHECK(std::signbit(parse("-0.0").real()));
  CHECK(std::signbit(parse("-0").real()));
  CHECK_FALSE(parse("-0").is_integer());
  CHECK(Json(0.1).dump() == "0.1");
  CHECK(Json(1e-5).dump() == "1e-05");
  CHECK(Json(100000.0).dump() == "100000.0");
  CHECK(Json(1e300).dump() == "1e+300");
  CHECK(Json(INFINITY).dump() == "null");
  CHECK(Json(NAN).dump() == "null");
  for (const double value : {1.0 / 3, 5e-324, 1.7976931348623157e308, -2.5e-7, 0x1p53 + 2}) {
    CHECK(parse(Json(value).dump()) == value);
  }
}

TEST_CASE("strings are escaped, and what is not UTF-8 is replaced or refused", "[base]") {
  CHECK(json_quote("a\"\\/\b\f\n\r\t\x01\x1f\x7f") ==
        "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"");
  CHECK(json_quote(std::string_view("\0", 1)) == "\"\\u0000\"");
  const std::string whole = "\u00e9\u20ac\U0001f600\u0800\ud7ff\ue000\U0010ffff";
  CHECK(json_quote(whole, BrokenUtf8::kRefused) == "\"" + whole + "\"");
  const auto [broken, replaced] = GENERATE(table<std::string, int>({
      {"\xff", 1},              // cannot start a character
      {"\x80\x80", 2},          // continuation bytes without a start
      {"\xc0\xaf", 2},          // overlong encoding
      {"\xe2\x82", 1},          // truncated character
      {"\xf0\x9f\x98", 1},      // truncated character
      {"\xed\xa0\x80", 3},      // encodes a surrogate
      {"\xf4\x90\x80\x80", 4},  // above U+10FFFF
      {"\xf0\x9f\xf0\x9f", 2},  // a new character starts too early
  }));
  std::string want = "\"x";
  for (int i = 0; i < replaced; ++i) want += "\ufffd";
  CHECK(json_quote("x" + broken + "y") == want + "y\"");
  CHECK(Json("x" + broken + "y").dump() == want + "y\"");
  CHECK(contains(refusal([&] { json_quote(broken, BrokenUtf8::kRefused); }), "is not UTF-8"));
}

TEST_CASE("escapes are read, surrogates in pairs", "[base]") {
  CHECK(parse(R"("\u00e9\n\/\ud83d\ude00")").text() == "\u00e9\n/\U0001f600");
  CHECK(contains(complaint(R"(["\ud83d"])"), "not valid JSON"));
  CHECK(contains(complaint(R"(["\ude00"])"), "not valid JSON"));
}

TEST_CASE("dump writes one line, or a line for each value", "[base]") {
  const Json value = {{"a", {1, {{"b", true}}}}, {"c", Json::array()}, {"d", Json::object()}};
  CHECK(value.dump() == R"({"a":[1,{"b":true}],"c":[],"d":{}})");
  CHECK(value.dump(2) == R"({
  "a": [
    1,
    {
      "b": true
    }
  ],
  "c": [],
  "d": {}
})");
  CHECK(parse(value.dump(1)) == value);
}

// ---- Limits ----

TEST_CASE("documents within the limits are read", "[base]") {
  const std::string text =
      GENERATE(as<std::string>{}, "{}", "[]", "1", "null", "\"x\"",
               R"({"a": {"b": 1}, "c": [{"b": 1}, {"b": 2}]})", " [1.5e3] \n", R"(["\u00e9"])");
  CHECK_NOTHROW(parse(text));
}

TEST_CASE("the depth of arrays and objects is counted", "[base]") {
  CHECK_NOTHROW(parse(nested(64)));
  CHECK(contains(complaint(nested(65)), "a.json: JSON is nested deeper than 64 levels"));
  CHECK_NOTHROW(parse(R"([{"a": 1}, {"a": 1}])", {.max_depth = 2}));
  CHECK(contains(complaint(R"([{"a": []}])", {.max_depth = 2}), "deeper than 2"));
  // Deep enough to overflow the stack of a recursive parser.
  CHECK(contains(complaint(std::string(1 << 20, '[')), "deeper than 64"));
}

TEST_CASE("a key that appears twice in one object is refused", "[base]") {
  CHECK(contains(complaint(R"({"lr": 1, "lr": 2})"), "a.json: the key 'lr' appears twice"));
  CHECK(contains(complaint(R"({"x": [{"k": 1, "j": 2, "k": 3}]})"), "'k' appears twice"));
  CHECK(contains(complaint(R"({"a": 1, "\u0061": 2})"), "'a' appears twice"));
}

TEST_CASE("text that is not one JSON document is refused", "[base]") {
  const std::string text =
      GENERATE(as<std::string>{}, "", " ", "{", "}", "[1,]", "{\"a\":}", "{a: 1}", "[1] [2]",
               "{} x", "NaN", "[Infinity]", "[1e999]", "'x'", "// c\n1", "[01]", "\"\xff\"", "\"a",
               "\"\t\"", "[\"\\ud800\"]", "tru");
  CAPTURE(text);
  CHECK(contains(complaint(text), "a.json: not valid JSON"));
}

TEST_CASE("text above the size limit is refused", "[base]") {
  CHECK_NOTHROW(parse("[1, 2]", {.max_bytes = 6}));
  CHECK(contains(complaint("[1, 2]", {.max_bytes = 5}), "6 bytes of JSON, expected at most 5"));
}

TEST_CASE("values are counted, keys included", "[base]") {
  const std::string text = R"({"a": [1, null, "x"], "b": {}})";  // 2 keys, 3 containers, 3 scalars
  CHECK_NOTHROW(parse(text, {.max_values = 8}));
  CHECK(contains(complaint(text, {.max_values = 7}), "a.json: JSON has more than 7 values"));
}

// ---- Visitors ----

TEST_CASE("a visitor sees values and keys in the order of the text", "[base]") {
  struct Recorder : JsonVisitor {
    void value(Json&& scalar) override { seen += scalar.dump() + " "; }
    void key(std::string&& name) override { seen += name + ": "; }
    void start_object() override { seen += "{ "; }
    void end_object() override { seen += "} "; }
    void start_array() override { seen += "[ "; }
    void end_array() override { seen += "] "; }
    std::string seen;
  };
  Recorder recorder;
  visit_json(R"({"b": [1, -2, 2.5, "x"], "b": {"a": null, "t": true}})", "a.json", recorder);
  CHECK(recorder.seen == "{ b: [ 1 -2 2.5 \"x\" ] b: { a: null t: true } } ");
  CHECK(contains(refusal([&] { visit_json("[1", "a.json", recorder); }),
                 "a.json: not valid JSON at byte 3"));
}

}  // namespace shale
