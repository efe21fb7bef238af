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
  spec.add_choice("model", c.model, preset_names(), "preset")
      .basic("preset, such as dit-nano or dit-b2");
  spec.add("patch", c.patch, "edge of what becomes a token, in pixels",
           {.min = 1, .max = 64, .help = {.default_text = "4 for dit-nano, else 2"}});
  spec.add_choice("variant", c.variant,
                  {{"paper", DitVariant::kPaper}, {"diffusers", DitVariant::kDiffusers}},
                  "whose numbers: other programs have other frequencies of times");
  spec.add(
          "init", c.init,
          "start from a folder of diffusers (config.json, diffusion_pytorch_model.safetensors), or "
          "from a safetensors file of the paper's names",
          {.is_path = true, .help = {.metavar = "PATH"}})
      .may_change()
      .basic("start from weights of diffusers");
  spec.section("Diffusion");
  spec.add_choice("process", c.process,
                  {{"flow", DiffusionKind::kFlow}, {"ddpm", DiffusionKind::kDdpm}},
                  "rectified flow, whose model says the velocity, or DDPM of 1000 steps, whose "
                  "model says the noise");
  spec.add("learned-variance", c.learned_variance,
           "of --process ddpm: the model says how much noise a step back has");
  spec.add_choice("times", c.times,
                  {{"uniform", TimeDraws::kUniform}, {"logit-normal", TimeDraws::kLogitNormal}},
                  "how times of training are drawn; logit-normal: of --process flow, more of the "
                  "middle");
  spec.add("time-shift", c.time_shift,
           "of --process flow: above 1 training and samples have more of the times near noise, "
           "where it is decided what a picture shows; 3 is usual for larger pictures",
           {.min = 0.01, .max = 100});
  spec.add("label-dropout", c.label_dropout,
           "probability that the class of a training image is left out, for guidance",
           {.min = 0, .max = 1});
  spec.section("Samples");
  spec.add(
          "samples", c.samples,
          "images that are made with each validation, by the average of --ema if there is one, and "
          "written to OUT/samples; 0: none",
          {.min = 0, .max = 4096})
      .may_change()
      .basic("images made with each validation");
  spec.add("sample-steps", c.sample_steps, "steps from noise to an image",
           {.min = 1, .max = NoiseSchedule::kSteps})
      .may_change();
  spec.add("guidance", c.guidance,
           "how far samples go from what no class would be to what theirs is; 1: no guidance",
           {.min = 0, .max = 100})
      .may_change();
}

}  // namespace

void describe(ConfigSpec& spec, DiffusionTrainConfig& config) {
  describe(spec, config.diffusion.data,
           {.path = "as train_image's, or a folder of safetensors files of latents [N, C, H, W] "
                    "and labels [N]; shapes: made, not read",
            .pixels = "32 for shapes, CIFAR and IDX, else 256; of latents their own"});
  describe_model(spec, config.diffusion);
  describe(spec, config.run, {.sample = "image", .default_lr = "by preset"});
  spec.section("Evaluation");
  spec.add("eval-samples", config.diffusion.eval_samples, "images of a validation; 0: all",
           {.min = 0})
      .may_change();
  spec.add("export", config.diffusion.export_dir,
           "write the weights, or the average of --ema, at the end: by diffusers' names and "
           "numbers with --variant diffusers, else by the paper's",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change()
      .basic("write the weights at the end");
  spec.needs("eval-samples", "--eval-every");

  spec.example("train_diffusion --data shapes --ema 0.999 --eval-every 500");
  spec.example("mpirun -np 8 --bind-to none train_diffusion --data latents/ --model dit-b2");
}

void resolve(DiffusionTrainConfig& config, int ranks) {
  const DiffusionConfig& diffusion = config.diffusion;
  if (config.run.lr < 0) config.run.lr = find_dit_preset(diffusion.model).lr;
  resolve(config.run, ranks);
  check_whole_samples(config.run, "diffusion transformers");
  const bool samples = diffusion.samples > 0 && config.run.eval_every > 0;
  if (samples && config.run.pipeline > 1) {
    throw ConfigError(cat("--samples is ", diffusion.samples, ": a pipeline passes losses on, ",
                          "no pictures; use --samples 0, or --pipeline 1"));
  }
  if (samples && diffusion.guidance != 1 && diffusion.label_dropout == 0) {
    throw ConfigError(cat("--guidance ", format_real(diffusion.guidance),
                          " goes by what the model says of no class, which it never learns; use "
                          "--label-dropout above 0, or --guidance 1"));
  }
  if (diffusion.process == DiffusionKind::kDdpm) {
    if (diffusion.time_shift != 1) {
      throw ConfigError(cat("--time-shift ", format_real(diffusion.time_shift),
                            ": times of --process ddpm are steps of its own; use --time-shift 1, "
                            "or --process flow"));
    }
    if (diffusion.times == TimeDraws::kUniform) return;
    throw ConfigError(
        "--times logit-normal: times of --process ddpm are uniform; use --times "
        "uniform, or --process flow");
  }
  if (diffusion.learned_variance) {
    throw ConfigError("--learned-variance: a flow has no variances; use --process ddpm");
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
