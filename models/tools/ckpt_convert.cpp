// shale ckpt reshard and export: checkpoints as something else.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/reshard.h"
#include "shale/models/language/family.h"
#include "shale/models/tools/ckpt.h"

namespace shale::models::ckpt {
namespace {

// What the run says of its model.
LanguageModelConfig model_of(const CheckpointReader& reader) {
  const auto config = nlohmann::json::parse(reader.manifest().config);
  const auto shape = config.find("model shape");
  if (shape == config.end()) {
    throw DataError(cat(reader.path(), ": does not say what model it is of, want 'model shape'"));
  }
  return parse_model_shape(shape->dump(), cat(reader.path(), ": model shape"));
}

// One parameter after another, as f32.
void export_model(CheckpointReader& reader, const std::string& folder,
                  const ExportOptions& options) {
  const LanguageModelConfig config = model_of(reader);
  const ModelFamily& family = model_family(config.family);
  const auto model = make_language_model(config);  // for names and shapes: it has no memory
  const auto out = family.create(folder, config, {}, options);
  std::vector<float> values;
  for (const std::string& name : family.stored_parameters(config)) {
    const Shape& shape = model->find_parameter(name)->shape;
    const CheckpointTensor* stored = reader.find(name);
    if (stored == nullptr || stored->dtype != DType::kF32 || !(Shape(stored->shape) == shape)) {
      throw DataError(cat(reader.path(), ": ", stored == nullptr ? "no" : "another form of",
                          " tensor '", name, "', want fp32", to_string(shape)));
    }
    values.resize(static_cast<size_t>(stored->numel()));
    reader.read(name, 0, std::as_writable_bytes(std::span(values)));
    out->write(name, make_view(values.data(), shape));
  }
  out->commit();
}

}  // namespace

int run_reshard(int argc, const char* const* argv) {
  std::string path, out;
  int ranks = 1;
  ConfigSpec spec("shale ckpt reshard",
                  "writes the same checkpoint as so many files of about the same size; training "
                  "resumes from any number of files, so this is for moving and storing them");
  spec.add_positional("checkpoint", path, "a checkpoint or a run", {.required = true});
  spec.add("ranks", ranks, "files to write", {.min = 1, .max = 99'999});
  spec.add("out", out, "folder of a run: writes DIR/checkpoints/step_...",
           {.required = true, .help = {.metavar = "DIR"}});
  spec.example("shale ckpt reshard out --ranks 8 --out out8");
  if (parse_or_print(spec, argc, argv)) return 0;

  CheckpointReader reader(find_checkpoint(path));
  const CheckpointFolder to(out + "/checkpoints");
  reshard_checkpoint(reader, to, ranks);
  std::printf("wrote %s\n", to.path_of(reader.manifest().step).c_str());
  return 0;
}

int run_export(int argc, const char* const* argv) {
  std::string path, out;
  ExportOptions options;
  ConfigSpec spec("shale ckpt export",
                  "writes the model of a checkpoint as a Hugging Face folder (config.json, "
                  "safetensors)");
  spec.add_positional("checkpoint", path, "a checkpoint or a run", {.required = true});
  spec.add("out", out, "the folder", {.required = true, .help = {.metavar = "DIR"}});
  spec.add_choice("dtype", options.dtype,
                  {{"fp32", DType::kF32}, {"bf16", DType::kBF16}, {"fp16", DType::kF16}},
                  "of the weights in the folder");
  spec.add_size("shard-size", options.max_shard_bytes,
                "largest file: a larger model is written as several and an index", {.min = 1});
  spec.example("shale ckpt export out --out my_model --dtype bf16");
  if (parse_or_print(spec, argc, argv)) return 0;

  CheckpointReader reader(find_checkpoint(path));
  export_model(reader, out, options);
  std::printf("wrote %s\n", out.c_str());
  return 0;
}

}  // namespace shale::models::ckpt
