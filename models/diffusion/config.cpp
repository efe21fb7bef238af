#include "shale/models/diffusion/config.h"

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/training/sample_axes.h"

namespace shale::models {
namespace {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const DitPreset& preset : dit_presets()) names.push_back(preset.name);
  return names;
}

void describe_model(ConfigSpec& spec, DiffusionConfig& c) {
  spec.section("Model");
  spec.add_choice("model", c.model, preset_names(), "model preset")
      .basic("model preset, such as dit-nano or dit-b2");
  spec.add("patch", c.patch, "patch size: width and height of a token, in pixels",
           {.min = 1, .max = 64, .help = {.default_text = "4 for dit-nano, else 2"}});
  spec.add_choice(
      "variant", c.variant, {{"paper", DitVariant::kPaper}, {"diffusers", DitVariant::kDiffusers}},
      "model constants; paper: as in the DiT paper; diffusers: as in the library diffusers");
  spec.add("init", c.init,
           "start from local weights: a diffusers folder (config.json, "
           "diffusion_pytorch_model.safetensors) or a safetensors or .pt file with the names of "
           "the DiT paper",
           {.is_path = true, .help = {.metavar = "PATH"}})
      .may_change()
      .basic("start from diffusers weights");
  spec.section("Diffusion");
  spec.add_choice("process", c.process,
                  {{"flow", DiffusionKind::kFlow}, {"ddpm", DiffusionKind::kDdpm}},
                  "diffusion process; flow: rectified flow, predicts the velocity; ddpm: 1000 "
                  "steps, predicts the noise");
  spec.add("learned-variance", c.learned_variance,
           "also predict the variance of each denoising step, for --process ddpm");
  spec.add_choice("times", c.times,
                  {{"uniform", TimeDraws::kUniform}, {"logit-normal", TimeDraws::kLogitNormal}},
                  "distribution of noise levels in training; logit-normal: more medium noise, for "
                  "--process flow");
  spec.add("time-shift", c.time_shift,
           "shift of the noise levels towards more noise, for --process flow; 3 is usual for large "
           "images, 1: none",
           {.min = 0.01, .max = 100});
  spec.add("label-dropout", c.label_dropout,
           "probability of dropping the class of a training image, for guidance",
           {.min = 0, .max = 1});
  spec.section("Samples");
  spec.add("samples", c.samples,
           "number of images to generate into OUT/samples at each validation, with the --ema "
           "weights if there are any; 0: none",
           {.min = 0, .max = 4096})
      .may_change()
      .basic("images to generate at each validation; 0: none");
  spec.add("sample-steps", c.sample_steps, "denoising steps per generated image",
           {.min = 1, .max = NoiseSchedule::kSteps})
      .may_change();
  spec.add("guidance", c.guidance,
           "classifier-free guidance scale of generated images; 1: no guidance",
           {.min = 0, .max = 100})
      .may_change();
}

}  // namespace

void describe(ConfigSpec& spec, DiffusionTrainConfig& config) {
  describe(
      spec, config.diffusion.data,
      {.path = "as for train_image, or a folder of safetensors files with latents [N, C, H, "
               "W] and labels [N], or the word shapes for synthetic images",
       .pixels =
           "32 for shapes, CIFAR and IDX, 256 for other images, and the stored size for latents"});
  describe_model(spec, config.diffusion);
  describe(spec, config.run, {.sample = "image", .default_lr = "by preset"});
  spec.section("Evaluation");
  spec.add("eval-samples", config.diffusion.eval_samples, "images per validation; 0: all",
           {.min = 0})
      .may_change();
  spec.add("export", config.diffusion.export_dir,
           "write the weights at the end (those of --ema if it is on): diffusers files with "
           "--variant diffusers, else with the names of the DiT paper",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change()
      .basic("write the weights at the end");
  spec.needs("eval-samples", "--eval-every");

  spec.example("train_diffusion --data shapes --ema 0.999 --eval-every 500");
  spec.example("mpirun -np 8 --bind-to none train_diffusion --data latents/ --model dit-b2");
}

void resolve(DiffusionTrainConfig& config, int ranks) {
  const DiffusionConfig& diffusion = config.diffusion;
  config.run.usual_lr = find_dit_preset(diffusion.model).lr;
  if (config.run.lr < 0) config.run.lr = config.run.usual_lr;
  resolve(config.run, ranks);
  check_whole_samples(config.run, "diffusion transformers");
  const bool samples = diffusion.samples > 0 && config.run.eval_every > 0;
  if (samples && config.run.pipeline > 1) {
    throw ConfigError(
        cat("--samples is ", diffusion.samples,
            ": images cannot be generated with --pipeline; use --samples 0 or --pipeline 1"));
  }
  if (samples && diffusion.guidance != 1 && diffusion.label_dropout == 0) {
    throw ConfigError(cat("--guidance ", format_real(diffusion.guidance),
                          " needs a model that is trained without classes too; use --label-dropout "
                          "above 0, or --guidance 1"));
  }
  if (diffusion.process == DiffusionKind::kDdpm) {
    if (diffusion.time_shift != 1) {
      throw ConfigError(
          cat("--time-shift ", format_real(diffusion.time_shift),
              " is incompatible with --process ddpm; use --time-shift 1 or --process flow"));
    }
    if (diffusion.times == TimeDraws::kUniform) return;
    throw ConfigError(
        "--times logit-normal is incompatible with --process ddpm; use --times uniform or "
        "--process flow");
  }
  if (diffusion.learned_variance) {
    throw ConfigError("--learned-variance needs --process ddpm (found --process flow)");
  }
}

DitConfig model_config(const DiffusionConfig& config, int64_t pixels, int64_t channels,
                       int64_t classes) {
  DitConfig model = find_dit_preset(config.model).model;
  model.pixels = pixels;
  model.channels = channels;
  model.classes = classes;
  if (config.patch > 0) model.patch = config.patch;
  model.variant = config.variant;
  model.learned_variance = config.learned_variance;
  return model;
}

}  // namespace shale::models
