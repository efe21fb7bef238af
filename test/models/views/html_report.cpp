#include "shale/models/views/html_report.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "shale/models/views/chart.h"
#include "shale/test/support/catch.h"

namespace shale::models {

using test::contains;

namespace {

RunData run_of(const std::string& name, int64_t steps, float faster) {
  RunData run{.name = name};
  for (int64_t step = 1; step <= steps; ++step) {
    run.steps.push_back({.step = step,
                         .loss = 3 + 5 / (faster * static_cast<float>(step)),
                         .grad_norm = 1,
                         .items_per_s = 1000,
                         .step_ms = 10});
  }
  run.evals = {{.step = steps, .val_loss = 3.5f}};
  run.options = {{"lr", name == "a" ? "0.1" : "0.2"}, {"seed", "1"}};
  return run;
}

// Checks that elements are closed in order. Returns the first problem, or "".
std::string unbalanced(std::string_view html) {
  std::vector<std::string> open;
  const auto is_void = [](const std::string& name) { return name == "meta" || name == "br"; };
  for (size_t at = html.find('<'); at != html.npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == html.npos) return "a tag without an end";
    const std::string tag(html.substr(at + 1, end - at - 1));
    if (tag.starts_with("!")) continue;
    const std::string name = tag.substr(0, tag.find_first_of(" \n/", 1));
    if (tag.starts_with("/")) {
      if (open.empty() || "/" + open.back() != tag) return tag;
      open.pop_back();
    } else if (!tag.ends_with("/") && !is_void(name)) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : open.back();
}

size_t count(std::string_view text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a report is one page that needs nothing from elsewhere", "[html_report]") {
  const std::vector<RunData> runs = {run_of("a", 50, 1), run_of("b", 60, 2)};
  const std::string html = html_report(runs);
  CHECK(unbalanced(html).empty());
  CHECK(unbalanced("<p><b></p>") == "/p");  // the check can fail
  for (const char* const part : {"<script", "http:", "https:", "src=", "@import", "url("}) {
    CAPTURE(part);
    CHECK_FALSE(contains(html, part));
  }
  CHECK(contains(html, "prefers-color-scheme: dark"));
  CHECK(contains(html, "@media print"));
  CHECK(contains(html, "lang=\"en\""));
  // Each chart with several curves must have a legend.
  CHECK(count(html, "<ul class=\"legend\">") == 5);
  // Every chart must have a description: loss (two charts), gradient norm, throughput and step
  // time.
  CHECK(count(html, "<svg role=\"img\"") == 5);
  CHECK(count(html, "</title>\n<desc>") == 5);
  CHECK(contains(html, "a training, smoothed: 8 at step 1"));
}

TEST_CASE("runs over each other differ in the options that differ", "[html_report]") {
  const std::vector<RunData> runs = {run_of("a", 50, 1), run_of("b", 60, 2)};
  const std::string html = html_report(runs);
  const std::string differing = html.substr(html.find("<h2>Differences"), 2000);
  const std::string part = differing.substr(0, differing.find("<h2>Loss"));
  CHECK(contains(part, "losses differ from step 1 on"));
  CHECK(contains(part, "<th scope=\"row\">lr</th><td class=\"number\">0.1</td>"));
  CHECK_FALSE(contains(part, "seed"));
  CHECK(contains(html, "<th scope=\"row\">seed</th>"));  // the table of all options lists it
  CHECK_FALSE(contains(html_report(std::span(runs).first(1)), "Differences"));
}

TEST_CASE("a page is sound for runs without steps, and quotes what they say", "[html_report]") {
  RunData run{.name = "<b> & \"c\""};
  run.warnings = {{.time = "T", .rank = 1, .level = "error", .text = "x < y"}};
  run.warnings_left_out = 2;
  run.status = RunStatus{.state = RunState::kFailed, .exit_code = 70, .message = "a > b"};
  const std::string html = html_report(std::span(&run, 1));
  CHECK(unbalanced(html).empty());
  CHECK_FALSE(contains(html, "<b>"));
  CHECK(contains(html, "&lt;b&gt; &amp; &quot;c&quot;"));
  CHECK(contains(html, "failed, exit code 70"));
  CHECK(contains(html, "x &lt; y"));
  CHECK(contains(html, "2 older ones"));
}

TEST_CASE("long runs make pages of bounded size", "[html_report]") {
  const RunData run = run_of("a", 200000, 1);
  CHECK(html_report(std::span(&run, 1)).size() < 400000);
}

TEST_CASE("the first step with another bit is found among those of both", "[html_report]") {
  RunData a = run_of("a", 10, 1), b = run_of("b", 8, 1);
  CHECK_FALSE(first_difference(a, b));
  b.steps[4].loss = std::nextafter(b.steps[4].loss, 9.0f);
  CHECK(first_difference(a, b) == 5);
  a.steps.erase(a.steps.begin() + 4);
  CHECK_FALSE(first_difference(a, b));
}

TEST_CASE("a chart of nothing is nothing, and of one point a picture", "[html_report]") {
  CHECK(svg_of({.title = "t"}).empty());
  CHECK(svg_of({.title = "t", .is_logarithmic = true, .curves = {{.points = {{1, -1}}}}}).empty());
  const std::string svg = svg_of({.title = "t", .curves = {{.label = "x", .points = {{1, 2}}}}});
  CHECK(unbalanced(svg).empty());
  CHECK(contains(svg, ">1.8</text>"));  // axis labels differ from each other
  CHECK(contains(svg, ">2.2</text>"));
  CHECK_FALSE(contains(svg, "nan"));
  CHECK_FALSE(contains(svg, "inf"));
}

TEST_CASE("a report of extreme steps and values ends, with finite coordinates", "[html_report]") {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  RunData run{.name = "a"};
  run.steps = {{.step = 10'000'000'000'000'000, .grad_norm = 1e16, .lr = 1e308, .mfu = 1e307},
               {.step = 10'000'000'000'000'002, .grad_norm = 1e16 + 2, .lr = -1e308, .mfu = 1}};
  CHECK(html_report(std::span(&run, 1)).size() < 100000);
  const std::vector<CurvePoints> curves = {
      loss_curve(run),
      curve_of(run, &StepMetrics::grad_norm),
      {{kLast - 1, 1}, {kLast, 2}},
      {{std::numeric_limits<int64_t>::min(), -kLargestValue}, {kLast, kLargestValue}},
      {{5, 1}, {2, 5e-324}, {5, 0}}};
  for (const CurvePoints& points : curves) {
    const std::string svg = svg_of({.title = "t", .curves = {{.points = points}}});
    CAPTURE(svg);
    CHECK_FALSE(contains(svg, "nan"));
    CHECK_FALSE(contains(svg, "inf"));
  }
}

}  // namespace shale::models
