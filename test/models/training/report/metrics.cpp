#include "shale/models/training/report/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/file_size_limit.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

StepMetrics full_row(int64_t step) {
  return {.step = step,
          .loss = 3.14159274f,
          .grad_norm = 1.25,
          .lr = 0.0003,
          .items = 16384,
          .items_per_s = 1234567.5,
          .step_ms = 12.125,
          .comm_exposed_ms = 0.5,
          .mfu = 0.413,
          .device_peak_bytes = 1 << 20,
          .host_peak_bytes = int64_t{3} << 32};
}

void write_rows(const std::string& path, const std::vector<MetricsRow>& rows) {
  MetricsWriter writer(path);
  for (const MetricsRow& row : rows) writer.write(row);
}

}  // namespace

TEST_CASE("a step is one JSON object with the documented keys in order", "[metrics]") {
  CHECK(to_json_line(full_row(7)) ==
        "{\"step\": 7, \"loss\": 3.14159274, \"loss_bits\": \"40490fdb\", \"grad_norm\": 1.25, "
        "\"lr\": 0.0003, \"tokens\": 16384, \"tokens_per_s\": 1234567.5, \"step_ms\": 12.125, "
        "\"comm_exposed_ms\": 0.500, \"mfu\": 0.413, \"device_peak_bytes\": 1048576, "
        "\"host_peak_bytes\": 12884901888}\n");
  CHECK(to_json_line(EvalMetrics{.step = 7, .val_loss = 2.5f}) ==
        "{\"step\": 7, \"val_loss\": 2.5, \"val_tokens\": null, \"val_ms\": null}\n");
  CHECK(to_json_line(EvalMetrics{
            .step = 7, .val_loss = 2.5f, .item = "points", .items = 300, .ms = 12.25}) ==
        "{\"step\": 7, \"val_loss\": 2.5, \"val_points\": 300, \"val_ms\": 12.250}\n");
  CHECK(contains(to_json_line(EvalMetrics{.step = 7, .val_loss = 2.5f, .ema_val_loss = 2.25}),
                 "\"val_loss\": 2.5, \"ema_val_loss\": 2.25, \"val_tokens\""));
  const Spread memory{
      .least = 12884901888, .median = 12884901889, .most = 2e10, .least_rank = 3, .most_rank = 0};
  CHECK(to_json_line(RanksMetrics{
            .step = 7,
            .ranks = 4,
            .figures = {{"device_busy_share", std::nullopt}, {"host_peak_bytes", memory}}}) ==
        "{\"step\": 7, \"ranks\": 4, \"device_busy_share_min\": null, "
        "\"device_busy_share_min_rank\": null, \"device_busy_share_median\": null, "
        "\"device_busy_share_max\": null, \"device_busy_share_max_rank\": null, "
        "\"host_peak_bytes_min\": 12884901888, \"host_peak_bytes_min_rank\": 3, "
        "\"host_peak_bytes_median\": 12884901889, \"host_peak_bytes_max\": 20000000000, "
        "\"host_peak_bytes_max_rank\": 0}\n");
}

TEST_CASE("the epoch of a step is read back", "[metrics]") {
  StepMetrics row = full_row(7);
  row.epoch = 1.25;
  const std::string line = to_json_line(row);
  CHECK(contains(line, "12884901888, \"epoch\": 1.25}\n"));
  CHECK(std::get<StepMetrics>(parse_metrics(line, "test").front()) == row);
}

TEST_CASE("a step of a mixture of experts has their loads, and is read back", "[metrics]") {
  StepMetrics row = full_row(7);
  row.experts = {
      .tokens_min = 3, .tokens_mean = 4096.5, .tokens_max = 9000, .dropped_share = 0.125};
  const std::string line = to_json_line(row);
  CHECK(contains(line,
                 "12884901888, \"expert_tokens_min\": 3, \"expert_tokens_mean\": 4096.5, "
                 "\"expert_tokens_max\": 9000, \"dropped_share\": 0.125}\n"));
  const std::vector<MetricsRow> rows = parse_metrics(line, "test");
  REQUIRE(rows.size() == 1);
  CHECK(std::get<StepMetrics>(rows[0]) == row);
  std::string without = line;
  without.erase(without.find(", \"dropped_share\""), 24);
  CHECK(contains(message_of<DataError>([&] { parse_metrics(without, "test"); }), "dropped_share"));
}

TEST_CASE("numbers of the program are columns of their own, and are read back", "[metrics]") {
  StepMetrics metrics{.step = 3, .loss = 0.5f, .more = {{"d_loss", 1.25}, {"reward", -2}}};
  const std::string line = to_json_line(metrics);
  CHECK(test::contains(line, ", \"own_d_loss\": 1.25, \"own_reward\": -2}"));
  CHECK(std::get<StepMetrics>(parse_metrics(line, "test").front()) == metrics);
  for (const char* name : {"", "Reward", "a b", "x_per_s", "x\"y"}) {
    metrics.more = {{name, 1}};
    CHECK(test::contains(test::message_of<ConfigError>([&] { to_json_line(metrics); }),
                         "expected letters a to z"));
  }
}

TEST_CASE("a step of several ranks has the bytes that were sent, and is read back", "[metrics]") {
  StepMetrics row = full_row(7);
  row.sent = {.gradients = 4e9, .parameters = 123456789, .activations = 0};
  const auto read_back = [](const std::string& line) {
    return std::get<StepMetrics>(parse_metrics(line, "test").front());
  };
  std::string line = to_json_line(row);
  CHECK(contains(line,
                 "\"sent_gradients_bytes\": 4000000000, \"sent_parameters_bytes\": 123456789, "
                 "\"sent_activations_bytes\": 0}\n"));
  CHECK(read_back(line) == row);
  row.sent->replicas = 16;
  line = to_json_line(row);
  CHECK(contains(line, "\"sent_replicas_bytes\": 16}\n"));
  CHECK(read_back(line) == row);
}

TEST_CASE("what is not known or not finite is null", "[metrics]") {
  CHECK(
      to_json_line(StepMetrics{}) ==
      "{\"step\": 0, \"loss\": 0, \"loss_bits\": \"00000000\", \"grad_norm\": null, \"lr\": null, "
      "\"tokens\": null, \"tokens_per_s\": null, \"step_ms\": null, \"comm_exposed_ms\": null, "
      "\"mfu\": null, \"device_peak_bytes\": null, \"host_peak_bytes\": null}\n");
  StepMetrics bad = {.loss = std::numeric_limits<float>::infinity(), .grad_norm = NAN};
  CHECK(contains(to_json_line(bad),
                 "\"loss\": null, \"loss_bits\": \"7f800000\", "
                 "\"grad_norm\": null"));
}

TEST_CASE("nine digits identify a float", "[metrics]") {
  const uint32_t bits = GENERATE(0x3f800001u, 0x00000001u, 0x7f7fffffu, 0xbf800001u, 0x40490fdbu,
                                 0x33d6bf95u, 0x3dcccccdu);
  const auto loss = std::bit_cast<float>(bits);
  const std::string line = to_json_line(EvalMetrics{.step = 1, .val_loss = loss});
  const TempDir dir;
  const auto rows = read_metrics(dir.write("m", line));
  REQUIRE(rows.size() == 1);
  CHECK(std::bit_cast<uint32_t>(std::get<EvalMetrics>(rows[0]).val_loss) == bits);
}

TEST_CASE("rows written come back equal", "[metrics]") {
  const TempDir dir;
  const std::vector<MetricsRow> rows = {
      full_row(1),
      StepMetrics{.step = 2, .loss = -0.f},
      EvalMetrics{.step = 2, .val_loss = 1.5f},
      full_row(3),
      EvalMetrics{.step = 3, .val_loss = 1.5f, .item = "points", .items = 12, .ms = 0.5},
      EvalMetrics{.step = 4, .val_loss = 1.5f, .ema_val_loss = 1.25},
      RanksMetrics{.step = 3,
                   .ranks = 2,
                   .figures = {{"share", Spread{0, .25, .5, 1, 0}}, {"unknown", std::nullopt}}}};
  write_rows(dir.file("m"), rows);
  CHECK(read_metrics(dir.file("m")) == rows);
}

TEST_CASE("validations of version 0.1 are read: they have no count and no time", "[metrics]") {
  const auto rows = parse_metrics("{\"step\": 2, \"val_loss\": 1.5}\n", "old");
  CHECK(rows == std::vector<MetricsRow>{EvalMetrics{.step = 2, .val_loss = 1.5f}});
}

TEST_CASE("a row about all ranks that lacks a key, or has no rank there, is refused", "[metrics]") {
  const auto read = [](const std::string& keys) {
    return message_of<DataError>(
        [&] { parse_metrics("{\"step\": 1, \"ranks\": 2, \"x_median\": 1" + keys + "}\n", "m"); });
  };
  CHECK(contains(read(", \"x_max\": 2"), "\"x_min\" is missing"));
  CHECK(contains(read(", \"x_min\": 0, \"x_max\": 2, \"x_min_rank\": -1"), "x_min_rank"));
  CHECK(contains(read(", \"x_min\": null, \"x_max\": 2"), "x_min: expected a number"));
}

TEST_CASE("a loss that is NaN comes back with its bits", "[metrics]") {
  const TempDir dir;
  const auto nan = std::bit_cast<float>(0xffc01234u);
  write_rows(dir.file("m"),
             {StepMetrics{.step = 1, .loss = nan}, EvalMetrics{.step = 1, .val_loss = nan}});
  const auto rows = read_metrics(dir.file("m"));
  REQUIRE(rows.size() == 2);
  CHECK(std::bit_cast<uint32_t>(std::get<StepMetrics>(rows[0]).loss) == 0xffc01234u);
  CHECK(std::isnan(std::get<EvalMetrics>(rows[1]).val_loss));
}

TEST_CASE("a row is in the file as soon as it is written, and rows are appended", "[metrics]") {
  const TempDir dir;
  {
    MetricsWriter writer(dir.file("m"));
    writer.write(full_row(1));
    CHECK(read_metrics(dir.file("m")).size() == 1);
  }
  write_rows(dir.file("m"), {full_row(2)});
  CHECK(read_metrics(dir.file("m")).size() == 2);
}

TEST_CASE("a full disk is a DiskError with path and reason", "[metrics]") {
  MetricsWriter writer("/dev/full");
  writer.write(full_row(1));
  const std::string message = message_of<DiskError>([&] { writer.sync(); });
  CHECK(contains(message, "/dev/full"));
  CHECK(contains(message, "No space left on device"));
}

TEST_CASE("a file that cannot be opened is a DiskError with path and reason", "[metrics]") {
  const TempDir dir;
  const std::string path = dir.file("absent/metrics.jsonl");
  const std::string message = message_of<DiskError>([&] { MetricsWriter writer(path); });
  CHECK(contains(message, path));
  CHECK(contains(message, "No such file or directory"));
}

TEST_CASE("a last line without a newline is left out, any other bad line is named", "[metrics]") {
  const TempDir dir;
  const std::string good = to_json_line(full_row(1));
  CHECK(read_metrics(dir.write("torn", good + good.substr(0, 40))).size() == 1);
  CHECK(read_metrics(dir.write("torn", good.substr(0, 40))).empty());
  CHECK(read_metrics(dir.write("empty", "")).empty());

  const auto complaint = [&](const std::string& line) {
    const std::string path = dir.write("bad", good + line + "\n" + good);
    const std::string message = message_of<DataError>([&] { read_metrics(path); });
    CHECK(contains(message, path + ":2: "));
    return message;
  };
  CHECK(contains(complaint(""), "not valid JSON"));
  CHECK(contains(complaint("{\"step\": 1"), "not valid JSON"));
  CHECK(contains(complaint("[1]"), "expected an object"));
  CHECK(contains(complaint("{}"), "the key \"step\" is missing"));
  CHECK(contains(complaint("{\"step\": 1}"), "the key \"loss_bits\" is missing"));
  CHECK(contains(complaint("{\"step\": 1.5, \"val_loss\": 1}"), "step: expected an integer"));
  CHECK(contains(complaint("{\"step\": -1, \"val_loss\": 1}"), "step: expected an integer of at"));
  CHECK(contains(complaint("{\"step\": 18446744073709551615, \"val_loss\": 1}"),
                 "step: expected an integer of at least 0, found 18446744073709551615"));
  CHECK(contains(complaint("{\"step\": 1, \"val_loss\": 1e300}"), "that fp32 can hold"));
  CHECK(contains(complaint("{\"step\": 1, \"val_loss\": \"x\"}"), "val_loss: expected a number"));
  CHECK(contains(complaint("{\"step\": 1, \"loss_bits\": \"xyz\"}"), "expected 8 hex digits"));
  CHECK(contains(complaint("{\"step\": 1, \"loss_bits\": \"4049 fdb\"}"), "expected 8 hex digits"));
  CHECK(contains(complaint("{\"step\": 1, \"step\": 2}"), "appears twice"));
  CHECK_THROWS_AS(read_metrics(dir.file("absent")), MissingInputError);
}

TEST_CASE("rows past a step are dropped, the others stay byte for byte", "[metrics]") {
  const TempDir dir;
  const std::string path = dir.file("m");
  write_rows(path, {full_row(1), EvalMetrics{1, 2.f}, full_row(2), EvalMetrics{2, 2.f}, full_row(3),
                    EvalMetrics{3, 2.f}});
  const std::string whole = test::read_file(path);
  CHECK(drop_metrics_after(path, 3) == 0);
  CHECK(test::read_file(path) == whole);
  CHECK(drop_metrics_after(path, 2) == 2);
  const std::string kept = test::read_file(path);
  CHECK(kept == whole.substr(0, kept.size()));
  CHECK(read_metrics(path).size() == 4);
  CHECK(drop_metrics_after(path, 0) == 4);
  CHECK(test::read_file(path).empty());
  CHECK(drop_metrics_after(path, 0) == 0);
}

TEST_CASE("dropping removes what a killed run left half written", "[metrics]") {
  const TempDir dir;
  const std::string good = to_json_line(full_row(1));
  const std::string path = dir.write("m", good + good.substr(0, 30));
  CHECK(drop_metrics_after(path, 5) == 0);
  CHECK(test::read_file(path) == good);
  write_rows(path, {full_row(2)});
  CHECK(read_metrics(path).size() == 2);
}

TEST_CASE("dropping leaves no other file behind and makes none", "[metrics]") {
  const TempDir dir;
  CHECK(drop_metrics_after(dir.file("absent"), 1) == 0);
  CHECK(std::filesystem::is_empty(dir.path()));
  write_rows(dir.file("m"), {full_row(1), full_row(2)});
  CHECK(drop_metrics_after(dir.file("m"), 1) == 1);
  const std::filesystem::directory_iterator files(dir.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("dropping follows a link, as appending does", "[metrics]") {
  const TempDir dir;
  const std::string text = to_json_line(full_row(1)) + to_json_line(full_row(2));
  const std::string target = dir.write("elsewhere", text);
  std::filesystem::create_symlink(target, dir.file("m"));
  CHECK(drop_metrics_after(dir.file("m"), 1) == 1);
  CHECK(read_metrics(target).size() == 1);
}

TEST_CASE("dropping looks at the end of a file alone", "[metrics]") {
  const TempDir dir;
  const std::string path = dir.write("m", "");
  // Size of 10 million rows in bytes, as a hole that takes no disk space.
  constexpr size_t kHole = size_t{3} << 30;
  std::filesystem::resize_file(path, kHole);
  MetricsWriter writer(path);
  AppendFile(path).write("\n");
  for (int64_t step = 7; step < 12; ++step) writer.write(full_row(step));
  const auto begin = std::chrono::steady_clock::now();
  CHECK(drop_metrics_after(path, 9) == 2);
  CHECK(read_newest_metrics(path, 3 * to_json_line(full_row(7)).size()).size() == 2);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
  CHECK(std::filesystem::file_size(path) < kHole + 3 * to_json_line(full_row(10)).size());
}

TEST_CASE("a file with a bad line is not touched by dropping", "[metrics]") {
  const TempDir dir;
  const std::string text = to_json_line(full_row(1)) + "oops\n";
  const std::string path = dir.write("m", text);
  CHECK_THROWS_AS(drop_metrics_after(path, 0), DataError);
  CHECK(test::read_file(path) == text);
}

TEST_CASE("behind the last step dropping takes anything that a stopped machine may leave",
          "[metrics]") {
  const TempDir dir;
  const std::string good =
      to_json_line(full_row(1)) + to_json_line(full_row(2)) + to_json_line(EvalMetrics{2, 2.f});
  // In the file, zeros replace a block that was never written, and a valid row follows.
  const std::string path =
      dir.write("m", good + std::string(50, '\0') + "7}\n" + to_json_line(full_row(4)));
  CHECK_THROWS_AS(drop_metrics_after(path, 3), DataError);  // the damaged row may be row 3
  CHECK(drop_metrics_after(path, 2) == 1);
  CHECK(test::read_file(path) == good);
}

TEST_CASE("metrics that somebody removes are missed once", "[metrics]") {
  const TempDir dir;
  const std::string path = dir.file("m"), log = dir.file("log");
  FILE* const file = std::fopen(log.c_str(), "w");
  set_process_log({.err = file});
  {
    MetricsWriter writer(path);
    writer.write(full_row(1));
    writer.sync();
    CHECK(test::read_file(log).empty());
    std::filesystem::remove(path);
    writer.write(full_row(2));
    writer.sync();
    writer.sync();
  }
  set_process_log({});
  std::fclose(file);
  const std::string text = test::read_file(log);
  CHECK(contains(text, path + ": the file was removed"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("rows that a full disk does not take are written later", "[metrics]") {
  const TempDir dir;
  const std::string path = dir.file("m"), log = dir.file("log");
  FILE* const file = std::fopen(log.c_str(), "w");
  set_process_log({.err = file});
  {
    MetricsWriter writer(path);
    writer.write(full_row(1));
    {
      // This limit also holds for root, unlike file permissions.
      const test::FileSizeLimit limit(std::filesystem::file_size(path) + 100);
      for (int64_t step = 2; step < 2000; ++step) writer.write(full_row(step));
      CHECK(contains(message_of<DiskError>([&] { writer.sync(); }), path));
    }
    writer.sync();
    writer.write(full_row(2000));
  }
  set_process_log({});
  std::fclose(file);
  const std::vector<MetricsRow> rows = read_metrics(path);
  REQUIRE(rows.size() == 2000);
  for (int64_t i = 0; i < 2000; ++i) {
    REQUIRE(std::get<StepMetrics>(rows[static_cast<size_t>(i)]).step == i + 1);
  }
  const std::string text = test::read_file(log);
  CHECK(contains(text, "are kept in memory until it works"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("a disk that stays full ends a run after 10,000 rows", "[metrics]") {
  const TempDir dir;
  const std::string path = dir.file("m");
  MetricsWriter writer(path);
  {
    const test::FileSizeLimit limit(10);
    for (int64_t step = 1; step <= AppendFile::kMostKept; ++step) writer.write(full_row(step));
    CHECK_THROWS_AS(writer.write(full_row(AppendFile::kMostKept + 1)), DiskError);
  }
  writer.sync();
  CHECK(read_metrics(path).size() == AppendFile::kMostKept + 1);
}

TEST_CASE("dropping that cannot shorten its file is a DiskError and keeps it", "[metrics]") {
  const TempDir dir;
  const std::string path = dir.file("m");
  write_rows(path, {full_row(1), full_row(2)});
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  if (access(path.c_str(), W_OK) == 0) return;  // root may write to any file
  CHECK(contains(message_of<DiskError>([&] { drop_metrics_after(path, 1); }), path));
  CHECK(read_metrics(path).size() == 2);
}

}  // namespace shale
