#include "shale/models/training/report/tensorboard.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <random>

#include "shale/base/error.h"
#include "shale/base/protobuf.h"
#include "shale/runtime/io/event_file.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

using test::TempDir;

namespace {

namespace fs = std::filesystem;

// Contents of a folder of event files.
struct Seen {
  std::map<std::string, std::map<int64_t, std::vector<float>>> scalars;  // values by tag and step
  std::map<std::string, std::string> texts;                              // texts by tag
  std::map<std::string, Image> images;                // images by tag
  std::vector<std::string> hparams;                   // tags of hyper-parameters, in order
  std::vector<int64_t> starts;                        // steps of start events
  std::vector<std::string> versions;
};

// Returns the first field of a message with this number; fails the test if there is none.
ProtoField field_of(std::string_view message, uint32_t number) {
  ProtoReader reader(message, "a message");
  while (const auto field = reader.next()) {
    if (field->number == number) return *field;
  }
  FAIL("no field " << number);
  return {};
}

void see_value(std::string_view value, int64_t step, Seen& seen) {
  std::string tag;
  ProtoReader reader(value, "a value");
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 1: tag = field->bytes; break;
      case 2: seen.scalars[tag][step].push_back(field->real32()); break;
      case 4: {
        const std::string_view file = field_of(field->bytes, 4).bytes;
        Image& image = seen.images[tag];
        decode_image(std::as_bytes(std::span(file)), tag, image);
        CHECK(field_of(field->bytes, 1).integer() == image.rows);
        CHECK(field_of(field->bytes, 2).integer() == image.cols);
        CHECK(field_of(field->bytes, 3).integer() == 3);
        break;
      }
      case 8: seen.texts[tag] = field_of(field->bytes, 8).bytes; break;
      case 9: {
        const std::string_view plugin = field_of(field_of(field->bytes, 1).bytes, 1).bytes;
        if (plugin == "hparams") seen.hparams.push_back(tag);
        break;
      }
      default: FAIL("field " << field->number << " of " << tag);
    }
  }
}

Seen look(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Seen seen;
  for (const fs::path& path : files) {
    const std::string file = test::read_file(path);
    const EventRecords records = read_event_records(file);
    CHECK(records.sound_bytes == file.size());
    for (const std::string_view event : records.events) {
      const int64_t step = step_of_event(event, path);
      CHECK(field_of(event, 1).real() > 1.7e9);
      ProtoReader reader(event, path);
      while (const auto field = reader.next()) {
        if (field->number == 3) seen.versions.emplace_back(field->bytes);
        if (field->number == 7) seen.starts.push_back(step);
        if (field->number != 5) continue;
        ProtoReader summary(field->bytes, "a summary");
        while (const auto value = summary.next()) see_value(value->bytes, step, seen);
      }
    }
  }
  return seen;
}

StepMetrics row(int64_t step, float loss) {
  return {.step = step, .loss = loss, .grad_norm = 1.5, .items = 16 * step, .step_ms = 2.5};
}

const std::vector<std::pair<std::string, std::string>> kOptions = {
    {"lr", "0.001"}, {"optimizer", "\"adamw\""}, {"cuda-graph", "true"}, {"min-lr", "null"}};

}  // namespace

TEST_CASE("scalars have the tags and steps of the rows, and nothing for what is not known",
          "[tensorboard]") {
  const TempDir dir;
  TensorBoardWriter writer({.folder = dir.path() / "tb"});
  writer.write(row(1, 3.5f));
  writer.write(row(2, std::numeric_limits<float>::quiet_NaN()));
  writer.write(EvalMetrics{.step = 2, .val_loss = 3.25f, .top_k = {{1, 0.5}}, .items = 64});
  writer.write(RanksMetrics{.step = 2,
                            .ranks = 2,
                            .figures = {{"device_busy_share", Spread{.least = 0.5, .most = 0.75}},
                                        {"host_peak_bytes", std::nullopt}}});
  const Seen seen = look(dir.path() / "tb");
  CHECK(seen.versions == std::vector<std::string>{"brain.Event:2"});
  CHECK(seen.starts == std::vector<int64_t>{0});
  CHECK(seen.scalars.at("loss/train").at(1) == std::vector{3.5f});
  CHECK(std::isnan(seen.scalars.at("loss/train").at(2).at(0)));
  CHECK(seen.scalars.at("train/grad_norm").size() == 2);
  CHECK(seen.scalars.at("train/tokens").at(2) == std::vector{32.0f});
  CHECK(seen.scalars.at("speed/step_ms").at(1) == std::vector{2.5f});
  CHECK(seen.scalars.count("speed/mfu") == 0);
  CHECK(seen.scalars.at("loss/validation").at(2) == std::vector{3.25f});
  CHECK(seen.scalars.at("accuracy/top1").at(2) == std::vector{0.5f});
  CHECK(seen.scalars.at("validation/tokens").at(2) == std::vector{64.0f});
  CHECK(seen.scalars.at("ranks/device_busy_share_max").at(2) == std::vector{0.75f});
  CHECK(seen.scalars.count("ranks/host_peak_bytes_max") == 0);
}

TEST_CASE("texts and hyper-parameters are what the plugins look for", "[tensorboard]") {
  const TempDir dir;
  TensorBoardWriter writer({.folder = dir.path() / "tb", .options = kOptions});
  writer.write_text(3, "samples/end", "Once *upon*\na \xff time");
  writer.end(3, true);
  const Seen seen = look(dir.path() / "tb");
  CHECK(seen.texts.at("samples/end/text_summary") == "    Once *upon*\n    a \xef\xbf\xbd time");
  CHECK(seen.hparams == std::vector<std::string>{"_hparams_/experiment",
                                                 "_hparams_/session_start_info",
                                                 "_hparams_/session_end_info"});
}

TEST_CASE("a run that goes on has each step once, its options once and no early end",
          "[tensorboard]") {
  const TempDir dir;
  const fs::path folder = dir.path() / "tb";
  {
    TensorBoardWriter writer({.folder = folder, .options = kOptions});
    for (int64_t step = 1; step <= 4; ++step) writer.write(row(step, 3));
    writer.end(4, false);
  }
  {
    TensorBoardWriter writer({.folder = folder, .first_step = 2, .options = kOptions});
    for (int64_t step = 3; step <= 5; ++step) writer.write(row(step, 2));
  }
  const Seen seen = look(folder);
  CHECK(seen.starts == std::vector<int64_t>{0, 3});
  CHECK(seen.hparams.size() == 2);
  const auto& losses = seen.scalars.at("loss/train");
  REQUIRE(losses.size() == 5);
  for (int64_t step = 1; step <= 5; ++step) {
    CHECK(losses.at(step) == std::vector{step <= 2 ? 3.0f : 2.0f});
  }
}

TEST_CASE("images are PNG files of the sizes that are said", "[tensorboard]") {
  const TempDir dir;
  TensorBoardWriter writer({.folder = dir.path() / "tb"});
  Image picture;
  picture.resize(224, 200, 3);
  std::mt19937 noise(1);
  for (uint8_t& value : picture.pixels) value = static_cast<uint8_t>(noise() >> 24);
  const auto seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const double before = seconds();
  try {
    writer.write_image(4, "validation/image_1", picture);
  } catch (const UnavailableError&) {
    std::puts("skipped: this build has no libpng, so no image was written");
    return;
  }
  // The limit is the time that docs/howto/watch.md gives for an incompressible picture, plus
  // a margin.
  CHECK(seconds() - before < 0.1);
  const Seen seen = look(dir.path() / "tb");
  CHECK(seen.images.at("validation/image_1").pixels == picture.pixels);
  CHECK(seen.images.at("validation/image_1").cols == 200);
}

TEST_CASE("a run that begins renames the folder of the one before", "[tensorboard]") {
  const TempDir dir;
  const fs::path folder = dir.path() / "tb";
  for (int run = 0; run < 3; ++run) {
    TensorBoardWriter writer({.folder = folder});
    writer.write(row(1, static_cast<float>(run)));
  }
  CHECK(look(folder).scalars.at("loss/train").at(1) == std::vector{2.0f});
  CHECK(look(dir.path() / "tb.1").scalars.at("loss/train").at(1) == std::vector{0.0f});
  CHECK(look(dir.path() / "tb.2").scalars.at("loss/train").at(1) == std::vector{1.0f});
}

TEST_CASE("a row costs less than 0.2 ms of processor time", "[tensorboard]") {
  const TempDir dir;
  TensorBoardWriter writer({.folder = dir.path() / "tb"});
  constexpr int64_t kRows = 2000;
  // Measures CPU time, on which other processes have no effect. About 10 µs on any current machine.
  const std::clock_t start = std::clock();
  for (int64_t step = 1; step <= kRows; ++step) writer.write(row(step, 3));
  const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kRows;
  INFO(ms << " ms a row");
  CHECK(ms < 0.2);
}

}  // namespace shale::models
