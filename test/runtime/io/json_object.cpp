#include "shale/runtime/io/json_object.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;

TEST_CASE("a JSON object gives each key in its type", "[io]") {
  const JsonObject json(R"({"i":-3,"r":1.5,"b":true,"t":"x","n":null})", "a.json");
  CHECK(json.integer("i") == -3);
  CHECK(json.real("r") == 1.5);
  CHECK(json.real("i") == -3);
  CHECK(json.flag("b"));
  CHECK(json.text("t") == "x");
  CHECK(json.has("i"));
  CHECK_FALSE(json.has("absent"));
  CHECK_FALSE(json.has("n"));
}

TEST_CASE("a fallback stands for an absent key and for null, not for a wrong type", "[io]") {
  const JsonObject json(R"({"n":null,"t":"x"})", "a.json");
  for (const char* key : {"n", "absent"}) {
    CHECK(json.integer(key, 5) == 5);
    CHECK(json.real(key, 2.5) == 2.5);
    CHECK(json.flag(key, true));
    CHECK(json.text(key, "y") == "y");
    CHECK_THROWS_AS(json.integer(key), DataError);
    CHECK_THROWS_AS(json.real(key), DataError);
    CHECK_THROWS_AS(json.flag(key), DataError);
    CHECK_THROWS_AS(json.text(key), DataError);
  }
  CHECK_THROWS_AS(json.integer("t", 5), DataError);
  CHECK_THROWS_AS(json.real("t", 2.5), DataError);
  CHECK_THROWS_AS(json.flag("t", true), DataError);
}

TEST_CASE("a wrong type is named with source, key, wanted and found", "[io]") {
  const JsonObject json(R"({"i":1.0,"big":18446744073709551615,"b":1,"l":[1,2]})", "a.json");
  const std::string message = message_of<DataError>([&] { json.integer("i"); });
  CHECK(message == "a.json: 'i' is 1.0, expected an integer");
  CHECK_THROWS_AS(json.integer("big"), DataError);
  CHECK_THROWS_AS(json.flag("b"), DataError);
  CHECK(contains(message_of<DataError>([&] { json.text("l"); }), "[1,2]"));
  CHECK(contains(message_of<DataError>([&] { json.text("absent"); }), "missing"));
}

TEST_CASE("what is no strict JSON object is refused", "[io]") {
  for (const char* text : {"", "[]", "1", "{", "{}x", R"({"a":1,"a":2})", "{\"\xff\":1}"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(JsonObject(text, "a.json"), DataError);
  }
  const test::TempDir dir;
  CHECK_THROWS_AS(JsonObject::load(dir.file("absent")), MissingInputError);
  CHECK(JsonObject::load(dir.write("a.json", "{\"a\":1}")).integer("a") == 1);
}

}  // namespace shale
