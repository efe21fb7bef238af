#include "shale/models/tools/planned_task.h"

#include "shale/models/diffusion/task.h"
#include "shale/models/image/task.h"
#include "shale/models/language/preference_task.h"

namespace shale::models {
namespace {

template <typename Config, typename OneTask>
PlannedProgram with_own_options() {
  const auto config = std::make_shared<Config>();
  return {.run = config->run,
          .describe = [config](ConfigSpec& spec) { models::describe(spec, *config); },
          .resolve = [config](int ranks) { models::resolve(*config, ranks); },
          .make_task = [config] { return std::make_unique<OneTask>(*config); }};
}

}  // namespace

PlannedProgram planned_program(std::string_view name, TrainConfig& language) {
  if (name == "train_image") return with_own_options<ImageTrainConfig, ImageTask>();
  if (name == "train_diffusion") return with_own_options<DiffusionTrainConfig, DiffusionTask>();
  return {
      .run = language.run,
      .describe = [&](ConfigSpec& spec) { models::describe(spec, language, /*needs_data=*/false); },
      .resolve = [&](int ranks) { models::resolve(language, ranks); },
      .make_task = [&] { return make_language_task(language); }};
}

}  // namespace shale::models
