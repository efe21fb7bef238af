#include "shale/models/tools/model_options.h"

#include "shale/base/cpu_affinity.h"
#include "shale/base/gpu_model.h"
#include "shale/models/training/checks/kernel_choice.h"

namespace shale::models {

void describe(ConfigSpec& spec, DeviceOptions& o) {
  spec.add_choice("device", o.device, device_choices(),
                  "cpu, cuda, or emu: a GPU emulated on the CPU; auto: a GPU if there is one");
  spec.add_choice(
      "dtype", o.dtype,
      precision_choices({Precision::kAuto, Precision::kF32, Precision::kBF16, Precision::kF16}),
      "dtype of weights and activations; auto: bf16 on GPUs, fp32 on the CPU");
  spec.add("threads", o.threads, "CPU threads",
           {.min = 1, .max = 4096, .help = {.default_text = "all cores"}});
}

std::shared_ptr<Context> make_context(const DeviceOptions& options, comm::World& world) {
  RunConfig run;
  run.device = options.device;
  const Device device = device_of(run, world);
  auto context = std::make_shared<Context>(ContextOptions{
      .device = device, .threads = resolve_threads(options.threads, world.local_size())});
  use_stored_check(context->device());
  return context;
}

void describe(ConfigSpec& spec, ModelOptions& o) {
  spec.add_positional("model", o.path, "a Hugging Face folder, a checkpoint or a run",
                      {.required = true, .is_path = true});
  spec.add("tokenizer", o.tokenizer, "tokenizer.json, tiktoken file or SentencePiece model",
           {.is_path = true, .help = {.metavar = "FILE", .default_text = "the model's, or bytes"}});
  describe(spec, static_cast<DeviceOptions&>(o));
}

TextModel load(const ModelOptions& options, comm::World& world) {
  return load_text_model(options.path, options.tokenizer, make_context(options, world),
                         options.dtype);
}

}  // namespace shale::models
