#include "shale/runtime/data/images/image_batches.h"

#include <algorithm>
#include <set>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/data/prefetch.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

// Images in a uniform gray; image i has the gray value i. Some images are damaged.
class Grays final : public ImageDataset {
 public:
  explicit Grays(int64_t size, std::set<int64_t> damaged = {})
      : size_(size), damaged_(std::move(damaged)) {}
  int64_t size() const override { return size_; }
  int32_t label(int64_t index) const override { return int32_t(index); }
  void read(int64_t index, Image& to) const override {
    if (damaged_.contains(index)) throw DataError(cat("image ", index, " is torn"));
    to.resize(4, 4, 1);
    std::fill(to.pixels.begin(), to.pixels.end(), uint8_t(index));
  }

 private:
  int64_t size_;
  std::set<int64_t> damaged_;
};

const Augmentation kPlain{
    .pixels = 4, .crop_area = 0.5, .center_share = 1, .mean = {0, 0, 0}, .deviation = {1, 1, 1}};

ImageTrainBatches training(const BatchLayout& layout, int64_t rank, int64_t first_step = 0) {
  return {.images = std::make_shared<Grays>(10),
          .augmentation = kPlain,
          .seed = 5,
          .layout = layout,
          .rank = rank,
          .first_step = first_step,
          .damaged = std::make_shared<DamagedImages>(0)};
}

std::vector<int32_t> labels_of(const Batch& batch) {
  const auto labels = batch.field("labels").values<int32_t>();
  return {labels.begin(), labels.end()};
}

}  // namespace

TEST_CASE("an epoch has each image once, and ranks share its positions") {
  const BatchLayout layout{.global_batch = 4, .micro_batch = 1, .ranks = 2};
  std::multiset<int32_t> seen;
  for (const int64_t rank : {0, 1}) {
    const BatchSource source = image_train_batches(training(layout, rank));
    Batch batch;
    // Two steps of two micro-batches, and the first micro-batch of a third step.
    for (int64_t i = 0; i < 5; ++i) {
      REQUIRE(source(i, batch));
      CHECK(batch.first_position == layout.first_position(i / 2, rank, i % 2));
      const auto labels = labels_of(batch);
      seen.insert(labels.begin(), labels.end());
      // A crop has the gray value of the whole image.
      CHECK(batch.field("images").values<float>()[7] == Approx(float(labels[0]) / 255));
    }
  }
  CHECK(std::set<int32_t>(seen.begin(), seen.end()).size() == 10);
  CHECK(seen.size() == 10);
  CHECK_THROWS_AS(image_train_batches(training(layout, 2)), InternalError);
}

TEST_CASE("a resumed run and several workers give the batches of one that went through") {
  const BatchLayout layout{.global_batch = 3, .micro_batch = 3};
  const BatchSource all = image_train_batches(training(layout, 0));
  const BatchSource rest = image_train_batches(training(layout, 0, /*first_step=*/4));
  Prefetcher ahead(image_train_batches(training(layout, 0)), {.depth = 4, .workers = 3});
  Batch a, b;
  for (int64_t i = 0; i < 8; ++i) {
    all(i, a);
    const Batch* c = ahead.next();
    CHECK(a.field("images").bytes == c->field("images").bytes);
    CHECK(labels_of(a) == labels_of(*c));
    if (i < 4) continue;
    rest(i - 4, b);
    CHECK(a.field("images").bytes == b.field("images").bytes);
  }
}

TEST_CASE("augmented and mixed samples do not depend on batches, ranks and where a run began") {
  const auto spec_of = [](const BatchLayout& layout, int64_t rank, int64_t first_step) {
    ImageTrainBatches spec = training(layout, rank, first_step);
    spec.augmentation.changes = 2;
    spec.augmentation.erase = 0.5;
    spec.mix = {.mixup = 0.8, .cutmix = 1, .label_smoothing = 0.1};
    spec.classes = 10;
    return spec;
  };
  // Reference: one rank that reads the images of all 12 positions in a single batch.
  Batch all;
  image_train_batches(spec_of({.global_batch = 12, .micro_batch = 12}, 0, 0))(0, all);
  const auto row_of = [](const Batch& batch, const char* field, int64_t row) {
    const auto values = batch.field(field).values<float>();
    const size_t count = values.size() / size_t(batch.count);
    const auto begin = values.begin() + std::ptrdiff_t(size_t(row) * count);
    return std::vector<float>(begin, begin + std::ptrdiff_t(count));
  };
  int mixed = 0;
  for (int64_t row = 0; row < 12; ++row) {
    const auto softening = row_of(all, "softening", row);
    // In a mixed image, two classes have more weight than label smoothing alone would give.
    mixed += std::count_if(softening.begin(), softening.end(),
                           [](float value) { return value < -0.011f; });
  }
  CHECK(mixed > 6);
  for (const BatchLayout& layout : {BatchLayout{.global_batch = 3, .micro_batch = 3},
                                    {.global_batch = 4, .micro_batch = 1, .ranks = 2},
                                    {.global_batch = 6, .micro_batch = 3, .ranks = 2}}) {
    for (int64_t rank = 0; rank < layout.ranks; ++rank) {
      for (const int64_t first_step : {0, 1}) {
        const BatchSource source = image_train_batches(spec_of(layout, rank, first_step));
        Batch batch;
        for (int64_t i = 0; source(i, batch); ++i) {
          if (batch.first_position + batch.count > 12) break;
          for (int64_t row = 0; row < batch.count; ++row) {
            const int64_t position = batch.first_position + row;
            CAPTURE(layout.micro_batch, rank, first_step, position);
            for (const char* field : {"images", "softening"}) {
              CHECK(row_of(batch, field, row) == row_of(all, field, position));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("validation goes through the images in order, padded with labels without a loss") {
  std::vector<int32_t> seen;
  for (const int64_t rank : {0, 1}) {
    const BatchSource source = image_eval_batches({.images = std::make_shared<Grays>(7),
                                                   .augmentation = kPlain,
                                                   .rounds = EvalRounds(7, 2),
                                                   .rank = rank,
                                                   .ranks = 2,
                                                   .damaged = std::make_shared<DamagedImages>(0)});
    Batch batch;
    int64_t i = 0;
    for (; source(i, batch); ++i) {
      for (const int32_t label : labels_of(batch)) {
        if (label != kernels::kIgnoreTarget) seen.push_back(label);
      }
    }
    CHECK(i == 2);
  }
  CHECK(seen == std::vector<int32_t>{0, 1, 4, 5, 2, 3, 6});
}

TEST_CASE("damaged images are left out up to a limit, each counted once") {
  ImageTrainBatches spec = training({.global_batch = 5, .micro_batch = 5}, 0);
  spec.images = std::make_shared<Grays>(10, std::set<int64_t>{2, 3});
  spec.damaged = std::make_shared<DamagedImages>(2);
  const BatchSource source = image_train_batches(spec);
  Batch batch;
  std::multiset<int32_t> seen;
  for (int64_t i = 0; i < 4; ++i) {  // reads two epochs
    source(i, batch);
    for (const int32_t label : labels_of(batch)) seen.insert(label);
  }
  CHECK(spec.damaged->count() == 2);
  CHECK(seen.count(2) + seen.count(3) == 0);
  CHECK(seen.count(4) == 6);  // image 4 also replaces both damaged images
  spec.damaged = std::make_shared<DamagedImages>(1);
  const BatchSource strict = image_train_batches(spec);
  const std::string message = message_of<DataError>([&] {
    for (int64_t i = 0; i < 2; ++i) strict(i, batch);
  });
  CHECK(contains(message, "is torn; 2 images are damaged, expected at most 1 (--max-damaged)"));

  const BatchSource evaluation =
      image_eval_batches({.images = spec.images,
                          .augmentation = kPlain,
                          .rounds = EvalRounds(4, 4),
                          .damaged = std::make_shared<DamagedImages>(2)});
  evaluation(0, batch);
  CHECK(labels_of(batch) ==
        std::vector<int32_t>{0, 1, kernels::kIgnoreTarget, kernels::kIgnoreTarget});
}

}  // namespace shale::test
