#include "shale/models/tools/model_options.h"

#include <utility>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/models/language/checkpoint_model.h"
#include "shale/models/language/find_tokenizer.h"

namespace shale::models {

void describe(ConfigSpec& spec, ModelOptions& o) {
  spec.add_positional("model", o.path, "a Hugging Face folder, a checkpoint or a run",
                      {.required = true, .is_path = true});
  spec.add("tokenizer", o.tokenizer, "tokenizer.json, tiktoken file or SentencePiece model",
           {.is_path = true, .help = {.metavar = "FILE", .default_text = "the model's, or bytes"}});
  spec.add_choice("device", o.device, device_choices(),
                  "cpu, cuda, or emu: a GPU emulated on the CPU; auto: a GPU if there is one");
  spec.add_choice(
      "dtype", o.dtype,
      precision_choices({Precision::kAuto, Precision::kF32, Precision::kBF16, Precision::kF16}),
      "dtype of weights and activations; auto: bf16 on GPUs, fp32 on the CPU");
  spec.add("threads", o.threads, "CPU threads",
           {.min = 1, .max = 4096, .help = {.default_text = "all cores"}});
}

LoadedModel load(const ModelOptions& options, comm::World& world) {
  const std::unique_ptr<StoredModel> stored = open_model(options.path);
  LoadedModel loaded;
  loaded.tokenizer = options.tokenizer.empty() ? open_model_tokenizer(options.path)
                                               : read_tokenizer(options.tokenizer);
  if (loaded.tokenizer == nullptr && stored->config().vocab == 256) {
    loaded.tokenizer = byte_tokenizer();
  }
  if (loaded.tokenizer == nullptr) {
    throw ConfigError(cat(options.path, ": no tokenizer found for the vocabulary of ",
                          stored->config().vocab, " tokens; use --tokenizer FILE"));
  }
  if (loaded.tokenizer->tokenizer.vocab_size() > stored->config().vocab) {
    throw DataError(cat(loaded.tokenizer->path, ": ", loaded.tokenizer->tokenizer.vocab_size(),
                        " tokens, but the model's vocabulary has ", stored->config().vocab,
                        "; use the tokenizer of the model"));
  }
  const std::string origin = newest_checkpoint(options.path).value_or(options.path);
  HfExtras extras = read_extras(origin);
  if (!options.tokenizer.empty()) {
    extras = extras_of_tokenizer(std::move(extras), origin, options.tokenizer, *loaded.tokenizer);
  }
  loaded.ends = special_tokens(extras, loaded.tokenizer.get()).ends;
  if (const auto end = loaded.tokenizer->end_of_document) loaded.ends.push_back(*end);
  RunConfig run;
  run.device = options.device;
  const Device device = device_of(run, world);
  const DType dtype = dtype_of_flag(options.dtype, device);
  loaded.context = std::make_unique<Context>(ContextOptions{
      .device = device, .threads = resolve_threads(options.threads, world.local_size())});
  loaded.model = load_model(*stored, *loaded.context, dtype);
  int64_t count = 0;
  for (const Parameter* parameter : loaded.model->parameters()) count += parameter->numel();
  loaded.description = cat(stored->config().family, ", ", count, " parameters, on ", device, " in ",
                           dtype_name(dtype));
  return loaded;
}

}  // namespace shale::models
