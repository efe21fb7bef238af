// Judges what a run of train_diffusion on shapes makes, by a classifier that train_image has
// trained on other shapes: how often it names the class that was asked for, and how far its scores
// of samples are from those of shapes. test/long/diffusion_samples.sh trains both.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/bench/support/frechet.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/table.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/models/diffusion/description.h"
#include "shale/models/diffusion/sample_files.h"
#include "shale/models/diffusion/sampler.h"
#include "shale/models/image/model.h"
#include "shale/models/training/stored_weights.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/data/images/augment.h"
#include "shale/runtime/data/images/shapes.h"
#include "shale/runtime/ops/elementwise.h"

namespace shale::bench {
namespace {

constexpr int64_t kBatch = 64;

struct SamplesConfig {
  std::string diffusion, classifier, grid;
  int64_t samples = 256, steps = 50, seed = 7;
  double guidance = 2, min_named = 0, max_distance = 0;
  int threads = 0;  // 0: all cores
};

void describe(ConfigSpec& spec, SamplesConfig& c) {
  spec.add("diffusion", c.diffusion, "run or checkpoint of train_diffusion --data shapes",
           {.required = true, .is_path = true, .help = {.metavar = "RUN"}});
  spec.add("classifier", c.classifier, "run or checkpoint of train_image --data shapes",
           {.required = true, .is_path = true, .help = {.metavar = "RUN"}});
  spec.add("samples", c.samples, "samples, of one class after another", {.min = 2, .max = 1 << 20});
  spec.add("sample-steps", c.steps, "steps from noise to an image", {.min = 1, .max = 1000});
  spec.add("guidance", c.guidance, "of samples; 1: none", {.min = 0, .max = 100});
  spec.add("seed", c.seed, "of samples, and of the shapes beside them", {.min = 0});
  spec.add("min-named", c.min_named, "share of samples that must be named as asked",
           {.min = 0, .max = 1});
  spec.add("max-distance", c.max_distance,
           "largest distance that may be, beside the variance of scores; 0: any", {.min = 0});
  spec.add("threads", c.threads, "CPU threads",
           {.min = 1, .max = 4096, .help = {.default_text = "all cores"}});
  spec.add("grid", c.grid, "writes the samples to FILE.png", {.help = {.metavar = "FILE"}});
}

CheckpointReader open(const std::string& path) {
  const auto checkpoint = newest_checkpoint(path);
  if (!checkpoint) throw MissingInputError(cat(path, ": no checkpoint, want one, or a run"));
  return CheckpointReader(*checkpoint);
}

// What the run of a checkpoint said under a name, as JSON.
nlohmann::json said(const CheckpointReader& reader, const char* name) {
  const auto config = nlohmann::json::parse(reader.manifest().config);
  if (config.contains(name)) return config[name];
  throw DataError(cat(reader.path(), ": does not say its '", name, "'"));
}

struct Pictures {
  std::vector<Image> images;
  std::vector<int32_t> labels;
};

Pictures sample(const SamplesConfig& config, Context& context) {
  CheckpointReader reader = open(config.diffusion);
  const models::DiffusionDescription description =
      models::parse_description(said(reader, models::kDiffusionFact).dump(),
                                cat(reader.path(), ": ", models::kDiffusionFact));
  if (description.classes != shape_classes()) {
    throw ConfigError(cat(reader.path(), ": is no model of --data shapes"));
  }
  models::Dit model(description.model);
  materialize(model, context, DType::kF32, /*seed=*/0);
  load_weights(reader, model, context, models::has_average(reader, model));
  Pictures made;
  std::vector<float> values;
  for (int64_t first = 0; first < config.samples; first += kBatch) {
    std::vector<int32_t> labels(static_cast<size_t>(std::min(kBatch, config.samples - first)));
    std::iota(labels.begin(), labels.end(), static_cast<int32_t>(first));
    for (int32_t& label : labels) label %= static_cast<int32_t>(description.model.classes);
    const auto part =
        to_host<float>(models::sample_images(model, context, labels, first,
                                             {.kind = description.process,
                                              .steps = config.steps,
                                              .shift = description.time_shift,
                                              .guidance = config.guidance,
                                              .seed = static_cast<uint64_t>(config.seed)}));
    values.insert(values.end(), part.begin(), part.end());
    made.labels.insert(made.labels.end(), labels.begin(), labels.end());
  }
  const models::Samples all{
      .pixels = description.model.pixels, .channels = description.model.channels, .values = values};
  for (int64_t i = 0; i < config.samples; ++i) made.images.push_back(picture_of(all, i));
  if (!config.grid.empty()) write_samples(config.grid, all);
  return made;
}

// Shapes that neither model has seen.
Pictures shapes(int64_t count, int64_t pixels, uint64_t seed) {
  const auto data = make_shapes({.images = count, .pixels = pixels, .seed = seed});
  Pictures real;
  for (int64_t i = 0; i < count; ++i) {
    data->read(i, real.images.emplace_back());
    real.labels.push_back(data->label(i));
  }
  return real;
}

class Classifier {
 public:
  Classifier(const std::string& path, int64_t pixels, Context& context) : context_(context) {
    CheckpointReader reader = open(path);
    models::ImageModelConfig config =
        models::find_image_preset(said(reader, "model").get<std::string>()).model;
    config.pixels = pixels;
    config.classes = said(reader, "number of classes").get<int64_t>();
    augmentation_ = {.pixels = pixels, .center_share = 1};
    model_ = make_image_model(config);
    materialize(*model_, context, DType::kF32, /*seed=*/0);
    models::load_weights(reader, *model_, context);
  }

  int64_t classes() const { return model_->config().classes; }

  // [images.size(), classes()].
  std::vector<float> scores(const std::vector<Image>& images) {
    const Inference inference(context_);
    const int64_t pixels = augmentation_.pixels, size = pixels * pixels * 3;
    std::vector<float> all;
    for (int64_t first = 0; first < std::ssize(images); first += kBatch) {
      const int64_t count = std::min(kBatch, std::ssize(images) - first);
      std::vector<float> values(static_cast<size_t>(count * size));
      for (int64_t i = 0; i < count; ++i) {
        const Image& image = images[static_cast<size_t>(first + i)];
        write_pixels(
            image, evaluation_crop(augmentation_, image.rows, image.cols), augmentation_,
            std::span(values).subspan(static_cast<size_t>(i * size), static_cast<size_t>(size)));
      }
      const Tensor x = from_host<float>(context_, values, {count, pixels, pixels, 3});
      const auto part = to_host<float>(cast(model_->logits(x), DType::kF32));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  Context& context_;
  Augmentation augmentation_;
  std::unique_ptr<models::ImageModel> model_;
};

// Share of rows whose largest score is that of their label.
double named(const std::vector<float>& scores, const std::vector<int32_t>& labels,
             int64_t classes) {
  int64_t right = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    const auto begin = scores.begin() + static_cast<int64_t>(row) * classes;
    right += std::max_element(begin, begin + classes) - begin == labels[row] ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

int judge(const SamplesConfig& config) {
  Context context({.threads = resolve_threads(config.threads, /*local_ranks=*/1)});
  const Pictures made = sample(config, context);
  const int64_t pixels = made.images.front().rows;
  // As many shapes as samples, twice: what the distance is between sets that have only chance
  // between them.
  const auto seed = static_cast<uint64_t>(config.seed);
  const Pictures real = shapes(config.samples, pixels, seed);
  const Pictures other = shapes(config.samples, pixels, seed + 1);
  Classifier classifier(config.classifier, pixels, context);
  const int64_t classes = classifier.classes();
  const auto of_made = classifier.scores(made.images), of_real = classifier.scores(real.images);
  const double share = named(of_made, made.labels, classes);
  // In units of the scores' own variance, as a classifier that is surer has larger scores.
  const Moments reference = moments_of(of_real, classes);
  const auto far = [&](const std::vector<float>& scores) {
    return frechet_distance(reference, moments_of(scores, classes)) / reference.variance();
  };
  const double distance = far(of_made), least = far(classifier.scores(other.images));
  Table table({"pictures", "named as they should be", "distance from shapes"});
  table.add({cat(config.samples, " samples"), percent(share), short_number(distance)});
  table.add({cat(config.samples, " shapes"), percent(named(of_real, real.labels, classes)),
             short_number(least)});
  std::printf("%s", table.text().c_str());
  const bool is_far = config.max_distance > 0 && !(distance <= config.max_distance);
  if (share < config.min_named) {
    std::printf("FAILED: %s are named, want %s\n", percent(share).c_str(),
                percent(config.min_named).c_str());
  }
  if (is_far) {
    std::printf("FAILED: the distance is %s, want at most %s\n", short_number(distance).c_str(),
                short_number(config.max_distance).c_str());
  }
  return share < config.min_named || is_far ? 1 : 0;
}

int run(int argc, char** argv) {
  SamplesConfig config;
  ConfigSpec spec("bench_samples", "judges samples of a diffusion model by a classifier");
  describe(spec, config);
  const ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit) {
    std::fputs(parsed.output.c_str(), stdout);
    return 0;
  }
  return judge(config);
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::bench::run_program([&] { return shale::bench::run(argc, argv); });
}
