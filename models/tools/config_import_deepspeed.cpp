// Follows the table in docs/howto/recipes.md; names and defaults are those of
// deepspeed/runtime/config.py and deepspeed/runtime/zero/config.py.
#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/tools/config_import.h"

namespace shale::models {
namespace {

void import_batch(ConfigImport& in) {
  const auto micro = in.integer("train_micro_batch_size_per_gpu");
  const auto whole = in.integer("train_batch_size");
  const auto steps = in.integer("gradient_accumulation_steps");
  if (micro) in.set("micro_batch", *micro, "train_micro_batch_size_per_gpu");
  if (whole) in.set("global_batch", *whole, "train_batch_size");
  if (micro && steps && (!whole || in.ranks() > 0)) {
    in.set_global_batch(*micro, *steps, "gradient_accumulation_steps");
  } else if (micro && !whole) {
    in.set_global_batch(*micro, 1, "train_micro_batch_size_per_gpu");
  }
  in.maps("gradient_clipping", "clip", 1.0);
}

// Imports parameters specific to LAMB and 1-bit Adam; names and defaults are those of
// deepspeed/runtime/fp16/onebit/adam.py and deepspeed/ops/lamb.
void import_lamb_and_bits(ConfigImport& in, const std::string& name) {
  const std::string params = "optimizer.params.";
  if (name == "lamb") {
    in.refuse_unless(params + "min_coeff", 0.0, "Shale's least ratio is 0");
    in.refuse_unless(params + "max_coeff", 10.0, "Shale's largest ratio is 10");
    if (!in.has(params + "min_coeff")) in.lacks(params + "min_coeff", "DeepSpeed: 0.01, Shale: 0");
    in.refuse_unless(params + "eps_inside_sqrt", false, "Shale adds eps to the root");
  }
  in.refuse_unless(params + "max_grad_norm", 0.0,
                   "Shale clips only by the top-level gradient_clipping");
  if (name == "lamb") return;
  in.maps(params + "freeze_step", "freeze_step", 100000);
  in.leave_out({params + "cuda_aware", params + "comm_backend_name"}, "it changes no result");
}

void import_optimizer(ConfigImport& in) {
  const std::string params = "optimizer.params.";
  const auto type = in.text("optimizer.type");
  if (!type) return;
  std::string name;
  for (const char c : *type) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  static const std::map<std::string, std::string> names = {
      {"adam", "adamw"}, {"adamw", "adamw"}, {"fusedadam", "adamw"}, {"lion", "lion"},
      {"sgd", "sgd"},    {"muon", "muon"},   {"lamb", "lamb"},       {"onebitadam", "1bit-adam"}};
  if (name == "zerooneadam" || name == "onebitlamb") {
    throw ConfigError(cat("optimizer.type: ", *type, " was removed; use OneBitAdam",
                          name == "onebitlamb" ? " or Lamb" : ""));
  }
  const auto ours = names.find(name);
  if (ours == names.end()) {
    return in.refuse("optimizer.type",
                     cat("expected one of ", keys_of(names), " in upper or lower case"));
  }
  const bool has_more = name == "lamb" || name == "onebitadam";
  const bool is_adam = ours->second == "adamw" || has_more;
  in.set("optimizer", ours->second, "optimizer.type");
  if (has_more) import_lamb_and_bits(in, name);
  in.maps(params + "lr", "lr", 1e-3);
  if (name == "muon") {
    in.refuse("optimizer.type", "Shale's Muon needs the lr of AdamW; give --lr, and waive this");
  }
  if (name == "adam") {
    in.refuse_unless(params + "adam_w_mode", true,
                     "L2 penalty in the gradient (Adam) has no counterpart");
  }
  if (name != "sgd") {
    const auto betas = in.numbers(params + "betas");
    if (betas && betas->size() != 2) return in.refuse(params + "betas", "expected two numbers");
    if (!in.is(params + "betas", "auto")) {
      const std::string key = params + (betas ? "betas" : "betas (not given)");
      const double beta2 = is_adam ? 0.999 : name == "lion" ? 0.99 : 0.95;
      in.set("beta1", betas ? (*betas)[0] : 0.9, key);
      in.set("beta2", betas ? (*betas)[1] : beta2, key);
    }
  }
  if (is_adam || name == "muon") in.maps(params + "eps", "eps", is_adam ? 1e-8 : 1e-10);
  // torch_adam selects torch.optim.AdamW, whose default differs from DeepSpeed's.
  const bool of_torch = is_adam && in.flag(params + "torch_adam") == true;
  in.maps(params + "weight_decay", "weight_decay", of_torch ? 0.01 : 0.0);
  if (name == "sgd") in.maps(params + "momentum", "momentum", 0);
  if (name == "muon") in.maps(params + "momentum", "momentum", 0.95);
  in.refuse_unless(params + "dampening", 0, "has no counterpart");
  if (name == "sgd") in.refuse_unless(params + "nesterov", false, "has no counterpart");
  for (const char* const key : {"amsgrad", "maximize"}) {
    in.refuse_unless(params + key, false, "has no counterpart");
  }
  in.refuse_unless(params + "bias_correction", true, "has no counterpart");
  in.leave_out({params + "torch_adam"}, "the implementation changes no result");
}

// Imports the warm-up. Shale's is linear; DeepSpeed's is logarithmic by default.
void import_warmup(ConfigImport& in, bool is_cosine) {
  const std::string params = "scheduler.params.";
  in.maps(params + "warmup_num_steps", "warmup_steps", 1000);
  const auto type = in.text(params + "warmup_type");
  if (type.value_or("log") != "linear") {
    in.refuse(params + (type ? "warmup_type" : "warmup_num_steps"),
              "the warm-up is logarithmic (warmup_type log, the default), Shale's is linear; waive "
              "it to accept that");
  }
  if (is_cosine) {
    in.refuse_unless(params + "warmup_min_ratio", 0.0, "Shale's warm-up begins at 0");
    return;
  }
  in.refuse_unless(params + "warmup_min_lr", 0, "Shale's warm-up begins at 0");
  in.maps(params + "warmup_max_lr", "lr", 1e-3);  // the warm-up's rate overrides the optimizer's
}

void import_schedule(ConfigImport& in) {
  const std::string params = "scheduler.params.";
  const auto type = in.text("scheduler.type");
  if (!type) {
    if (!in.is_set("lr")) return;  // the command that starts the run sets rate and schedule
    in.set("schedule", "constant", "scheduler.type (not given)");
    return in.set("warmup_steps", 0, "scheduler.type (not given)");
  }
  if (*type == "WarmupLR") {
    in.set("schedule", "constant", "scheduler.type");
  } else if (*type == "WarmupDecayLR") {
    in.set("schedule", "linear-to-zero", "scheduler.type");
    in.maps(params + "total_num_steps", "steps");
  } else if (*type == "WarmupCosineLR") {
    in.set("schedule", "cosine", "scheduler.type");
    in.maps(params + "total_num_steps", "steps");
    const double ratio = in.number(params + "cos_min_ratio").value_or(1e-4);
    if (in.is_set("lr")) {
      in.set("min_lr", ratio * in.option("lr").get<double>(), params + "cos_min_ratio");
    } else {
      in.refuse(in.has(params + "cos_min_ratio") ? params + "cos_min_ratio" : "scheduler.type",
                "the final lr is a share of lr, which the file does not have");
    }
  } else {
    return in.refuse("scheduler.type", "expected WarmupLR, WarmupDecayLR or WarmupCosineLR");
  }
  import_warmup(in, *type == "WarmupCosineLR");
  in.leave_out({params + "last_batch_iteration"}, "a resumed run knows its step");
}

void import_precision(ConfigImport& in) {
  const bool bf16 = in.flag("bf16.enabled").value_or(false);
  const bool fp16 = in.flag("fp16.enabled").value_or(false);
  if (bf16) in.set("dtype", "bf16", "bf16.enabled");
  if (fp16) in.set("dtype", "fp16", "fp16.enabled");
  const bool is_left = in.is("bf16.enabled", "auto") || in.is("fp16.enabled", "auto");
  if (!bf16 && !fp16 && !is_left) in.set("dtype", "fp32", "bf16.enabled (not given)");
  if (fp16) {
    const double fixed = in.number("fp16.loss_scale").value_or(0);
    if (fixed != 0) in.refuse("fp16.loss_scale", "a static loss scale has no counterpart");
    const auto power = in.integer("fp16.initial_scale_power").value_or(16);
    in.set("loss_scale", static_cast<double>(int64_t{1} << std::min<int64_t>(power, 40)),
           "fp16.initial_scale_power");
    in.leave_out({"fp16.loss_scale_window", "fp16.hysteresis"},
                 "Shale's scale doubles after 2000 steps, and each overflow halves it");
    in.refuse_unless("fp16.min_loss_scale", 1, "Shale's least loss scale is 1");
    in.refuse_unless("fp16.consecutive_hysteresis", false, "has no counterpart");
    in.leave_out({"fp16.auto_cast"}, "Shale's modules choose their dtypes");
  }
  for (const char* const key :
       {"bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states",
        "fp16.fp16_master_weights_and_grads", "fp16.fp16_optimizer_states"}) {
    in.refuse_unless(key, false, "Shale's masters and moments are fp32");
  }
  in.leave_out_rest("fp16.", "fp16 is not enabled");
  in.leave_out_rest("bf16.", "Shale's masters and moments are fp32");
  if (const auto type = in.text("communication_data_type")) {
    if (*type == "fp32" || *type == "bf16" || *type == "bfp16") {
      in.set("grad_dtype", *type == "fp32" ? "fp32" : "bf16", "communication_data_type");
    } else {
      in.refuse("communication_data_type", "expected fp32 or bf16");
    }
  }
}

void import_offload(ConfigImport& in, int64_t stage) {
  const std::string zero = "zero_optimization.";
  const std::string states = in.text(zero + "offload_optimizer.device").value_or("none");
  const std::string weights = in.text(zero + "offload_param.device").value_or("none");
  if (states == "nvme") in.refuse(zero + "offload_optimizer.device", "expected cpu or none");
  if (weights == "nvme") in.refuse(zero + "offload_param.device", "expected cpu or none");
  if (weights == "cpu" && stage == 3) {
    in.set("offload", "params", zero + "offload_param.device");
  } else if (states == "cpu") {
    in.set("offload", "optimizer", zero + "offload_optimizer.device");
  }
  if (states == "cpu" && stage == 3) in.maps(zero + "offload_optimizer.ratio", "offload_ratio");
  in.leave_out_rest(zero + "offload_optimizer.", "it only affects how memory is copied");
  in.leave_out_rest(zero + "offload_param.", "it only affects how memory is copied");
}

void import_zero(ConfigImport& in) {
  const std::string zero = "zero_optimization.";
  const int64_t stage = in.integer(zero + "stage").value_or(0);
  const bool has_replicas = in.is_set("optimizer") && in.option("optimizer") == "1bit-adam";
  if (has_replicas && stage == 0) {
    // With 1-bit Adam every rank is a replica of its own, so optimizer states are not divided.
    in.set("zero", 1, "optimizer.type");
    in.set("shard_ranks", 1, "optimizer.type");
  }
  if (!has_replicas || stage > 0) in.set("zero", stage, zero + "stage");
  import_offload(in, stage);
  const auto count = [&in](const std::string& key, const std::string& option, int64_t nothing) {
    const auto value = in.integer(key);
    if (value && *value != nothing) in.set(option, *value, key);
  };
  count(zero + "mics_shard_size", "shard_ranks", -1);
  count(zero + "zero_hpz_partition_size", "reshard_ranks", 1);
  in.leave_out({zero + "stage3_param_persistence_threshold"}, "Shale shards all parameters");
  if (in.flag(zero + "overlap_comm") == false) in.set("no_overlap", true, zero + "overlap_comm");
  const auto coded = [&in, &zero](const std::string& key, const char* option, const char* bits) {
    if (in.flag(zero + key) == true) in.set(option, bits, zero + key);
  };
  coded("zero_quantized_weights", "quantize_gathers", "8");
  coded("zero_quantized_gradients", "quantize_reductions", "4");
  in.refuse_unless(zero + "zero_quantized_nontrainable_weights", false,
                   "communication in fewer bits changes results");
  for (const char* const key : {"zeropp_loco_param", "zenflow"}) {
    in.refuse_unless(zero + key, nullptr, "changes results");
  }
  in.leave_out_rest(zero, "it only changes speed and memory");
}

}  // namespace

void import_deepspeed(ConfigImport& in) {
  import_batch(in);
  import_optimizer(in);
  import_schedule(in);
  import_precision(in);
  import_zero(in);
  if (in.flag("activation_checkpointing.cpu_checkpointing") == true) {
    in.set("offload_activations", true, "activation_checkpointing.cpu_checkpointing");
  }
  in.leave_out_rest("activation_checkpointing.",
                    "use --recompute; in DeepSpeed the model chooses what is recomputed");
  if (in.flag("tensorboard.enabled") == true) in.set("tensorboard", true, "tensorboard.enabled");
  in.maps("seed", "seed");
  for (const char* const part :
       {"tensorboard.", "wandb.", "csv_monitor.", "comet.", "flops_profiler.", "comms_logger.",
        "aio.", "checkpoint.", "timers."}) {
    in.leave_out_rest(part, "it changes no result");
  }
  in.leave_out({"steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown",
                "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
                "dataloader_drop_last", "disable_allgather", "train_steps"},
               "it changes no result");
  in.refuse_unless("prescale_gradients", false, "Shale sums gradients over ranks");
  in.refuse_unless("gradient_predivide_factor", 1.0, "Shale sums gradients over ranks");
  in.refuse_unless("sparse_gradients", false, "has no counterpart");
}

}  // namespace shale::models
