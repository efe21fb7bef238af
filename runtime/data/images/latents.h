#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/runtime/data/batch.h"
#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/io/safetensors.h"

namespace shale {

// Latents of pictures, as an encoder made them: a folder of safetensors files that each have
// "latents" [n, C, H, H], F32, F16 or BF16, and "labels" [n], I64 or I32, from 0 on.
class LatentDataset {
 public:
  int64_t size() const { return std::ssize(places_); }
  int64_t channels() const { return channels_; }
  int64_t pixels() const { return pixels_; }  // of an edge
  // Numbers from 0 to size() - 1, else InternalError. Any thread may read.
  int32_t label(int64_t index) const { return place(index).label; }
  // Writes latent `index` as [H, H, C]. Throws DataError if the file became shorter.
  void read(int64_t index, std::span<float> to) const;

 private:
  friend struct LatentFolder;
  struct Place {
    uint32_t file = 0;
    int32_t label = 0;
    int64_t row = 0;  // in its file
  };
  const Place& place(int64_t index) const;

  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<Place> places_;
  int64_t channels_ = 0, pixels_ = 0;
};

// Latents for training and for validation.
struct LatentSplits {
  std::shared_ptr<const LatentDataset> train;
  std::shared_ptr<const LatentDataset> val;  // null: there are none
  int64_t channels = 0, pixels = 0;
  int64_t classes = 0;  // one more than the highest label
  // Ranks and resumed runs compare both: names, sizes and labels; and the content of the files as
  // far as sampled_checksum() (content_scan.h) reads it.
  uint64_t fingerprint = 0, checksum = 0;
  std::string summary;
};

// Whether a folder has safetensors files.
bool has_latents(const std::string& path);
// Holds out the files whose names say so (runtime/data/split.h), else `val_fraction` of all, spread
// evenly. Throws MissingInputError, DataError, with the file, for what is not as it should be.
LatentSplits open_latents(const std::string& path, double val_fraction,
                          const OnReading& on_reading = {});

// As image_train_batches() and image_eval_batches(): "images" [rows, H, H, C] f32, "labels" [rows].
BatchSource latent_train_batches(std::shared_ptr<const LatentDataset> latents, uint64_t seed,
                                 const BatchLayout& layout, int64_t rank, int64_t first_step);
BatchSource latent_eval_batches(std::shared_ptr<const LatentDataset> latents,
                                const EvalRounds& rounds, int64_t rank, int64_t ranks);

}  // namespace shale
