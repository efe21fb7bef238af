// Optimizers, checkpoints, metrics.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "shale/base/config.h"
#include "shale/base/json.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/problems.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/checkpoint/training_state.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/io/json_object.h"

namespace shale::c {
namespace {

// Returns the optimizer options, checked and completed as training programs do it.
models::RunConfig optimizer_config(const char* kind, const shale_optimizer_options& given) {
  models::RunConfig config;
  ConfigSpec spec("shale", "");
  describe(spec, config, {});
  spec.read_json(Json({{"optimizer", wanted(kind, "kind")}}).dump(), "kind");
  const auto set = [](double& field, double value, const char* what, double below) {
    if (std::isnan(value) || value >= below) {
      throw ConfigError(cat("options->", what, " is ", value, ", expected 0 to below ", below,
                            ", or a negative number for the optimizer's default"));
    }
    if (value >= 0) field = value;
  };
  set(config.beta1, given.beta1, "beta1", 1);
  set(config.beta2, given.beta2, "beta2", 1);
  set(config.eps, given.eps, "eps", 1);
  set(config.weight_decay, given.weight_decay, "weight_decay", 1e6);
  set(config.momentum, given.momentum, "momentum", 1);
  resolve_optimizer(config);
  return config;
}

// Returns on all ranks the path of the checkpoint that rank 0 finds; empty if there is none.
std::string newest(comm::ProcessGroup& group, const std::string& path) {
  std::string found;
  const std::string problem = comm::problem_of_root(group, "checkpoint to load", [&] {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
      throw ConfigError(cat("path is ", path, ", a file, expected a folder"));
    }
    found = newest_checkpoint(path).value_or("");
  });
  comm::throw_problem(problem);
  return group.broadcast_bytes(found, /*root=*/0, "checkpoint to load");
}

void save(const ModuleObject& root, const OptimizerObject& optimizer, const std::string& folder,
          const comm::CheckpointInfo& info, int64_t keep) {
  Session& s = session();
  comm::ProcessGroup& group = s.group->host();
  comm::DataParallel& parallel = comm::data_parallel_of(*root.module);
  if (s.cleaned.insert(folder).second) {
    comm::throw_problem(comm::problem_of_root(group, "folder of checkpoints",
                                              [&] { CheckpointFolder(folder).clean(); }));
  }
  comm::CheckpointSaver saver(group, *s.context, folder, {.keep = keep});
  const auto parts = comm::training_state(parallel, *optimizer.optimizer);
  saver.save(info, comm::share_to_write(parts, parallel.shared().groups));
  saver.finish();
}

void check_same_tree(const ModuleObject& root, const OptimizerObject& optimizer) {
  if (root.tree != optimizer.tree) fail_argument("optimizer belongs to another model than root");
}

std::optional<double> known(double value) {
  return std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
}

}  // namespace
}  // namespace shale::c

using namespace shale::c;

shale_status shale_optimizer_create(shale_module root, const char* kind,
                                    const shale_optimizer_options* options, shale_optimizer* out) {
  return call("shale_optimizer_create", [&] {
    wanted(out, "out");
    const auto model = sharded_root_of(root);
    const shale_optimizer_options defaults = SHALE_OPTIMIZER_OPTIONS_INIT;
    const auto config = optimizer_config(kind, options_of(options, defaults, "options"));
    auto object = std::make_shared<OptimizerObject>();
    object->tree = model->tree;
    object->optimizer =
        make_optimizer(config, model->tree->units, shale::comm::optim_shards(*model->module));
    *out = static_cast<shale_optimizer>(add_handle(Kind::kOptimizer, std::move(object)));
  });
}

shale_status shale_optimizer_destroy(shale_optimizer optimizer) {
  return call("shale_optimizer_destroy", [&] {
    const auto object = optimizer_of(optimizer);
    take_handle(Kind::kOptimizer, optimizer, "optimizer");
    retire(object->tree);
  });
}

shale_status shale_optimizer_prepare(shale_optimizer optimizer, int64_t step, float lr) {
  return call("shale_optimizer_prepare", [&] {
    if (step < 0) fail_argument("step is ", step, ", expected 0 or more");
    checked_number(lr, "lr", -INFINITY);
    const auto object = optimizer_of(optimizer);
    object->optimizer->prepare(*session().context, step, lr);
    object->is_prepared = true;
    session().world->at_step(step);
  });
}

shale_status shale_optimizer_step(shale_optimizer optimizer) {
  return call("shale_optimizer_step", [&] {
    const auto object = optimizer_of(optimizer);
    if (!object->is_prepared) {
      throw CallError(
          SHALE_ERROR_STATE,
          "the step has no number and no learning rate; call shale_optimizer_prepare() first");
    }
    object->optimizer->step();
    object->is_prepared = false;
  });
}

shale_status shale_clip_grad_norm(shale_module root, float max_norm, float* norm) {
  return call("shale_clip_grad_norm", [&] {
    if (!(max_norm >= 0)) fail_argument("max_norm is ", max_norm, ", expected 0 or more");
    shale::comm::clip_grad_norm(*sharded_root_of(root)->module, max_norm);
    if (norm != nullptr) *norm = session().context->read_step().grad_norm;
  });
}

shale_status shale_zero_grad(shale_module root) {
  return call("shale_zero_grad",
              [&] { zero_grad(shale::comm::optim_shards(*sharded_root_of(root)->module)); });
}

shale_status shale_checkpoint_save(shale_module root, shale_optimizer optimizer, const char* folder,
                                   int64_t step, const char* state, int64_t keep) {
  return call("shale_checkpoint_save", [&] {
    const auto model = root_of(root);
    const auto stepped = optimizer_of(optimizer);
    check_same_tree(*model, *stepped);
    if (step < 0) fail_argument("step is ", step, ", expected 0 or more");
    if (keep < 0) fail_argument("keep is ", keep, ", expected 0 or more");
    shale::comm::CheckpointInfo info{.step = step};
    if (state != nullptr) info.state = state;
    const shale::JsonObject checked(info.state, "state");
    save(*model, *stepped, checked_path(folder, "folder"), info, keep);
  });
}

shale_status shale_checkpoint_load(shale_module root, shale_optimizer optimizer, const char* path,
                                   int64_t* step) {
  return call("shale_checkpoint_load", [&] {
    const auto model = root_of(root);
    const auto stepped = optimizer_of(optimizer);
    check_same_tree(*model, *stepped);
    wanted(step, "step");
    shale::comm::ProcessGroup& group = session().group->host();
    const std::string found = newest(group, checked_path(path, "path"));
    *step = -1;
    if (found.empty()) return;
    shale::CheckpointReader reader = shale::comm::open_checkpoint(group, found);
    shale::comm::load_training_state(reader, shale::comm::data_parallel_of(*model->module),
                                     *stepped->optimizer);
    *step = reader.manifest().step;
  });
}

shale_status shale_checkpoint_state(const char* path, char* text, size_t capacity, size_t* length) {
  return call("shale_checkpoint_state", [&] {
    const auto found = shale::newest_checkpoint(checked_path(path, "path"));
    if (!found) throw shale::MissingInputError(shale::cat(path, ": there is no checkpoint"));
    const shale::CheckpointReader reader(*found);
    const std::string& state = reader.manifest().state;
    if (length != nullptr) *length = state.size();
    if (capacity == 0) return;
    const size_t bytes = std::min(state.size(), capacity - 1);
    std::memcpy(wanted(text, "text"), state.data(), bytes);
    text[bytes] = '\0';
  });
}

shale_status shale_metrics_open(shale_runtime runtime, const char* folder, int64_t last_step,
                                shale_metrics* out) {
  return call("shale_metrics_open", [&] {
    check_runtime(runtime);
    wanted(out, "out");
    const std::filesystem::path path = checked_path(folder, "folder");
    auto object = std::make_shared<MetricsObject>();
    if (session().world->rank() == 0) {
      std::error_code error;
      std::filesystem::create_directories(path, error);
      if (last_step >= 0) shale::drop_metrics_after(path / "metrics.jsonl", last_step);
      object->writer = std::make_unique<shale::MetricsWriter>(path / "metrics.jsonl");
    }
    *out = static_cast<shale_metrics>(add_handle(Kind::kMetrics, std::move(object)));
  });
}

shale_status shale_metrics_write(shale_metrics metrics, const shale_step_metrics* row) {
  return call("shale_metrics_write", [&] {
    session();
    const auto object =
        std::static_pointer_cast<MetricsObject>(find_handle(Kind::kMetrics, metrics, "metrics"));
    const shale_step_metrics unknown{sizeof(shale_step_metrics), 0, NAN, -1, -1, -1, -1, -1};
    const auto given = options_of(wanted(row, "row"), unknown, "row");
    if (object->writer == nullptr) return;
    shale::StepMetrics line{.step = given.step, .loss = given.loss};
    line.grad_norm = known(given.grad_norm);
    line.lr = known(given.lr);
    line.items_per_s = known(given.items_per_s);
    line.step_ms = known(given.step_ms);
    if (given.items >= 0) line.items = given.items;
    line.device_peak_bytes = session().context->allocator().stats().peak_reserved;
    object->writer->write(line);
  });
}

shale_status shale_metrics_close(shale_metrics metrics) {
  return call("shale_metrics_close", [&] {
    session();
    take_handle(Kind::kMetrics, metrics, "metrics");
  });
}
