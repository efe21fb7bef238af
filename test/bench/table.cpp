#include "shale/bench/support/table.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::bench {

TEST_CASE("a text table aligns names left and numbers right", "[bench]") {
  Table table({"name", "ms"});
  table.add({"a", "1.00"});
  table.add({"longer", "123.45"});
  CHECK(table.text() ==
        "name        ms\n"
        "a         1.00\n"
        "longer  123.45\n");
}

TEST_CASE("a Markdown table keeps a bar in a cell from ending it", "[bench]") {
  Table table({"name", "ms"});
  table.add({"a|b", "1"});
  CHECK(table.markdown() ==
        "| name | ms |\n"
        "|---|---:|\n"
        "| a\\|b | 1 |\n");
}

TEST_CASE("a row of the wrong length is an error", "[bench]") {
  Table table({"name", "ms"});
  CHECK_THROWS_AS(table.add({"a"}), InternalError);
}

TEST_CASE("short numbers have about four digits", "[bench]") {
  CHECK(short_number(12345.6) == "12346");
  CHECK(short_number(123.456) == "123.5");
  CHECK(short_number(1.23456) == "1.235");
  CHECK(short_number(0.0123456) == "0.0123");
  CHECK(percent(0.8125) == "81.2%");
}

}  // namespace shale::bench
