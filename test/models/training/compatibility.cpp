// Tests the table of incompatible options. Checks, error messages and the documentation's page are
// generated from it.
#include "shale/models/training/compatibility.h"

#include <fstream>
#include <set>
#include <sstream>

#include "shale/models/language/compatibility.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"

namespace shale::test {
namespace {

using models::Why;

template <typename Config>
std::string rows_of(std::span<const models::Incompatible<Config>> table) {
  std::string rows;
  for (const auto& pair : table) {
    rows +=
        cat("| `", pair.a.name, "` | `", pair.b.name, "` | ", pair.reason, " | ",
            pair.why == Why::kMathematics ? "cannot be" : "not built", " | ", pair.instead, " |\n");
  }
  return rows;
}

template <typename Config>
void check_table(std::span<const models::Incompatible<Config>> table) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& pair : table) {
    CAPTURE(pair.a.name, pair.b.name);
    CHECK(seen.emplace(pair.a.name, pair.b.name).second);
    CHECK(!seen.contains({pair.b.name, pair.a.name}));
    CHECK(!std::string(pair.reason).ends_with('.'));
    CHECK(pair.a.in(Config()).empty());  // defaults are compatible with every option
    CHECK(pair.b.in(Config()).empty());
  }
}

}  // namespace

TEST_CASE("each pair of options is in one table once, and defaults work together",
          "[compatibility]") {
  check_table(models::incompatible_run_options());
  check_table(models::incompatible_language_options());
}

TEST_CASE("a pair that a run uses is an error with its values, the reason and what to use",
          "[compatibility]") {
  models::RunConfig config;
  config.pipeline = 4;
  config.zero = 3;
  CHECK(message_of<ConfigError>(
            [&] { models::check_compatible(models::incompatible_run_options(), config); }) ==
        "--pipeline 4 is incompatible with --zero 3: every micro-batch would reduce "
        "gradients or gather parameters; use --zero 0 or 1");
  config.zero = 1;
  CHECK_NOTHROW(models::check_compatible(models::incompatible_run_options(), config));
  models::TrainConfig train;
  train.run.tensor = 2;
  train.language.source.objective = models::Objective::kDpo;
  CHECK_THROWS_WITH(models::check_compatible(models::incompatible_language_options(), train),
                    Catch::Matchers::Contains("--task dpo is incompatible with --tensor 2: "));
}

TEST_CASE("docs/reference/compatibility.md has the rows of the tables", "[compatibility]") {
  std::ifstream file(fixture_path("../../docs/reference/compatibility.md"));
  std::ostringstream page;
  page << file.rdbuf();
  for (const std::string& rows : {rows_of(models::incompatible_run_options()),
                                  rows_of(models::incompatible_language_options())}) {
    const bool has_rows = contains(page.str(), rows);
    if (!has_rows) WARN("expected in docs/reference/compatibility.md:\n" << rows);
    CHECK(has_rows);
  }
}

}  // namespace shale::test
