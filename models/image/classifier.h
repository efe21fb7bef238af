#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/models/image/model.h"
#include "shale/runtime/data/images/augment.h"
#include "shale/runtime/data/images/image_dataset.h"
#include "shale/runtime/export/onnx.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Counts images whose label is among the k classes with the highest scores.
struct Hits {
  static constexpr std::array<int64_t, 2> kTop = {1, 5};

  // Counts one image. Returns true if its label has the highest score. Of classes with equal
  // scores, the lower class ranks higher.
  bool add(std::span<const float> scores, int32_t label);

  // Number of images, then number of hits for each k of kTop.
  std::array<int64_t, kTop.size() + 1> counts = {};
};

// Returns true if the path is an image classifier: a folder written by train_image --export with
// timm's names, or a checkpoint or run of train_image.
bool is_image_classifier(const std::string& path);

// A trained image classifier on one device, without data parallelism.
class ImageClassifier {
 public:
  // path: a classifier of is_image_classifier(). ema: use the averaged weights of a checkpoint.
  // Throws as ImageWeights and CheckpointReader do; DataError for an unknown model.
  ImageClassifier(const std::string& path, std::shared_ptr<Context> context, DType dtype,
                  bool ema = false);

  // Example: "vit, 823448 parameters, 24 classes, 32 x 32, on cpu in fp32".
  std::string description() const;
  const std::vector<std::string>& classes() const { return classes_; }
  const Augmentation& augmentation() const { return augmentation_; }

  // Returns the log-probabilities [count, classes] of `count` pictures in the format of
  // write_pixels().
  std::vector<float> log_probabilities(std::span<const float> pictures, int64_t count);

  // Writes an ONNX file with the input "images" [N, pixels, pixels, 3], in the format of
  // write_pixels(), and the output "logits" [N, classes]. Metadata has the class names and the
  // normalisation. Throws as shale::export_onnx().
  OnnxExport export_onnx(const std::string& path);

  struct Scores {
    Hits hits;
    double loss = 0;  // summed over the images
  };
  // Scores the first `limit` images (0: all) of a data set, divided among the group's ranks.
  // classes: class names by label in the data set. Throws DataError for a class that the model does
  // not have. Collective; all ranks get the result.
  Scores evaluate(const std::shared_ptr<const ImageDataset>& images,
                  const std::vector<std::string>& classes, int64_t batch, int64_t limit,
                  comm::ProcessGroup& group);

 private:
  std::shared_ptr<Context> context_;
  DType dtype_;
  std::vector<std::string> classes_;
  Augmentation augmentation_;
  std::unique_ptr<ImageModel> model_;  // must be destroyed before the context
};

}  // namespace shale::models
