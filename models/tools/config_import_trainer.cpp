// Follows the table in docs/howto/recipes.md; names and defaults are those of
// transformers/training_args.py.
#include <cmath>
#include <map>
#include <string>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/tools/config_import.h"

namespace shale::models {
namespace {

// Keys that change results, with the value for which transformers behaves like Shale.
struct Harmless {
  const char* name;
  Json value;
  const char* why;
};
const Harmless kHarmless[] = {
    {"data_seed", nullptr, "--seed is also the seed of the data"},
    {"label_smoothing_factor", 0, "has no counterpart"},
    {"neftune_noise_alpha", nullptr, "has no counterpart"},
    {"group_by_length", false, "batches come in the order of the seed"},
    {"train_sampling_strategy", "random", "batches come in the order of the seed"},
    {"load_best_model_at_end", false,
     "a run ends with the weights of its last step; give --eval-every and choose a checkpoint"},
    {"auto_find_batch_size", false, "the batch is --micro-batch and --global-batch"},
    {"ignore_data_skip", false, "a resumed run goes on with the data that it has not seen"},
    {"past_index", -1, "has no counterpart"},
    {"mp_parameters", "", "has no counterpart"},
    {"optim_target_modules", nullptr, "has no counterpart"},
    {"bf16_full_eval", false, "validation is computed in --dtype"},
    {"fp16_full_eval", false, "validation is computed in --dtype"},
    {"accelerator_config.split_batches", false, "--micro-batch counts samples per rank"},
    {"accelerator_config.gradient_accumulation_kwargs.num_steps", nullptr,
     "give gradient_accumulation_steps"},
    {"parallelism_config", nullptr, "give --tensor, --context, --shard-ranks"},
    {"tp_size", 0, "give --tensor"},
    {"per_gpu_train_batch_size", nullptr, "give per_device_train_batch_size"},
    {"half_precision_backend", "auto", "apex keeps other values in fp32"},
    {"fp16_backend", "auto", "apex keeps other values in fp32"},
};

// Names and prefixes of keys that never change results.
constexpr const char* kNoResult[] = {"logging_",
                                     "log_level",
                                     "log_on_each_node",
                                     "disable_tqdm",
                                     "run_name",
                                     "project",
                                     "trackio_",
                                     "push_to_hub",
                                     "hub_",
                                     "debug",
                                     "skip_memory_metrics",
                                     "include_",
                                     "metric_for_best_model",
                                     "greater_is_better",
                                     "label_names",
                                     "per_gpu_eval_batch_size",
                                     "batch_eval_metrics",
                                     "eval_do_concat_batches",
                                     "eval_use_gather_object",
                                     "dataloader_",
                                     "accelerator_config.",
                                     "remove_unused_columns",
                                     "length_column_name",
                                     "save_on_each_node",
                                     "save_only_model",
                                     "save_safetensors",
                                     "enable_jit_checkpoint",
                                     "restore_callback_states_from_checkpoint",
                                     "overwrite_output_dir",
                                     "gradient_checkpointing_kwargs",
                                     "activation_checkpointing_kwargs",
                                     "torch_compile",
                                     "torch_empty_cache_steps",
                                     "torchdynamo",
                                     "use_liger_kernel",
                                     "liger_kernel_config",
                                     "use_legacy_prediction_loop",
                                     "use_cache",
                                     "use_cpu",
                                     "use_ipex",
                                     "use_mps_device",
                                     "no_cuda",
                                     "jit_mode_eval",
                                     "fp16_opt_level",
                                     "local_rank",
                                     "_n_gpu",
                                     "ray_scope",
                                     "tpu_",
                                     "ddp_"};

void import_batch(ConfigImport& in) {
  const int64_t micro = in.integer("per_device_train_batch_size").value_or(8);
  in.set("micro_batch", micro, "per_device_train_batch_size");
  in.set_global_batch(micro, in.integer("gradient_accumulation_steps").value_or(1),
                      "gradient_accumulation_steps");
  if (const int64_t steps = in.integer("max_steps").value_or(-1); steps > 0) {
    in.set("steps", steps, "max_steps");
    in.leave_out({"num_train_epochs"}, "max_steps takes precedence");
  } else {
    in.maps("num_train_epochs", "epochs", 3.0);
  }
}

void import_optimizer(ConfigImport& in) {
  static const std::map<std::string, std::string> kNames = {{"adamw_torch", "adamw"},
                                                            {"adamw_torch_fused", "adamw"},
                                                            {"adamw_hf", "adamw"},
                                                            {"adamw_bnb_8bit", "adamw-8bit"},
                                                            {"adamw_8bit", "adamw-8bit"},
                                                            {"adafactor", "adafactor"},
                                                            {"sgd", "sgd"},
                                                            {"lion_32bit", "lion"}};
  std::string theirs = in.text("optim").value_or("adamw_torch_fused");
  if (in.flag("adafactor") == true) theirs = "adafactor";
  const auto name = kNames.find(theirs);
  if (name == kNames.end()) {
    return in.refuse("optim", cat("expected one of ", keys_of(kNames)));
  }
  in.set("optimizer", name->second, "optim");
  in.maps("learning_rate", "lr", 5e-5);
  const bool is_adam = name->second.starts_with("adamw");
  if (is_adam || name->second == "lion") {
    in.maps("adam_beta1", "beta1", 0.9);
    in.maps("adam_beta2", "beta2", 0.999);
  }
  if (is_adam) in.maps("adam_epsilon", "eps", 1e-8);
  if (name->second == "sgd") in.set("momentum", 0, "optim (torch.optim.SGD's default)");
  in.leave_out({"adam_beta1", "adam_beta2", "adam_epsilon"},
               cat("the optimizer ", theirs, " does not use it"));
  in.maps("weight_decay", "weight_decay", 0.0);
  // A max_grad_norm of null disables clipping.
  in.maps("max_grad_norm", "clip", in.is("max_grad_norm", nullptr) ? 0.0 : 1.0);
  in.refuse_unless("optim_args", "", "has no counterpart; use flags such as --beta1");
}

void import_warmup(ConfigImport& in) {
  if (in.text("lr_scheduler_type") == "constant") {
    in.set("warmup_steps", 0, "lr_scheduler_type");
    return in.leave_out({"warmup_steps", "warmup_ratio"}, "schedule constant has no warm-up");
  }
  double steps = in.number("warmup_steps").value_or(0);
  std::string key = "warmup_steps";
  const double ratio = in.number("warmup_ratio").value_or(0);
  if (steps == 0 && ratio > 0) steps = ratio, key = "warmup_ratio";
  if (steps >= 1 || steps == 0) return in.set("warmup_steps", static_cast<int64_t>(steps), key);
  if (!in.is_set("steps"))
    return in.refuse(key, "a share of an unknown number of steps; set max_steps");
  const auto all = in.option("steps").get<double>();
  in.set("warmup_steps", static_cast<int64_t>(std::ceil(steps * all)), key);
}

// Sets min_lr to `share` of lr. Does nothing if lr is not set, because the optimizer is not
// supported.
void set_min_lr(ConfigImport& in, double share, const std::string& key) {
  if (in.is_set("lr")) in.set("min_lr", share * in.option("lr").real(), key);
}

// Shale's learning rate is lr * sqrt(warmup / step). transformers uses `timescale`, if it is given,
// instead of the warm-up, and 10000 if neither is given.
void import_inverse_sqrt(ConfigImport& in, const std::string& key, const std::string& timescale) {
  in.set("schedule", "inverse-sqrt", key);
  const int64_t warmup =
      in.is_set("warmup_steps") ? in.option("warmup_steps").integer() : int64_t{0};
  if (warmup == 0)
    return in.refuse(key,
                     "without a warm-up, the rate of transformers falls over 10000 steps; Shale's "
                     "needs warmup_steps");
  in.refuse_unless(timescale, warmup,
                   cat("Shale's rate falls over the steps of the warm-up, ", warmup));
}

void import_stable_decay(ConfigImport& in, const std::string& key, const std::string& kwargs) {
  in.maps(kwargs + "num_decay_steps", "decay_steps");
  if (!in.is_set("decay_steps")) in.refuse(key, "give num_decay_steps in lr_scheduler_kwargs");
  const std::string shape = in.text(kwargs + "decay_type").value_or("cosine");
  if (shape == "linear" || shape == "1-sqrt") {
    in.set("schedule", shape == "linear" ? "wsd" : "wsd-1-sqrt", kwargs + "decay_type");
    in.leave_out({kwargs + "num_cycles"}, "only a cosine decay uses it");
  } else {
    in.refuse(in.has(kwargs + "decay_type") ? kwargs + "decay_type" : key,
              "the decay is a cosine (the default), but Shale has only linear and 1-sqrt");
  }
  in.refuse_unless(kwargs + "warmup_type", "linear", "Shale's warm-up is linear");
  if (in.is_set("steps") && in.is_set("warmup_steps") && in.is_set("decay_steps")) {
    const int64_t stable = in.option("steps").integer() - in.option("warmup_steps").integer() -
                           in.option("decay_steps").integer();
    in.refuse_unless(
        kwargs + "num_stable_steps", stable,
        cat("Shale's decay is at the end of the run, which leaves num_stable_steps of ", stable));
  }
  set_min_lr(in, in.number(kwargs + "min_lr_ratio").value_or(0), kwargs + "min_lr_ratio");
}

void import_schedule(ConfigImport& in) {
  const std::string kwargs = "lr_scheduler_kwargs.";
  const std::string type = in.text("lr_scheduler_type").value_or("linear");
  const std::string key = "lr_scheduler_type";
  import_warmup(in);
  if (type == "linear") {
    in.set("schedule", "linear-to-zero", key);
  } else if (type == "cosine") {
    in.set("schedule", "cosine", key);
    in.set("min_lr", 0.0, key);
    in.refuse_unless(kwargs + "num_cycles", 0.5, "Shale's rate decays once, which is half a cycle");
  } else if (type == "cosine_with_min_lr") {
    in.set("schedule", "cosine", key);
    in.refuse_unless(kwargs + "num_cycles", 0.5, "Shale's rate decays once, which is half a cycle");
    in.maps(kwargs + "min_lr", "min_lr");
    if (const auto rate = in.number(kwargs + "min_lr_rate")) {
      set_min_lr(in, *rate, kwargs + "min_lr_rate");
    } else if (!in.is_set("min_lr")) {
      in.refuse(key, "expected min_lr or min_lr_rate in lr_scheduler_kwargs, found neither");
    }
  } else if (type == "constant" || type == "constant_with_warmup") {
    in.set("schedule", "constant", key);
    in.leave_out_rest(kwargs, "a constant schedule has no parameters");
  } else if (type == "inverse_sqrt") {
    import_inverse_sqrt(in, key, kwargs + "timescale");
  } else if (type == "warmup_stable_decay") {
    import_stable_decay(in, key, kwargs);
  } else {
    in.refuse(key, "has no counterpart");
  }
}

// FSDP keys that affect only how parameters are grouped, gathered and saved.
constexpr const char* kOfUnits[] = {"min_num_params",
                                    "transformer_layer_cls_to_wrap",
                                    "auto_wrap_policy",
                                    "backward_prefetch",
                                    "backward_prefetch_policy",
                                    "forward_prefetch",
                                    "limit_all_gathers",
                                    "use_orig_params",
                                    "sync_module_states",
                                    "cpu_ram_efficient_loading",
                                    "activation_checkpointing",
                                    "reshard_after_forward",
                                    "state_dict_type",
                                    "version",
                                    "xla_fsdp_v2",
                                    "xla_fsdp_grad_ckpt"};

void import_sharding(ConfigImport& in) {
  const auto value = in.take("fsdp");
  std::string text;
  if (value && value->is_string()) text = value->get<std::string>();
  if (value && value->is_array()) {
    for (const Json& word : *value) text += word.get<std::string>() + " ";
  }
  const auto asks = [&text](const char* word) { return text.find(word) != text.npos; };
  if (value == true || asks("full_shard")) in.set("zero", 3, "fsdp");
  if (asks("shard_grad_op")) in.set("zero", 2, "fsdp");
  if (asks("hybrid_shard")) in.refuse("fsdp", "give --zero and --shard-ranks, and waive this");
  if (asks("offload"))
    in.set("offload", in.is_set("zero") && in.option("zero") == 3 ? "params" : "optimizer", "fsdp");
  if (in.flag("fsdp_config.activation_checkpointing") == true) {
    in.set("recompute", "full", "fsdp_config.activation_checkpointing");
  }
  for (const char* const key : kOfUnits) {
    for (const char* const before : {"fsdp_", "fsdp_config.", "fsdp_config.fsdp_"}) {
      in.leave_out({std::string(before) + key}, "Shale shards by the model's blocks");
    }
  }
  in.refuse_unless("fsdp_config.xla", false, "has no counterpart");
  in.refuse_unless("deepspeed", "", "import the DeepSpeed file too");
}

void import_interval(ConfigImport& in, const char* key, const char* option) {
  const double steps = in.number(key).value_or(500);
  if (steps < 1)
    return in.refuse(key, cat("a share of all steps: give ", option, ", and waive this"));
  in.set(option, static_cast<int64_t>(steps), key);
}

void import_output(ConfigImport& in) {
  in.maps_text("output_dir", "out");
  if (in.text("save_strategy").value_or("steps") == "steps") {
    import_interval(in, "save_steps", "save_every");
  }
  in.leave_out({"save_steps"}, "save_strategy is not steps");
  in.maps("save_total_limit", "keep", 0);
  if (in.text("eval_strategy").value_or("no") == "steps") {
    import_interval(in, in.number("eval_steps") ? "eval_steps" : "logging_steps", "eval_every");
  }
  in.leave_out({"eval_steps", "evaluation_strategy", "do_train", "do_eval", "do_predict",
                "per_device_eval_batch_size", "eval_accumulation_steps", "eval_delay",
                "eval_on_start", "prediction_loss_only"},
               "--eval-every and --eval-samples configure validation");
  const auto resume = in.take("resume_from_checkpoint");
  if (resume == true) in.set("resume", "auto", "resume_from_checkpoint");
  if (resume && resume->is_string()) in.set("resume", *resume, "resume_from_checkpoint");
  const auto report = in.take("report_to");
  if (report && report->dump().find("tensorboard") != std::string::npos) {
    in.set("tensorboard", true, "report_to");
  }
}

}  // namespace

void import_trainer(ConfigImport& in) {
  import_batch(in);
  import_optimizer(in);
  import_schedule(in);
  import_sharding(in);
  import_output(in);
  const bool bf16 = in.flag("bf16").value_or(false), fp16 = in.flag("fp16").value_or(false);
  in.set("dtype", bf16 ? "bf16" : fp16 ? "fp16" : "fp32", bf16 ? "bf16" : "fp16");
  if (in.flag("tf32") == true && !bf16 && !fp16) in.set("dtype", "tf32", "tf32");
  for (const char* const key : {"gradient_checkpointing", "activation_checkpointing"}) {
    if (in.flag(key) == true) in.set("recompute", "full", key);
  }
  if (in.flag("full_determinism") == true) in.set("deterministic", true, "full_determinism");
  in.maps("seed", "seed", 42);
  in.maps("ddp_timeout", "timeout", 1800);
  if (in.ranks() != 1) {
    in.refuse_unless("average_tokens_across_devices", true,
                     "Shale's loss is the mean over the tokens of all ranks");
  }
  in.leave_out({"average_tokens_across_devices"},
               "Shale's loss is the mean over the tokens of all ranks");
  for (const Harmless& key : kHarmless) in.refuse_unless(key.name, key.value, key.why);
  for (const char* const part : kNoResult) in.leave_out_rest(part, "it changes no result");
}

}  // namespace shale::models
