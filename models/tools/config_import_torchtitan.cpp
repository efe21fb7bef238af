// Follows the table in docs/howto/recipes.md; names and defaults are those of torchtitan's
// job configuration of 2025 (torchtitan/config/job_config.py).
#include "shale/models/tools/config_import.h"

#include <cmath>
#include <string>

namespace shale::models {
namespace {

const std::string kParallel = "parallelism.";

// Keys that change results, with the value for which torchtitan behaves like Shale.
struct Harmless {
  const char* name;
  Json value;
  const char* why;
};
const Harmless kHarmless[] = {
    {"model.converters", Json::array(), "use --dtype instead of converters"},
    {"experimental.custom_import", "", "has no counterpart"},
    {"experimental.custom_args_module", "", "has no counterpart"},
    {"debug.moe_force_load_balance", false, "Shale's routers always choose the experts"},
    {"training.debug_moe_force_load_balance", false, "Shale's routers always choose the experts"},
    {"optimizer.early_step_in_backward", false, "Shale clips gradients, which needs all of them"},
    {"fault_tolerance.enable", false, "set --ranks to the number of ranks of all replicas"},
    {"fault_tolerance.semi_sync_method", nullptr, "every step adds the gradients of all ranks"},
    {"checkpoint.initial_load_path", nullptr, "give --init"},
    {"checkpoint.load_step", -1, "use --resume with the checkpoint"},
};

// torchtitan's model names, with the corresponding --model.
struct Flavor {
  const char *name, *flavor, *model;
};
constexpr Flavor kFlavors[] = {{"llama3", "8B", "llama3.1-8b"},
                               {"llama3", "70B", "llama3.1-70b"},
                               {"qwen3", "0.6B", "qwen3-0.6b"},
                               {"qwen3", "1.7B", "qwen3-1.7b"},
                               {"qwen3", "30B-A3B", "qwen3-30b-a3b"}};

void import_model(ConfigImport& in) {
  const std::string name = in.text("model.name").value_or("");
  const std::string flavor = in.text("model.flavor").value_or("");
  for (const Flavor& known : kFlavors) {
    if (name == known.name && flavor == known.flavor) {
      in.set("model", known.model, "model.flavor");
    }
  }
  in.leave_out_rest("model.", "give --model or --init");
}

int64_t degree(ConfigImport& in, const char* axis) {
  return in.integer(kParallel + axis + "_parallel_degree").value_or(1);
}

// Sets the global batch of a run whose steps have one micro-batch per data-parallel rank.
void set_global_batch(ConfigImport& in, int64_t micro) {
  const int64_t of_model =
      degree(in, "tensor") * degree(in, "pipeline") * degree(in, "context");
  if (of_model == 1) return in.set_global_batch(micro, 1, "training.local_batch_size");
  if (in.ranks() == 0) {
    return in.refuse("training.local_batch_size",
                     "--global-batch depends on the number of ranks; give --ranks");
  }
  in.set("global_batch", micro * (in.ranks() / of_model), "training.local_batch_size");
}

void import_training(ConfigImport& in) {
  const int64_t micro = in.integer("training.local_batch_size").value_or(8);
  in.set("micro_batch", micro, "training.local_batch_size");
  const int64_t whole = in.integer("training.global_batch_size").value_or(-1);
  if (whole > 0) in.set("global_batch", whole, "training.global_batch_size");
  if (whole <= 0) set_global_batch(in, micro);
  in.maps("training.seq_len", "seq_len", 2048);
  in.maps("training.steps", "steps", 10000);
  in.maps("training.max_norm", "clip", 1.0);
  for (const char* const key : {"training.seed", "debug.seed"}) in.maps(key, "seed");
  for (const char* const key : {"training.deterministic", "debug.deterministic"}) {
    if (in.flag(key) == true) in.set("deterministic", true, key);
  }
  const std::string compute = in.text("training.mixed_precision_param").value_or("bfloat16");
  if (compute != "bfloat16" && compute != "float32") {
    in.refuse("training.mixed_precision_param", "expected bfloat16 or float32");
  }
  in.set("dtype", compute == "float32" ? "fp32" : "bf16", "training.mixed_precision_param");
  const std::string reduce = in.text("training.mixed_precision_reduce").value_or("float32");
  in.set("grad_dtype", reduce == "bfloat16" ? "bf16" : "fp32", "training.mixed_precision_reduce");
  in.refuse_unless("training.dtype", "float32", "Shale's masters have 32 bits");
  if (in.flag("training.enable_cpu_offload") == true) {
    in.set("offload", "params", "training.enable_cpu_offload");
  }
  in.leave_out({"training.dataset", "training.dataset_path"}, "give --data");
  in.leave_out_rest("training.compile", "it only changes speed");
  in.leave_out_rest("training.gc_", "it only changes speed");
}

void import_optimizer(ConfigImport& in) {
  const std::string name = in.text("optimizer.name").value_or("AdamW");
  if (name != "AdamW") return in.refuse("optimizer.name", "expected AdamW");
  in.set("optimizer", "adamw", "optimizer.name");
  in.maps("optimizer.lr", "lr", 8e-4);
  in.maps("optimizer.beta1", "beta1", 0.9);
  in.maps("optimizer.beta2", "beta2", 0.95);
  in.maps("optimizer.eps", "eps", 1e-8);
  in.maps("optimizer.weight_decay", "weight_decay", 0.1);
  in.leave_out({"optimizer.implementation"}, "it only changes speed");
}

void import_schedule(ConfigImport& in) {
  if (!in.is_set("lr")) return;
  const auto steps = in.option("steps").get<int64_t>();
  const int64_t warmup = in.integer("lr_scheduler.warmup_steps").value_or(200);
  in.set("warmup_steps", warmup, "lr_scheduler.warmup_steps");
  const std::string type = in.text("lr_scheduler.decay_type").value_or("linear");
  const auto ratio = in.number("lr_scheduler.decay_ratio");
  const double least = in.number("lr_scheduler.min_lr_factor").value_or(0);
  in.set("min_lr", least * in.option("lr").get<double>(), "lr_scheduler.min_lr_factor");
  const bool is_stable_first = ratio && *ratio < 1;
  if (type == "cosine" && !is_stable_first) {
    in.set("schedule", "cosine", "lr_scheduler.decay_type");
  } else if (type == "linear" && !is_stable_first) {
    in.set("schedule", "linear", "lr_scheduler.decay_type");
  } else if (type == "linear" || type == "sqrt") {
    in.set("schedule", type == "sqrt" ? "wsd-1-sqrt" : "wsd", "lr_scheduler.decay_type");
    in.set("decay_steps",
           is_stable_first ? static_cast<int64_t>(std::lround(*ratio * static_cast<double>(steps)))
                           : steps - warmup,
           "lr_scheduler.decay_ratio");
  } else {
    in.refuse("lr_scheduler.decay_type",
              "expected linear or cosine, or with a decay_ratio linear or sqrt");
  }
}

void import_pipeline(ConfigImport& in) {
  const std::string key = kParallel + "pipeline_parallel_schedule";
  const std::string theirs = in.text(key).value_or("1F1B");
  const char* const schedule = theirs == "1F1B"              ? "1f1b"
                               : theirs == "Interleaved1F1B" ? "interleaved"
                               : theirs == "GPipe"           ? "gpipe"
                               : theirs == "ZBVZeroBubble"   ? "zbv"
                                                             : nullptr;
  if (schedule == nullptr) {
    return in.refuse(key, "expected 1F1B, Interleaved1F1B, GPipe or ZBVZeroBubble");
  }
  in.set("pipeline_schedule", schedule, key);
  if (theirs == "Interleaved1F1B") in.set("pipeline_chunks", 2, key);
  // torchtitan divides a rank's batch into micro-batches of this size.
  in.maps(kParallel + "pipeline_parallel_microbatch_size", "micro_batch", 1);
}

void import_parallelism(ConfigImport& in) {
  const std::string& part = kParallel;
  const int64_t replicas = in.integer(part + "data_parallel_replicate_degree").value_or(1);
  const int64_t shards = in.integer(part + "data_parallel_shard_degree").value_or(-1);
  const std::string reshard = in.text(part + "fsdp_reshard_after_forward").value_or("default");
  const bool has_stages = degree(in, "pipeline") > 1;  // pipeline stages keep parameters gathered
  in.set("zero", shards == 1 ? 0 : has_stages ? 1 : reshard == "never" ? 2 : 3,
         part + "data_parallel_shard_degree");
  if (replicas > 1 && shards > 1)
    in.set("shard_ranks", shards, part + "data_parallel_shard_degree");
  if (replicas > 1 && shards < 1) {
    if (in.ranks() > 0) {
      const int64_t of_model =
          degree(in, "tensor") * degree(in, "pipeline") * degree(in, "context");
      in.set("shard_ranks", in.ranks() / of_model / replicas,
             part + "data_parallel_replicate_degree");
    } else {
      in.refuse(part + "data_parallel_replicate_degree",
                "--shard-ranks depends on the number of ranks; give --ranks");
    }
  }
  for (const char* const axis : {"tensor", "pipeline", "context", "expert"}) {
    if (degree(in, axis) > 1) in.set(axis, degree(in, axis), part + axis + "_parallel_degree");
  }
  if (degree(in, "context") > 1) {
    const std::string key = part + "context_parallel_rotate_method";
    const std::string method = in.text(key).value_or("allgather");
    in.set("context_kind", method == "alltoall" ? "ring" : "gather", key);
  }
  if (has_stages) import_pipeline(in);
  if (degree(in, "expert") > 1) {
    in.refuse_unless(part + "expert_tensor_parallel_degree", 1,
                     "tensor parallelism inside experts has no counterpart");
  }
  in.leave_out_rest(part, "this parallelism is not used, or it only changes speed");
}

}  // namespace

void import_torchtitan(ConfigImport& in) {
  import_training(in);
  import_optimizer(in);
  import_schedule(in);
  import_parallelism(in);
  for (const Harmless& key : kHarmless) in.refuse_unless(key.name, key.value, key.why);
  const bool saves = in.flag("checkpoint.enable").value_or(false) |
                     in.flag("checkpoint.enable_checkpoint").value_or(false);
  if (saves) {
    in.maps("checkpoint.interval", "save_every", 500);
    in.maps("checkpoint.keep_latest_k", "keep", 10);
    in.set("resume", "auto", "checkpoint.enable");
    in.leave_out_rest("checkpoint.", "checkpoints are in --out, and written in the background");
  } else {
    in.set("no_save", true,
           in.has("checkpoint.enable") ? "checkpoint.enable" : "checkpoint.enable (not given)");
    in.leave_out_rest("checkpoint.", "checkpoints are not enabled");
  }
  const std::string mode = in.text("activation_checkpoint.mode").value_or("selective");
  in.set("recompute", mode, "activation_checkpoint.mode");
  in.leave_out_rest("activation_checkpoint.", "Shale's model chooses what selective recomputes");
  if (in.flag("metrics.enable_tensorboard") == true) {
    in.set("tensorboard", true, "metrics.enable_tensorboard");
  }
  if (in.flag("validation.enable").value_or(true)) in.maps("validation.freq", "eval_every");
  in.maps("comm.train_timeout_seconds", "timeout", 100);
  in.maps_text("job.dump_folder", "out");
  import_model(in);
  for (const char* const part : {"job.", "metrics.", "profiling.", "comm.", "validation.",
                                 "compile.", "memory_estimation.", "experimental.", "debug."}) {
    in.leave_out_rest(part, "it changes no result");
  }
  for (const char* const part : {"float8.", "mx.", "quantize.", "fault_tolerance."}) {
    in.leave_out_rest(part, "used only if a converter needs it");
  }
}

}  // namespace shale::models
