#include "shale/runtime/data/images/latents.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "shale/kernels/loss.h"
#include "shale/runtime/io/safetensors_writer.h"
#include "shale/test/support/batches.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

// Writes latents with the value first + i + c / 4 + y / 16 + x / 64 at [i, c, y, x], and the labels
// first, first + 1, ...
void write_file(const std::string& path, int64_t count, int64_t first, int64_t edge = 2) {
  const Shape shape{count, 4, edge, edge};
  std::vector<f16> values;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const int64_t x = i % edge, y = i / edge % edge, c = i / (edge * edge) % 4;
    values.emplace_back(float(first + i / (4 * edge * edge)) + float(c) / 4 + float(y) / 16 +
                        float(x) / 64);
  }
  for (int64_t i = 0; i < count; ++i) labels.push_back(first + i);
  SafetensorsWriter file(
      path, {{.name = "latents", .dtype = DType::kF16, .shape = {shape.begin(), shape.end()}},
             {.name = "labels", .dtype = DType::kI64, .shape = {count}}});
  file.write(make_view(values.data(), shape));
  file.write(make_view(labels.data(), {count}));
  file.commit();
}

}  // namespace

TEST_CASE("latents of several files are read with their channels last") {
  const TempDir folder;
  CHECK_FALSE(has_latents(folder.path()));
  write_file(folder.file("a.safetensors"), 3, 0);
  write_file(folder.file("b.safetensors"), 2, 3);
  CHECK(has_latents(folder.path()));
  const LatentSplits splits = open_latents(folder.path(), 0.2);
  REQUIRE(splits.train->size() == 4);
  REQUIRE(splits.val->size() == 1);
  CHECK((splits.classes == 5 && splits.channels == 4 && splits.pixels == 2));
  CHECK(splits.val->label(0) == 4);
  std::vector<float> got(16);
  splits.train->read(3, got);
  CHECK(splits.train->label(3) == 3);
  CHECK((got[0] == 3 && got[1] == 3.25f && got[4] == 3 + 1.f / 64 && got[8] == 3 + 1.f / 16));
  CHECK_THROWS_AS(splits.train->label(4), InternalError);
  CHECK(open_latents(folder.path(), 0).val == nullptr);
  CHECK(open_latents(folder.path(), 0).fingerprint == splits.fingerprint);
  // Files named for validation are validation data, whatever the fraction; files named for test are
  // skipped.
  write_file(folder.file("interval.safetensors"), 1, 4);
  write_file(folder.file("dev.safetensors"), 2, 1);
  write_file(folder.file("test.safetensors"), 2, 5);
  const LatentSplits named = open_latents(folder.path(), 0);
  CHECK((named.train->size() == 6 && named.val->size() == 2 && named.classes == 5));
  CHECK(contains(named.summary, "skipped 1 files of the test split"));
  // Files may also be in folders named after their split.
  std::filesystem::create_directories(folder.file("val"));
  write_file(folder.file("val/0.safetensors"), 1, 3);
  CHECK(open_latents(folder.path(), 0).val->size() == 3);
}

TEST_CASE("one process looks at latents, others are told, and open a file when they read it") {
  const TempDir dir;
  const std::string folder = dir.file("latents"), away = dir.file("away");
  std::filesystem::create_directory(folder);
  write_file(folder + "/a.safetensors", 3, 0);
  write_file(folder + "/b.safetensors", 2, 3);
  write_file(folder + "/test.safetensors", 2, 5);
  std::string told;
  const OncePerHost reads = [&](const auto& read) { return told = read(); };
  const OncePerHost is_told = [&](const auto&) { return told; };
  CHECK(has_latents(folder, reads));
  CHECK(has_latents("nowhere", is_told));
  const LatentSplits first = open_latents(folder, 0.4, {}, reads);
  std::filesystem::rename(folder, away);
  const LatentSplits second = open_latents(folder, 0.4, {}, is_told);
  std::filesystem::rename(away, folder);
  CHECK((second.channels == 4 && second.pixels == 2 && second.classes == first.classes));
  CHECK(second.fingerprint == first.fingerprint);
  CHECK(second.checksum == first.checksum);
  CHECK(second.summary == first.summary);
  for (const auto& [a, b] : {std::pair(first.train, second.train), {first.val, second.val}}) {
    REQUIRE(a->size() == b->size());
    for (int64_t i = 0; i < a->size(); ++i) {
      CHECK(a->label(i) == b->label(i));
      std::vector<float> of_a(16), of_b(16);
      a->read(i, of_a);
      b->read(i, of_b);
      CHECK(of_a == of_b);
    }
  }
  // If a file is replaced before a process has read from it, the process refuses it.
  const LatentSplits third = open_latents(folder, 0, {}, is_told);
  write_file(folder + "/a.safetensors", 4, 0);
  std::vector<float> values(16);
  CHECK_THROWS_AS(third.train->read(0, values), DataError);
}

TEST_CASE("batches of latents have each once in an epoch, on any number of ranks") {
  const TempDir folder;
  write_file(folder.file("a.safetensors"), 8, 0);
  const LatentSplits splits = open_latents(folder.path(), 0);
  std::vector<int32_t> one, two(8);
  Batch batch;
  const BatchLayout whole{.global_batch = 4, .micro_batch = 4};
  const BatchSource alone = latent_train_batches(splits.train, 7, whole, 0, 0);
  for (int64_t i = 0; i < 2; ++i) {
    REQUIRE(alone(i, batch));
    for (const int32_t label : batch.field("labels").values<int32_t>()) one.push_back(label);
    CHECK(batch.field("images").values<float>()[0] == float(one[size_t(4 * i)]));
  }
  const BatchLayout half{.global_batch = 4, .micro_batch = 2, .ranks = 2};
  for (int64_t rank = 0; rank < 2; ++rank) {
    const BatchSource source = latent_train_batches(splits.train, 7, half, rank, 0);
    for (int64_t i = 0; i < 2; ++i) {
      REQUIRE(source(i, batch));
      const auto labels = batch.field("labels").values<int32_t>();
      std::ranges::copy(labels, two.begin() + 4 * i + 2 * rank);
    }
  }
  CHECK(one == two);
  check_workers_agree(latent_train_batches(splits.train, 7, half, 1, 0), 100);
  std::ranges::sort(one);
  CHECK(one == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("the last validation batch of latents is padded") {
  const TempDir folder;
  write_file(folder.file("a.safetensors"), 3, 0);
  const auto latents = open_latents(folder.path(), 0).train;
  const EvalRounds rounds(3, 2);
  const BatchSource source = latent_eval_batches(latents, rounds, 0, 1);
  Batch batch;
  REQUIRE((source(0, batch) && source(1, batch)));
  CHECK(batch.count == 1);
  const auto labels = batch.field("labels").values<int32_t>();
  CHECK((labels[0] == 2 && labels[1] == kernels::kIgnoreTarget));
  CHECK(batch.field("images").values<float>()[16] == 0);
  CHECK_FALSE(source(2, batch));
}

TEST_CASE("latents that are not as they should be are refused, with their file") {
  const TempDir folder;
  CHECK_THROWS_AS(open_latents(folder.path(), 0), MissingInputError);
  write_file(folder.file("a.safetensors"), 2, 0);
  write_file(folder.file("b.safetensors"), 2, 0, 4);
  CHECK_THROWS_AS(open_latents(folder.path(), 0), DataError);
  write_file(folder.file("b.safetensors"), 2, -1);
  CHECK_THROWS_AS(open_latents(folder.path(), 0), DataError);
}

}  // namespace shale::test
