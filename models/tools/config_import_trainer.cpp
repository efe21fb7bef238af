// docs/config_import.md has the table; names and defaults are those of
// transformers/training_args.py.
#include <cmath>
#include <map>

#include "shale/base/json.h"
#include "shale/models/tools/config_import.h"

namespace shale::models {
namespace {

void import_batch(ConfigImport& in) {
  const int64_t micro = in.integer("per_device_train_batch_size").value_or(8);
  in.set("micro_batch", micro, "per_device_train_batch_size");
  in.set_global_batch(micro, in.integer("gradient_accumulation_steps").value_or(1),
                      "gradient_accumulation_steps");
  if (const int64_t steps = in.integer("max_steps").value_or(-1); steps > 0) {
    in.set("steps", steps, "max_steps");
    in.leave_out({"num_train_epochs"}, "max_steps counts");
  } else if (in.has("num_train_epochs")) {
    in.refuse("num_train_epochs", "a run is so many steps: give --steps, and waive this");
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
  const std::string theirs = in.text("optim").value_or("adamw_torch_fused");
  const auto name = kNames.find(theirs);
  if (name == kNames.end()) {
    return in.refuse("optim", "want adamw_torch, adamw_bnb_8bit, adafactor, sgd or lion_32bit");
  }
  in.set("optimizer", name->second, "optim");
  in.maps("learning_rate", "lr", 5e-5);
  if (name->second.starts_with("adamw")) {
    in.maps("adam_beta1", "beta1", 0.9);
    in.maps("adam_beta2", "beta2", 0.999);
    in.maps("adam_epsilon", "eps", 1e-8);
  }
  in.leave_out({"adam_beta1", "adam_beta2", "adam_epsilon"}, "of AdamW alone");
  in.maps("weight_decay", "weight_decay", 0.0);
  in.maps("max_grad_norm", "clip", 1.0);
  in.refuse_unless("optim_args", nullptr, "has no counterpart");
}

void import_warmup(ConfigImport& in) {
  double steps = in.number("warmup_steps").value_or(0);
  std::string key = "warmup_steps";
  const double ratio = in.number("warmup_ratio").value_or(0);
  if (steps == 0 && ratio > 0) steps = ratio, key = "warmup_ratio";
  if (steps >= 1 || steps == 0) return in.set("warmup_steps", static_cast<int64_t>(steps), key);
  if (!in.is_set("steps"))
    return in.refuse(key, "a share of steps that are not known: give max_steps");
  const auto all = in.option("steps").get<double>();
  in.set("warmup_steps", static_cast<int64_t>(std::ceil(steps * all)), key);
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
  } else if (type == "cosine_with_min_lr") {
    in.set("schedule", "cosine", key);
    in.maps(kwargs + "min_lr", "min_lr");
    if (const auto rate = in.number(kwargs + "min_lr_rate")) {
      in.set("min_lr", *rate * in.option("lr").get<double>(), kwargs + "min_lr_rate");
    }
  } else if (type == "constant" || type == "constant_with_warmup") {
    in.set("schedule", "constant", key);
  } else if (type == "inverse_sqrt") {
    in.set("schedule", "inverse-sqrt", key);
  } else if (type == "warmup_stable_decay") {
    in.set("schedule", "wsd", key);
    in.maps(kwargs + "num_decay_steps", "decay_steps");
    if (in.text(kwargs + "decay_type").value_or("cosine") != "linear") {
      in.refuse(in.has(kwargs + "decay_type") ? kwargs + "decay_type" : key,
                "the decay is a cosine (the default), and linear or 1-sqrt here");
    }
    const double least = in.number(kwargs + "min_lr_ratio").value_or(0);
    in.set("min_lr", least * in.option("lr").get<double>(), kwargs + "min_lr_ratio");
  } else {
    in.refuse(key, "has no counterpart");
  }
}

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
  in.leave_out_rest("fsdp_config.", "units are the model's blocks");
  in.refuse_unless("deepspeed", nullptr, "import that file too");
}

void import_output(ConfigImport& in) {
  in.maps("output_dir", "out");
  if (in.text("save_strategy").value_or("steps") == "steps") {
    if (const auto steps = in.number("save_steps"); steps && *steps < 1) {
      in.refuse("save_steps", "a share of all steps: give --save-every, and waive this");
    } else {
      in.set("save_every", static_cast<int64_t>(steps.value_or(500)), "save_steps");
    }
  }
  in.leave_out({"save_steps"}, "save_strategy is another");
  in.maps("save_total_limit", "keep", 0);
  if (in.text("eval_strategy").value_or("no") == "steps") in.maps("eval_steps", "eval_every");
  in.leave_out({"eval_steps", "evaluation_strategy", "do_train", "do_eval", "do_predict",
                "per_device_eval_batch_size", "eval_accumulation_steps", "eval_delay",
                "eval_on_start", "prediction_loss_only"},
               "--eval-every and --eval-samples say how it is evaluated");
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
  if (in.flag("tf32") == true) in.set("tf32", true, "tf32");
  if (in.flag("gradient_checkpointing") == true) {
    in.set("recompute", "full", "gradient_checkpointing");
  }
  if (in.flag("full_determinism") == true) in.set("deterministic", true, "full_determinism");
  in.maps("seed", "seed", 42);
  in.refuse_unless("data_seed", nullptr, "--seed is that of the data too");
  in.maps("ddp_timeout", "timeout", 1800);
  in.refuse_unless("label_smoothing_factor", 0.0, "has no counterpart");
  in.refuse_unless("neftune_noise_alpha", nullptr, "has no counterpart");
  in.refuse_unless("group_by_length", false, "batches come in the order of the seed");
  in.refuse_unless("torch_empty_cache_steps", nullptr, "has no counterpart");
  for (const char* const part : {"logging_",
                                 "dataloader_",
                                 "push_to_hub",
                                 "hub_",
                                 "torch_compile",
                                 "ddp_",
                                 "tpu_",
                                 "_n_gpu",
                                 "use_",
                                 "gradient_checkpointing_kwargs",
                                 "accelerator_config",
                                 "include_",
                                 "log_",
                                 "run_name",
                                 "save_",
                                 "load_best_model",
                                 "metric_for",
                                 "greater_is_better",
                                 "disable_tqdm",
                                 "skip_",
                                 "remove_unused",
                                 "label_names",
                                 "local_rank",
                                 "bf16_",
                                 "fp16_",
                                 "jit_",
                                 "batch_eval",
                                 "auto_find",
                                 "average_tokens",
                                 "overwrite_output",
                                 "past_index",
                                 "parallelism_config",
                                 "project",
                                 "trackio",
                                 "liger",
                                 "lr_scheduler_kwargs",
                                 "optim_target",
                                 "restore_callback",
                                 "ignore_data_skip",
                                 "split_batches",
                                 "debug",
                                 "mp_parameters",
                                 "no_cuda",
                                 "length_column"}) {
    in.leave_out_rest(part, "it changes no result, or nothing here asks for it");
  }
}

}  // namespace shale::models
