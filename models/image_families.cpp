// Table of the image classifiers.
#include "shale/base/error.h"
#include "shale/models/image/model.h"
#include "shale/models/resnet/resnet.h"
#include "shale/models/vit/vit.h"

namespace shale::models {
namespace {

ImageModelConfig resnet(std::array<int64_t, 4> depths, bool bottleneck, bool small_stem = false) {
  return {.family = "resnet", .depths = depths, .bottleneck = bottleneck, .small_stem = small_stem};
}

ImageModelConfig vit(int64_t layers, int64_t width, int64_t heads, int64_t patch) {
  return {.family = "vit", .layers = layers, .width = width, .heads = heads, .patch = patch};
}

}  // namespace

const std::vector<ImagePreset>& image_presets() {
  static const std::vector<ImagePreset> presets = {
      {.name = "resnet18", .model = resnet({2, 2, 2, 2}, false), .timm = "resnet18"},
      {.name = "resnet18-small", .model = resnet({2, 2, 2, 2}, false, /*small_stem=*/true)},
      {.name = "resnet50", .model = resnet({3, 4, 6, 3}, true), .timm = "resnet50"},
      {.name = "vit-nano", .model = vit(4, 128, 4, 8), .timm = "vit_tiny_patch16_224"},
      {.name = "vit-s16", .model = vit(12, 384, 6, 16), .timm = "vit_small_patch16_224"},
      {.name = "vit-b16",
       .model = vit(12, 768, 12, 16),
       .lr = 5e-4,
       .timm = "vit_base_patch16_224"},
      {.name = "vit-l16",
       .model = vit(24, 1024, 16, 16),
       .lr = 3e-4,
       .timm = "vit_large_patch16_224"},
  };
  return presets;
}

const ImagePreset& find_image_preset(const std::string& name) {
  std::string names;
  for (const ImagePreset& preset : image_presets()) {
    if (preset.name == name) return preset;
    names += cat(names.empty() ? "" : ", ", preset.name);
  }
  throw ConfigError(cat("--model is ", name, ", expected one of ", names));
}

std::unique_ptr<ImageModel> make_image_model(const ImageModelConfig& config) {
  if (config.family == "resnet") return std::make_unique<ResNet>(config);
  if (config.family == "vit") return std::make_unique<VisionTransformer>(config);
  throw ConfigError(cat("image model family is ", config.family, ", expected resnet or vit"));
}

}  // namespace shale::models
