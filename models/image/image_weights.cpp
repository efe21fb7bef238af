#include "shale/models/image/image_weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/exec.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/comm/parallel/data/full_state.h"
#include "shale/models/weights/hf_export.h"
#include "shale/runtime/data/images/resample.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBatchCount = ".num_batches_tracked";

std::vector<int64_t> sizes_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

std::string file_name(const ImageModel& model, std::string_view name, WeightNames names) {
  return names == WeightNames::kTorchvision ? model.torchvision_name(name) : std::string(name);
}

// Returns all tensors of a model: its parameters, then its buffers.
std::vector<HfTensor> tensors_of(const ImageModel& model, WeightNames names) {
  std::vector<HfTensor> tensors;
  const auto add = [&](const std::string& name, const Shape& shape) {
    tensors.push_back(
        {.name = name, .shape = sizes_of(shape), .parts = {file_name(model, name, names)}});
  };
  for (const Parameter* parameter : whole_parameters(model))
    add(parameter->full_name(), parameter->whole);
  for (const Buffer* buffer : model.buffers()) add(buffer->full_name(), buffer->shape);
  return tensors;
}

// Returns the naming scheme with more names in the file.
WeightNames names_in(const StoredTensors& file, const ImageModel& model) {
  const auto known = [&](WeightNames names) {
    const std::vector<HfTensor> tensors = tensors_of(model, names);
    return std::count_if(tensors.begin(), tensors.end(), [&](const HfTensor& tensor) {
      return file.find(tensor.parts.front()) != nullptr;
    });
  };
  return known(WeightNames::kTorchvision) > known(WeightNames::kTimm) ? WeightNames::kTorchvision
                                                                      : WeightNames::kTimm;
}

// Returns the edge length of a square of `positions` positions; 0 if they form no square.
int64_t edge_of(int64_t positions) {
  const auto edge = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions))));
  return edge * edge == positions ? edge : 0;
}

// Returns true if a position table of this shape in a file can be resized to `want`.
bool can_resize(const std::vector<int64_t>& found, const ImageModel::PositionTable& want) {
  const Shape& shape = want.table->whole;
  return found.size() == 3 && found[0] == 1 && found[2] == shape[2] && found[1] > want.leading &&
         edge_of(found[1] - want.leading) > 0;
}

template <typename Values>
std::string list_text(const Values& values) {
  std::string text;
  for (const auto value : values) text += cat(text.empty() ? "" : ",", format_real(value));
  return text;
}

// Returns the shortest decimal numbers that convert back to these floats.
std::vector<double> decimals(const std::array<float, 3>& values) {
  std::vector<double> all;
  for (const float value : values) all.push_back(parse_real(format_real(value)).value());
  return all;
}

Json preprocessing(const ImageExport& what) {
  const Augmentation& augmentation = what.augmentation;
  const int64_t pixels = augmentation.pixels;
  return {{"input_size", {3, pixels, pixels}},     {"interpolation", "bilinear"},
          {"crop_pct", augmentation.center_share}, {"crop_mode", "center"},
          {"mean", decimals(augmentation.mean)},   {"std", decimals(augmentation.deviation)},
          {"num_classes", what.classes.size()}};
}

}  // namespace

std::string timm_config(const ImageExport& what, const ImageModel& model) {
  const ImageModelConfig& config = model.config();
  const std::string timm = find_image_preset(what.preset).timm;
  Json json = {{"architecture", timm.empty() ? what.preset : timm},
               {"num_classes", what.classes.size()}};
  if (config.family == "vit") {
    json["model_args"] = {{"img_size", config.pixels},
                          {"patch_size", config.patch},
                          {"embed_dim", config.width},
                          {"depth", config.layers},
                          {"num_heads", config.heads}};
  }
  json["label_names"] = what.classes;
  json["pretrained_cfg"] = preprocessing(what);
  json["pretrained_cfg"]["classifier"] = model.head();
  return json.dump(2) + "\n";
}

std::tuple<ImageModelConfig, std::vector<std::string>, Augmentation> read_timm_config(
    const std::string& file) {
  const JsonObject json = JsonObject::load(file);
  const std::string architecture = json.text("architecture");
  const std::vector<ImagePreset>& presets = image_presets();
  const auto found = std::ranges::find_if(presets, [&](const ImagePreset& preset) {
    return architecture == preset.name || architecture == preset.timm;
  });
  if (found == presets.end()) json.fail("architecture", "one of the presets of train_image");
  const JsonObject how = json.object("pretrained_cfg").value_or(json);
  ImageModelConfig model = found->model;
  model.classes = json.integer("num_classes", how.integer("num_classes", 1000));
  Augmentation augmentation{.center_share = how.real("crop_pct", 0.875)};
  if (const auto size = how.integers("input_size"); size.size() == 3) model.pixels = size[1];
  if (const auto sizes = json.object("model_args")) {
    model.pixels = sizes->integer("img_size", model.pixels);
    model.patch = sizes->integer("patch_size", model.patch);
    model.width = sizes->integer("embed_dim", model.width);
    model.layers = sizes->integer("depth", model.layers);
    model.heads = sizes->integer("num_heads", model.heads);
  }
  augmentation.pixels = model.pixels;
  const auto take = [&](const char* key, std::array<float, 3>& to) {
    const std::vector<double> values = how.reals(key);
    for (size_t c = 0; c < values.size() && c < to.size(); ++c) {
      to[c] = static_cast<float>(values[c]);
    }
  };
  take("mean", augmentation.mean);
  take("std", augmentation.deviation);
  std::vector<std::string> classes = json.texts("label_names");
  if (classes.empty()) {
    for (int64_t i = 0; i < model.classes; ++i) classes.push_back(std::to_string(i));
  }
  if (std::ssize(classes) != model.classes) json.fail("label_names", cat(model.classes, " names"));
  return {model, std::move(classes), augmentation};
}

ImageWeights::ImageWeights(const std::string& path, const ImageModel& model, bool new_head)
    : head_(new_head ? cat(model.head(), ".") : std::string()) {
  StoredTensors file(path);
  const WeightNames names = names_in(file, model);
  const auto of_head = [this](std::string_view name) {
    return !head_.empty() && name.starts_with(head_);
  };
  const ImageModel::PositionTable positions = model.position_table();
  std::vector<HfTensor> tensors;
  std::vector<std::string> ignored;  // names of tensors in the file that are ignored
  bool other_head = false;
  for (HfTensor& tensor : tensors_of(model, names)) {
    if (of_head(tensor.name)) {
      ignored.push_back(tensor.parts.front());
      continue;
    }
    const auto* const found = file.find(tensor.parts.front());
    if (positions.table != nullptr && tensor.name == positions.table->full_name() &&
        found != nullptr && found->shape != tensor.shape && can_resize(found->shape, positions)) {
      positions_ = found->shape[1];
      tensor.shape[1] = positions_;
    }
    other_head |= found != nullptr && found->shape != tensor.shape &&
                  tensor.name.starts_with(cat(model.head(), "."));
    tensors.push_back(std::move(tensor));
  }
  HfLayout layout{.is_buffer =
                      [ignored](std::string_view name) {
                        return name.ends_with(kBatchCount) ||
                               std::find(ignored.begin(), ignored.end(), name) != ignored.end();
                      },
                  .asked_by = "--model"};
  if (other_head)
    layout.asked_by += " and the classes of the data (use --new-head for a new classifier)";
  weights_.emplace(path, std::move(file), tensors, std::move(layout));
}

void ImageWeights::read_positions(const ImageModel& model, const View& to) const {
  const ImageModel::PositionTable place = model.position_table();
  const int64_t width = place.table->whole[2];
  std::vector<float> stored(static_cast<size_t>(positions_ * width));
  weights_->read(place.table->full_name(), make_view(stored.data(), {1, positions_, width}));
  const int64_t leading = place.leading * width;
  std::copy_n(stored.data(), leading, to.as<float>());
  resample_square(stored.data() + leading, edge_of(positions_ - place.leading),
                  to.as<float>() + leading, edge_of(place.table->whole[1] - place.leading), width,
                  ResampleFilter::kCubic);
}

void ImageWeights::load(ImageModel& model, comm::DataParallel& parallel, uint64_t seed) const {
  const Parameter* const positions = model.position_table().table;
  parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
    const std::string name = parameter.full_name();
    if (!head_.empty() && name.starts_with(head_)) {
      const int64_t row = parameter.whole.numel() / parameter.whole[0];
      parameter.write_initial(Exec{}, seed, first_row * row, rows);
    } else if (&parameter == positions && positions_ > 0) {
      read_positions(model, rows);
    } else {
      weights_->read(name, rows, first_row);
    }
  });
  Context& context = parallel.shared().context();
  for (const Buffer* buffer : model.buffers()) {
    std::vector<float> values(static_cast<size_t>(buffer->shape.numel()));
    weights_->read(buffer->full_name(), make_view(values.data(), buffer->shape));
    context.copy(buffer->value.data(), values.data(), buffer->value.bytes());
    context.synchronize();  // `values` must live until the device has copied it
  }
}

void check_normalisation(const std::string& path, const Augmentation& augmentation) {
  const fs::path file = fs::path(path) / kHfConfigFile;
  std::error_code error;
  if (!fs::exists(file, error)) return;
  const JsonObject json = JsonObject::load(file.string());
  // Older files have the keys of pretrained_cfg at the top level.
  const JsonObject stored = json.object("pretrained_cfg").value_or(json);
  const auto differ = [](const std::vector<double>& is, const std::array<float, 3>& want) {
    if (is.empty()) return false;
    return !std::equal(is.begin(), is.end(), want.begin(), want.end(),
                       [](double a, float b) { return std::abs(a - double{b}) < 1e-3; });
  };
  const std::vector<double> mean = stored.reals("mean"), deviation = stored.reals("std");
  if (!differ(mean, augmentation.mean) && !differ(deviation, augmentation.deviation)) return;
  throw ConfigError(cat(file.string(), ": the weights expect pixels with mean ", list_text(mean),
                        " and std ", list_text(deviation), ", found mean ",
                        list_text(augmentation.mean), " and std ",
                        list_text(augmentation.deviation), "; use --mean ", list_text(mean),
                        " --std ", list_text(deviation)));
}

void export_image_model(const ImageExport& what, const ImageModel& model,
                        comm::DataParallel& parallel, bool is_main) {
  const std::vector<HfTensor> tensors = tensors_of(model, what.names);
  std::optional<HfExport> out;
  if (is_main) {
    const bool is_timm = what.names == WeightNames::kTimm;
    out.emplace(what.folder, tensors, HfLayout{},
                is_timm ? timm_config(what, model) : std::string(), ExportOptions{});
  }
  comm::FullState state(parallel, /*root=*/0);
  for (const Parameter* parameter : whole_parameters(model)) {
    const View values = state.read(*parameter);
    if (out) out->write(parameter->full_name(), values);
  }
  for (const Buffer* buffer : model.buffers()) {
    if (!out) break;
    std::vector<float> values = to_host<float>(buffer->value);
    out->write(buffer->full_name(), make_view(values.data(), buffer->shape));
  }
  if (out) out->commit();
}

}  // namespace shale::models
