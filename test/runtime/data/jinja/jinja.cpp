#include "shale/runtime/data/jinja/jinja.h"

#include <string>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {

// Renders a template and returns the result in the fixture's form, in which ranges count
// characters.
Json result_of(const std::string& text, const Json& values) {
  try {
    const JinjaText out = JinjaTemplate(text, "chat").render(values);
    Json result = {{"text", out.text}};
    const auto characters = [&out](size_t end) {
      int64_t count = 0;
      for (size_t i = 0; i < end; ++i) count += (out.text[i] & 0xc0) != 0x80 ? 1 : 0;
      return count;
    };
    for (const auto& [begin, end] : out.generations) {
      result["generations"].push_back(Json::array({characters(begin), characters(end)}));
    }
    return result;
  } catch (const DataError& error) {
    return {{"error", error.what()}};
  }
}

std::string refusal(const std::string& text, const Json& values = Json::object(),
                    const JinjaOptions& options = {}) {
  return message_of<DataError>([&] { JinjaTemplate(text, "chat").render(values, options); });
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("each construct of a template gives the text that transformers gives") {
  const Json fixture = test::json_file(test::fixture_path("jinja/constructs.json"));
  CHECK(fixture["cases"].size() > 500);
  for (const Json& one : fixture["cases"]) {
    const Json* values = one.find("values");
    Json expected = one;
    expected.erase("template");
    if (values != nullptr) expected.erase("values");
    if (const Json* unsupported = one.find("unsupported")) expected = {{"error", *unsupported}};
    INFO(one["template"].text());
    CHECK(result_of(one["template"].text(), values != nullptr ? *values : fixture["values"]) ==
          expected);
  }
}

TEST_CASE("errors name the template and the line of the construct") {
  CHECK(refusal("a\n\n{{ x\n  | nope }}")
            .starts_with("chat, line 4: filter 'nope' is not supported; supported are abs, "));
  CHECK(refusal("{# two\nlines #}\n{{ 1 +\n x.y }}") == "chat, line 4: 'x' is undefined");
  CHECK(refusal("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n\n{{ m() }}") ==
        "chat, line 2: division by zero");
  CHECK(refusal("\n{{ 'a'.zfill(3) }}")
            .starts_with("chat, line 2: this str has no 'zfill'; its supported methods are "));
}

TEST_CASE("values that no template can hold are refused") {
  CHECK(contains(refusal("", {{"x", uint64_t{1} << 63}}), "too large"));
  CHECK(contains(refusal("\xff"), "not UTF-8 at byte 0"));
  CHECK(contains(refusal("{{ 9223372036854775807 + 1 }}"), "too large"));
}

TEST_CASE("hostile templates end with an error, in little time and memory") {
  const JinjaOptions small{.limits = {.max_steps = 1'000'000, .max_bytes = 16 << 20}};
  const auto refused = [&small](const std::string& text) {
    return refusal(text, Json::object(), small);
  };
  const std::string everything = "{% for i in range(100000) %}";
  const std::string ends = "{% endfor %}";
  CHECK(contains(refused(everything + everything + ends + ends), "more than 1000000 steps"));
  CHECK(contains(refused("{{ 'a' * 1000000000000 }}"), "more than"));
  for (const char* huge : {"9223372036854775807", "4611686018427387904", "288230376151711744"}) {
    CHECK(contains(refused(cat("{{ 'ab' * ", huge, " }}")), "more than"));
    CHECK(contains(refused(cat("{{ [1] * ", huge, " }}")), "more than"));
    CHECK(contains(refused(cat("{{ [1] | batch(", huge, ", 2) | list }}")), "more than"));
    CHECK(contains(refused(cat("{{ 'a' | indent(", huge, ") }}")), "more than"));
  }
  CHECK(contains(refused("{% set n = namespace(s='aaaa') %}" + everything +
                         "{% set n.s = n.s ~ n.s %}" + ends),
                 "more than 16.0 MiB of text"));
  CHECK(contains(refused("{% set n = namespace(s=['a' * 100000]) %}{{ (n.s * 1000) | join }}"),
                 "more than 16.0 MiB of text"));
  CHECK(contains(
      refused("{% set n = namespace(l=[]) %}" + everything + "{% set n.l = [n.l, n.l] %}" + ends),
      "nested deeper than 200 levels"));
  // Builds a value with 2^100 items: lists of two lists, nested 100 deep.
  const std::string doubled =
      "{% set n = namespace(l=[], m=[]) %}{% for i in range(100) %}"
      "{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}";
  CHECK(contains(refused(doubled + "{{ n.l }}"), "more than"));
  CHECK(contains(refused(doubled + "{{ n.l == n.m }}"), "more than"));
  CHECK(contains(refused(doubled + "{{ n.l | tojson }}"), "more than"));
  CHECK(contains(refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "too deeply"));
  CHECK(contains(refused("{{ " + repeated("(", 5000) + repeated(")", 5000) + "}}"),
                 "nested deeper than 150 levels"));
  CHECK(
      contains(refused("{{ 1" + repeated(" + 1", 5000) + " }}"), "nested deeper than 150 levels"));
  CHECK(
      contains(refused("{{ " + repeated("not ", 5000) + "1 }}"), "nested deeper than 150 levels"));
  CHECK(contains(refused("{{ x" + repeated(".y", 5000) + " }}"), "nested deeper than 150 levels"));
  CHECK(contains(refused(repeated("{% if 1 %}", 5000)), "nested deeper than 150 levels"));
  CHECK(contains(refused(std::string(300'000, ' ')), "at most 262144"));
  CHECK(contains(refused("{{ range(1000000000000) }}"), "more than 100000 numbers"));
  CHECK(contains(refused("{{ 2 ** 64 }}{{ (-1) ** 4611686018427387904 }}"), "too large"));
  const JinjaOptions few{.limits = {.max_steps = 100, .max_bytes = 1000}};
  CHECK(contains(refusal("{{ x }}", {{"x", std::string(2000, 'x')}}, few), "more than 1000 B"));
}

TEST_CASE("namespaces that hold each other end with the rendering") {
  const JinjaTemplate chat(
      "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
      "{% macro m() %}{% endmacro %}{% set a.m = m %}{{ a.b.a.b is defined }}",
      "chat");
  CHECK(chat.render(Json::object()).text == "True");
}

TEST_CASE("strftime_now shows the time that it is given") {
  const JinjaTemplate chat("{{ strftime_now('%Y') }}", "chat");
  CHECK(chat.render(Json::object(), {.now = 1'000'000'000}).text == "2001");
}

TEST_CASE("a template says whether it marks what the assistant wrote") {
  CHECK(JinjaTemplate("{% generation %}x{% endgeneration %}", "chat").marks_generations());
  CHECK_FALSE(JinjaTemplate("x", "chat").marks_generations());
}

}  // namespace shale
