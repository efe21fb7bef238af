#include "shale/models/diffusion/data.h"

#include "shale/runtime/data/images/latents.h"

namespace shale::models {
namespace {

constexpr int64_t kSmallPixels = 32, kPixels = 256;

// Returns preprocessing without random changes. Pixel values are from -1 to 1.
Augmentation as_they_are(const DiffusionConfig& config, ImageFormat format) {
  const int64_t pixels = format == ImageFormat::kFolder ? kPixels : kSmallPixels;
  return {.pixels = config.data.pixels > 0 ? config.data.pixels : pixels,
          .crop_area = 1,
          .mirror = config.data.mirror,
          .center_share = 1,
          .mean = {0.5f, 0.5f, 0.5f},
          .deviation = {0.5f, 0.5f, 0.5f}};
}

DiffusionData open_pictures(const DiffusionConfig& config, uint64_t seed,
                            const std::shared_ptr<DamagedImages>& damaged,
                            const DataReading& reading) {
  const ImageSplits splits = open_images(data_options(config.data, seed, kSmallPixels, reading));
  const Augmentation augmentation = as_they_are(config, splits.format);
  DiffusionData data{.pixels = augmentation.pixels,
                     .channels = 3,
                     .train_images = splits.train->size(),
                     .val_images = splits.val != nullptr ? splits.val->size() : 0,
                     .classes = splits.classes,
                     .fingerprint = splits.fingerprint,
                     .checksum = splits.checksum,
                     .summary = splits.summary};
  data.train = [=](const BatchPlan& plan) {
    return image_train_batches({.images = splits.train,
                                .augmentation = augmentation,
                                .seed = seed,
                                .layout = plan.layout,
                                .rank = plan.rank,
                                .first_step = plan.first_step,
                                .damaged = damaged});
  };
  data.val = [=](const EvalRounds& rounds, int64_t rank, int64_t ranks) {
    return image_eval_batches({.images = splits.val,
                               .augmentation = augmentation,
                               .rounds = rounds,
                               .rank = rank,
                               .ranks = ranks,
                               .damaged = damaged});
  };
  return data;
}

DiffusionData open_stored_latents(const DiffusionConfig& config, uint64_t seed,
                                  const DataReading& reading) {
  const LatentSplits splits =
      open_latents(config.data.path, config.data.val_fraction, reading.on_reading, reading.once);
  DiffusionData data{.pixels = splits.pixels,
                     .channels = splits.channels,
                     .is_pictures = false,
                     .train_images = splits.train->size(),
                     .val_images = splits.val != nullptr ? splits.val->size() : 0,
                     .fingerprint = splits.fingerprint,
                     .checksum = splits.checksum,
                     .summary = splits.summary};
  for (int64_t label = 0; label < splits.classes; ++label) data.classes.push_back(cat(label));
  data.train = [=](const BatchPlan& plan) {
    return latent_train_batches(splits.train, seed, plan.layout, plan.rank, plan.first_step);
  };
  data.val = [=](const EvalRounds& rounds, int64_t rank, int64_t ranks) {
    return latent_eval_batches(splits.val, rounds, rank, ranks);
  };
  return data;
}

}  // namespace

DiffusionData open_diffusion_data(const DiffusionConfig& config, uint64_t seed,
                                  const std::shared_ptr<DamagedImages>& damaged,
                                  const DataReading& reading) {
  const bool is_auto = config.data.format == ImageFormat::kAuto;
  return is_auto && has_latents(config.data.path, reading.once)
             ? open_stored_latents(config, seed, reading)
             : open_pictures(config, seed, damaged, reading);
}

}  // namespace shale::models
