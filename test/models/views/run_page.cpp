#include "shale/models/views/run_page.h"

#include <string>
#include <vector>

#include "shale/base/json.h"
#include "shale/base/text.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

using test::contains;

namespace {

RunData run_of(const std::string& name, int64_t steps, double faster) {
  RunData run{.name = name};
  for (int64_t step = 1; step <= steps; ++step) {
    run.columns["loss"].add(step, 3 + 5 / (faster * static_cast<double>(step)));
    run.columns["tokens_per_s"].add(step, 1000);
    run.loss_bits.emplace_back(step, static_cast<uint32_t>(step));
  }
  run.options = {{"lr", 0.1}, {"data", name}};
  return run;
}

Json feed_of(const std::vector<RunData>& runs) {
  return Json::parse(run_feed(runs), {.max_bytes = 1 << 24}, "feed");
}

}  // namespace

TEST_CASE("a feed has the columns of the runs, what they say and where they differ", "[run_page]") {
  std::vector<RunData> runs = {run_of("a", 3, 1), run_of("b", 4, 2)};
  runs[1].loss_bits[1].second = 7;
  runs[0].columns["loss"].add(4, std::nullopt);
  const Json feed = feed_of(runs);
  CHECK(feed["version"] == Json(1));
  CHECK(feed["runs"].size() == 2);
  const Json& a = feed["runs"][0];
  CHECK(a["about"]["name"] == Json("a"));
  CHECK(a["about"]["item"] == Json("tokens"));
  CHECK(a["about"]["options"] == Json({{"lr", 0.1}, {"data", "a"}}));
  CHECK(a["columns"]["loss"]["steps"] == Json(std::vector<int>{1, 2, 3}));
  CHECK(a["columns"]["loss"]["values"] == Json(std::vector<double>{8, 5.5, 4.6666667}));
  CHECK(a["columns"]["loss"]["newest"].is_null());
  CHECK(a["columns"]["tokens_per_s"]["sum"] == Json(3000));
  CHECK_FALSE(a["columns"]["loss"].contains("least"));
  CHECK(a["differs_at"].is_null());
  CHECK(feed["runs"][1]["differs_at"] == Json(2));
  CHECK(feed_of({})["runs"].size() == 0);
}

TEST_CASE("long columns have at most 1024 points, with their extremes", "[run_page]") {
  std::vector<RunData> runs = {run_of("a", 200'000, 1)};
  runs[0].columns["loss"].add(200'001, -7);
  CHECK(run_feed(runs).size() < 200'000);
  const Json feed = feed_of(runs);
  const Json& column = feed["runs"][0]["columns"]["loss"];
  CHECK(column["steps"].size() <= Column::kMostPoints);
  CHECK(column["most"][0].real() == 8);
  CHECK(column["least"][column["least"].size() - 1].real() == -7);
}

TEST_CASE("pictures are in the feed as base64, and those that cannot be read are empty",
          "[run_page]") {
  const test::TempDir dir;
  RunData run = run_of("a", 1, 1);
  const auto add = [&](const std::string& bytes) {
    run.pictures.push_back(dir.write(cat("step_", run.pictures.size(), ".png"), bytes));
  };
  for (const char* const bytes : {"f", "fo", "foo", "\xff\xef"})
    add(bytes);  // test vectors of RFC 4648, section 10
  add(std::string(2 << 20, 'x'));
  run.pictures.push_back(dir.file("gone.png"));
  const Json feed = feed_of({run});
  const Json& pictures = feed["runs"][0]["about"]["pictures"];
  std::string data;
  for (const Json& picture : pictures) data += picture["png"].text() + " ";
  CHECK(data == "Zg== Zm8= Zm9v /+8=   ");
  CHECK(pictures[5]["name"] == Json("gone.png"));
}

TEST_CASE("a page is one file that asks no other host, and no text of a run leaves its feed",
          "[run_page]") {
  RunData run = run_of("</script><script>alert(1)</script><!--", 3, 1);
  run.samples.newest = {Json{{"tag", "<b>"}, {"text", "\xff </SCRIPT x"}}};
  run.status = {{"message", "<!--"}};
  const std::string page = run_page(run_feed(std::vector{run}));
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  const std::string plain = run_page("");
  const size_t begin = plain.find("json\">") + 6;
  const std::string_view feed(page.data() + begin, page.size() - plain.size());
  CHECK(page.substr(0, begin) == plain.substr(0, begin));
  CHECK(page.substr(begin + feed.size()) == plain.substr(begin));
  CHECK_FALSE(contains(feed, "<"));
  const Json read = Json::parse(feed, {}, "feed");
  CHECK(read["runs"][0]["about"]["name"] == Json(run.name));
  for (const char* const part :
       {"https:", "src=\"http", "@import", "url(", "innerHTML", "@page.", "@feed@", "@charts"}) {
    CAPTURE(part);
    CHECK_FALSE(contains(plain, part));
  }
  CHECK(contains(plain, "default-src 'none'"));
  CHECK(contains(plain, "prefers-color-scheme: dark"));
  CHECK(contains(plain, "@media print"));
}

TEST_CASE("the first step with another bit is found among those of both", "[run_page]") {
  RunData a = run_of("a", 10, 1), b = run_of("b", 8, 1);
  CHECK_FALSE(first_difference(a, b));
  b.loss_bits[4].second ^= 1;
  CHECK(first_difference(a, b) == 5);
  a.loss_bits.erase(a.loss_bits.begin() + 4);
  CHECK_FALSE(first_difference(a, b));
}

}  // namespace shale::models
