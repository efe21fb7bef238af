// shale ckpt reshard and export: conversion of checkpoints.
#include <cstdio>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/reshard.h"
#include "shale/models/language/checkpoint_model.h"
#include "shale/models/language/family.h"
#include "shale/models/language/find_tokenizer.h"
#include "shale/models/language/gguf.h"
#include "shale/models/tools/ckpt.h"
#include "shale/models/tools/tool_table.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models::ckpt {
namespace {

enum class ExportFormat { kHf, kDcp, kGguf, kOnnx };

struct ExportRequest {
  std::string out;
  ExportFormat format = ExportFormat::kHf;
  GgufType type = GgufType::kF32;
  // Null: tokens are bytes, or there is no tokenizer.
  std::shared_ptr<const StoredTokenizer> tokenizer;
  HfExtras extras = {};
  bool ema = false;  // export the averaged weights
  int64_t max_shard_bytes = ExportOptions{}.max_shard_bytes;
};

std::unique_ptr<StoredModelWriter> hf_writer(const LanguageModelConfig& config,
                                             const ExportRequest& request) {
  const std::optional<DType> dtype = gguf_dtype(request.type);
  if (!dtype) throw ConfigError("--dtype q8_0 needs --to gguf");
  return model_family(config.family)
      .create(request.out, config, {},
              {.files = request.format == ExportFormat::kDcp ? WeightFiles::kDcp
                                                             : WeightFiles::kSafetensors,
               .dtype = *dtype,
               .max_shard_bytes = request.max_shard_bytes,
               .tokenizer = request.tokenizer,
               .extras = request.extras});
}

std::unique_ptr<StoredModelWriter> gguf_writer(const LanguageModelConfig& config,
                                               const ExportRequest& request) {
  const GgufModel model = model_family(config.family).gguf(config);
  const bool of_bytes = request.tokenizer == nullptr;
  if (of_bytes && config.vocab != 256) {
    throw ConfigError(cat("a GGUF file needs the text of the ", config.vocab,
                          " tokens of the model; use --tokenizer FILE, a tokenizer.json"));
  }
  const GgufValues tokenizer =
      of_bytes ? gguf_byte_tokenizer()
               : gguf_tokenizer(*request.tokenizer, config.vocab, request.extras);
  return make_gguf_writer(request.out, model, tokenizer, request.type);
}

// Exports the parameters of a checkpoint one at a time, converted to f32.
void export_model(const CheckpointModel& stored, const ExportRequest& request) {
  const LanguageModelConfig& config = stored.config();
  const auto model = make_language_model(config);  // only for names and shapes
  const auto out = request.format == ExportFormat::kGguf ? gguf_writer(config, request)
                                                         : hf_writer(config, request);
  std::vector<float> values;
  for (const std::string& name : model_family(config.family).stored_parameters(config)) {
    const Shape& shape = model->find_parameter(name)->shape;
    values.resize(static_cast<size_t>(shape.numel()));
    const View whole = make_view(values.data(), shape);
    stored.read(name, whole);
    out->write(name, whole);
  }
  out->commit();
}

}  // namespace

int run_reshard(int argc, const char* const* argv) {
  std::string path, out;
  int ranks = 1;
  ConfigSpec spec("shale ckpt reshard",
                  "rewrites a checkpoint with another number of files, of about equal size; for "
                  "moving and storing it, because training resumes from any number of files");
  spec.add_positional("checkpoint", path, "a checkpoint or a run",
                      {.required = true, .is_path = true});
  spec.add("ranks", ranks, "number of files to write", {.min = 1, .max = 99'999});
  spec.add("out", out, "run folder to write the checkpoint to, as DIR/checkpoints/step_...",
           {.required = true, .is_path = true, .help = {.metavar = "DIR"}});
  spec.example("shale ckpt reshard out --ranks 8 --out out8");
  if (parse_or_print(spec, argc, argv)) return 0;

  CheckpointReader reader(find_checkpoint(path));
  const CheckpointFolder to(out + "/checkpoints");
  reshard_checkpoint(reader, to, ranks);
  std::printf("wrote %s\n", to.path_of(reader.manifest().step).c_str());
  return 0;
}

int run_export(int argc, const char* const* argv) {
  std::string path, tokenizer;
  ExportRequest request;
  ConfigSpec spec("shale ckpt export",
                  "writes the model of a checkpoint as a Hugging Face folder (config.json, "
                  "safetensors), as a folder for torch.distributed.checkpoint, as a GGUF file "
                  "for llama.cpp, or as an ONNX file");
  spec.add_positional("checkpoint", path, "a checkpoint or a run",
                      {.required = true, .is_path = true});
  spec.add("out", request.out, "folder, or GGUF or ONNX file, to write",
           {.required = true, .is_path = true, .help = {.metavar = "PATH"}});
  spec.add_choice(
      "to", request.format,
      {{"hf", ExportFormat::kHf},
       {"dcp", ExportFormat::kDcp},
       {"gguf", ExportFormat::kGguf},
       {"onnx", ExportFormat::kOnnx}},
      "format to write; dcp: for torch.distributed.checkpoint.load(); onnx: for onnxruntime, only "
      "from runs of train_image and train_diffusion");
  spec.add_choice("dtype", request.type,
                  {{"fp32", GgufType::kF32},
                   {"bf16", GgufType::kBF16},
                   {"fp16", GgufType::kF16},
                   {"q8_0", GgufType::kQ8_0}},
                  "dtype of the weights; q8_0 (GGUF only): 8 bits with a scale per 32 values");
  spec.add("tokenizer", tokenizer,
           "tokenizer.json, tiktoken file or SentencePiece model to include; byte models need none",
           {.is_path = true, .help = {.metavar = "FILE", .default_text = "the checkpoint's"}});
  spec.add("ema", request.ema, "export the moving average of the weights, of a run with --ema");
  spec.add_size(
      "shard-size", request.max_shard_bytes,
      "maximum size of a safetensors file; larger models become several files with an index",
      {.min = 1});
  spec.example("shale ckpt export out --out my_model --dtype bf16");
  spec.example("shale ckpt export out --to gguf --out my_model-Q8_0.gguf --dtype q8_0");
  spec.example("shale ckpt export images --to onnx --out classifier.onnx");
  if (parse_or_print(spec, argc, argv)) return 0;

  if (request.format == ExportFormat::kOnnx) {
    if (request.type != GgufType::kF32) throw ConfigError("--to onnx needs --dtype fp32");
    export_to_onnx(path, request.ema, request.out);
    return 0;
  }
  const CheckpointModel stored(find_checkpoint(path), request.ema);
  request.extras = read_extras(stored.path());
  if (tokenizer.empty()) {
    request.tokenizer = stored.tokenizer();
  } else {
    request.tokenizer = read_tokenizer(tokenizer);
    request.extras = extras_of_tokenizer(std::move(request.extras), stored.path(), tokenizer,
                                         *request.tokenizer);
  }
  export_model(stored, request);
  std::printf("wrote %s\n", request.out.c_str());
  return 0;
}

}  // namespace shale::models::ckpt
