#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/runtime/data/batch.h"
#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/once_per_host.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/io/file_maps.h"

namespace shale {

// Latents of images from an encoder: a folder of safetensors files, each with "latents" [n, C, H,
// H], F32, F16 or BF16, and "labels" [n], I64 or I32, starting at 0.
class LatentDataset {
 public:
  int64_t size() const { return std::ssize(places_); }
  int64_t channels() const { return channels_; }
  int64_t pixels() const { return pixels_; }  // edge length of a latent
  // Returns the label of a latent. index: 0 to size() - 1, else InternalError. Thread-safe.
  int32_t label(int64_t index) const { return place(index).label; }
  // Writes latent `index` as [H, H, C]. Throws DataError if the file was truncated or replaced.
  void read(int64_t index, std::span<float> to) const;

 private:
  friend struct LatentFolder;
  struct Place {
    uint32_t file = 0;
    int32_t label = 0;
    int64_t begin = 0;  // offset of the latent in its file
  };
  const Place& place(int64_t index) const;

  std::shared_ptr<FileMaps> files_ = std::make_shared<FileMaps>();
  std::vector<DType> dtypes_;  // dtype of each file
  std::vector<Place> places_;
  int64_t channels_ = 0, pixels_ = 0;
};

// Training and validation latents.
struct LatentSplits {
  std::shared_ptr<const LatentDataset> train;
  std::shared_ptr<const LatentDataset> val;  // null: there are no validation latents
  int64_t channels = 0, pixels = 0;
  int64_t classes = 0;  // highest label + 1
  // Values that must be equal on all ranks, and when a run resumes. fingerprint: names, sizes and
  // labels. checksum: sampled contents of the files (sampled_checksum() in content_scan.h).
  uint64_t fingerprint = 0, checksum = 0;
  std::string summary;
};

// Returns true if a folder contains safetensors files. once: see DataOptions.
bool has_latents(const std::string& path, const OncePerHost& once = {});
// Opens a folder of latents. Holds out the files that their names mark for validation
// (runtime/data/split.h). Without such files, holds out the fraction `val_fraction` of all samples,
// spread evenly. Throws MissingInputError, or DataError with the file for invalid data.
LatentSplits open_latents(const std::string& path, double val_fraction,
                          const OnReading& on_reading = {}, const OncePerHost& once = {});

// Return batches like image_train_batches() and image_eval_batches(), with fields "images" [rows,
// H, H, C] f32 and "labels" [rows].
BatchSource latent_train_batches(std::shared_ptr<const LatentDataset> latents, uint64_t seed,
                                 const BatchLayout& layout, int64_t rank, int64_t first_step);
BatchSource latent_eval_batches(std::shared_ptr<const LatentDataset> latents,
                                const EvalRounds& rounds, int64_t rank, int64_t ranks);

}  // namespace shale
