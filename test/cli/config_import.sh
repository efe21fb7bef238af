#!/usr/bin/env bash
# Tests shale config import, which translates options of DeepSpeed, torchtitan and transformers. An
# option without a counterpart is an error unless it is waived by name.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

import() {  # arguments: FILE FLAG...
  "$BIN_DIR/shale" config import "$@" >"$work/options" 2>"$work/output"
}
has() {  # "key": value
  grep -qF -- "$1" "$work/options" || { cp "$work/options" "$work/output"; fail "no $1"; }
}
notes() { grep -qF -- "$1" "$work/output" || fail "no word of '$1'"; }

cat >"$work/ds.json" <<'JSON'
{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto",
 "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
 "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear", "warmup_num_steps": 20,
               "warmup_max_lr": 3e-4, "total_num_steps": 200}},
 "fp16": {"enabled": true, "initial_scale_power": 12}, "gradient_clipping": 0.5,
 "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5},
                       "reduce_bucket_size": 5e8, "overlap_comm": false},
 "steps_per_print": 10}
JSON
import "$work/ds.json" || fail "DeepSpeed: exit code $?"
for option in '"global_batch": 64' '"micro_batch": 4' '"optimizer": "adamw"' '"lr": 0.0003' \
    '"beta2": 0.95' '"eps": 1e-08' '"schedule": "linear-to-zero"' '"steps": 200' \
    '"warmup_steps": 20' '"dtype": "fp16"' '"loss_scale": 4096' \
    '"clip": 0.5' '"zero": 3' '"offload": "optimizer"' '"offload_ratio": 0.5' '"no_overlap": true'; do
  has "$option"
done
import "$work/ds.json" --out "$work/options.json" || fail "--out: exit code $?"
import "$work/ds.json"
notes 'reduce_bucket_size: left out'
notes 'gradient_accumulation_steps: left out; the command that starts the run sets "auto" values'
# train_lm accepts the file, and a second import writes the same file.
"$BIN_DIR/shale" config import "$work/ds.json" --out "$work/options.json" >/dev/null 2>&1
"$BIN_DIR/train_lm" --config "$work/options.json" --data x --print-config >"$work/output" 2>&1 ||
  fail 'train_lm does not take the options'
grep -q '"micro_batch": 4' "$work/output" || fail 'train_lm reads other options'


# With 1-bit optimizers, every rank is a replica.
bits() {  # arguments: TYPE PARAMS
  cat >"$work/bits.json" <<JSON
{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
 "optimizer": {"type": "$1", "params": {"lr": 2e-4, $2}}}
JSON
  import "$work/bits.json" --ranks 2
}
bits OneBitAdam '"freeze_step": 23, "comm_backend_name": "nccl"' || fail 'OneBitAdam'
for option in '"optimizer": "1bit-adam"' '"freeze_step": 23' '"zero": 1' \
    '"shard_ranks": 1' '"beta2": 0.999'; do
  has "$option"
done
cp "$work/options" "$work/options.json"
mpirun -np 2 --oversubscribe --bind-to none "$BIN_DIR/train_lm" --config "$work/options.json" \
  --data x --print-config >"$work/output" 2>&1 || fail 'train_lm does not take the options of OneBitAdam'
for removed in 'ZeroOneAdam OneBitAdam' 'OneBitLamb OneBitAdam or Lamb'; do
  bits "${removed%% *}" '"freeze_step": 7'
  [[ $? == 64 ]] || fail "${removed%% *}: expected exit code 64"
  notes "optimizer.type: ${removed%% *} was removed; use ${removed#* }"
done
bits Lamb '"weight_decay": 0.01, "min_coeff": 0' || fail 'Lamb'
has '"optimizer": "lamb"'
has '"zero": 0'

cat >"$work/bad.json" <<'JSON'
{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 2, "zero_quantized_gradients": true,
  "zero_quantized_nontrainable_weights": true},
 "compression_training": {"a": 1}}
JSON
import "$work/bad.json"
[[ $? == 64 ]] || fail 'what cannot be had: expected exit code 64'
notes '3 options have no counterpart in Shale'
notes 'give --ranks'
notes 'zero_quantized_nontrainable_weights true: communication in fewer bits'
notes 'compression_training.a 1: has no counterpart'
waived=zero_optimization.zero_quantized_nontrainable_weights,compression_training.a
import "$work/bad.json" --ranks 8 --waive $waived || fail "waived: exit code $?"
has '"global_batch": 64'
has '"quantize_reductions": "4"'
import "$work/ds.json" --waive nothing
[[ $? == 64 ]] || fail '--waive of no key: expected exit code 64'

# transformers' documentation uses "auto" for values that transformers' own arguments set too.
cat >"$work/auto.json" <<'JSON'
{"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto", "loss_scale": 0, "hysteresis": 2},
 "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
               "weight_decay": "auto"}},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
               "warmup_num_steps": "auto"}},
 "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
                       "offload_param": {"device": "cpu", "pin_memory": true},
                       "stage3_max_live_parameters": 1e9, "reduce_bucket_size": "auto",
                       "stage3_gather_16bit_weights_on_model_save": true},
 "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
 "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
 "wall_clock_breakdown": false}
JSON
import "$work/auto.json"
[[ $? == 64 ]] || fail 'a logarithmic warm-up: expected exit code 64'
notes '1 option has no counterpart in Shale'
import "$work/auto.json" --waive scheduler.params.warmup_num_steps || fail "auto: exit code $?"
has '"zero": 3'
grep -q '"lr"\|"micro_batch"\|"clip"\|"dtype"\|"beta' "$work/options" && fail 'auto: an option all the same'

cat >"$work/titan.toml" <<'TOML'
# A file as torchtitan had them in 2025.
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
[lr_scheduler]
warmup_steps = 200
decay_ratio = 0.25
min_lr_factor = 0.1
[training]
local_batch_size = 1
seq_len = 8_192
steps = 1000
max_norm = 1.0  # clipping by gradient norm
[parallelism]
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = 'default'
tensor_parallel_degree = 1
[checkpoint]
enable = true
interval = 250
exclude_from_loading = ["a", "b"]
TOML
import "$work/titan.toml" || fail "torchtitan: exit code $?"
for option in '"seq_len": 8192' '"steps": 1000' '"micro_batch": 1' '"zero": 3' '"dtype": "bf16"' \
    '"schedule": "wsd"' '"decay_steps": 250' '"beta2": 0.95' '"save_every": 250' '"keep": 10' \
    '"recompute": "selective"' '"out": "./outputs"'; do
  has "$option"
done
printf -- '--training.steps=50\n--training.seq_len 64\n--optimizer.lr=1e-3\n' >"$work/titan.args"
import "$work/titan.args" || fail "dotted options: exit code $?"
has '"steps": 50'
has '"seq_len": 64'
has '"no_save": true'
# TOML syntax that is rare in torchtitan's own files: inline tables, dotted keys, multi-line
# strings, dates.
cat >"$work/rare.toml" <<'TOML'
job = { dump_folder = 'runs\1', description = """
two lines""" }
training.steps = 0x64
training.local_batch_size = 2
[checkpoint]
enable = false
TOML
import "$work/rare.toml" || fail "rare TOML: exit code $?"
has '"out": "runs\\1"'
has '"steps": 100'
sed 's/tensor_parallel_degree = 1/tensor_parallel_degree = 4\ncontext_parallel_degree = 2\nexpert_parallel_degree = 8/' \
  "$work/titan.toml" >"$work/axes.toml"
import "$work/axes.toml"
[[ $? == 64 ]] || fail 'axes without --ranks: expected exit code 64'
import "$work/axes.toml" --ranks 16 || fail "axes: exit code $?"
for option in '"tensor": 4' '"context": 2' '"context_kind": "gather"' '"expert": 8' \
    '"global_batch": 2' '"zero": 3'; do
  has "$option"
done
sed 's/tensor_parallel_degree = 1/pipeline_parallel_degree = 4\npipeline_parallel_schedule = "ZBVZeroBubble"/' \
  "$work/titan.toml" >"$work/stages.toml"
import "$work/stages.toml" --ranks 8 || fail "stages: exit code $?"
for option in '"pipeline": 4' '"pipeline_schedule": "zbv"' '"zero": 1' '"micro_batch": 1' \
    '"global_batch": 2'; do
  has "$option"
done
sed -i 's/ZBVZeroBubble/DualPipeV/' "$work/stages.toml"
import "$work/stages.toml" --ranks 8
[[ $? == 64 ]] || fail 'another schedule: expected exit code 64'
sed 's/tensor_parallel_degree = 1/expert_parallel_degree = 2\nexpert_tensor_parallel_degree = 2/' \
  "$work/titan.toml" >"$work/cut_experts.toml"
import "$work/cut_experts.toml" --ranks 8
[[ $? == 64 ]] || fail 'experts that are cut: expected exit code 64'
printf '[training]\nsteps = \n' >"$work/broken.toml"
import "$work/broken.toml"
[[ $? == 65 ]] || fail 'broken TOML: expected exit code 65'
notes 'broken.toml:2: not valid TOML'
# Nesting depth is limited in both formats, so that a small file cannot overflow the stack.
perl -e 'print "a = ", "[" x 200000' >"$work/deep.toml"
perl -e 'print "[", "a." x 200000, "a]\nb = 1\n"' >"$work/dotted.toml"
perl -e 'print "{\"a\":" x 200000' >"$work/deep.json"
for case in "deep.toml:1: not valid TOML" "dotted.toml:1: expected at most 128 dots" \
    "deep.json: JSON is nested deeper than 64"; do
  import "$work/${case%%:*}"
  [[ $? == 65 ]] || fail "$case: expected exit code 65"
  notes "$case"
done
printf '[training]\nsteps = 1\nsteps = 2\n' >"$work/broken.toml"
import "$work/broken.toml"
[[ $? == 65 ]] || fail 'a key twice: expected exit code 65'
notes "broken.toml:3: not valid TOML"
printf -- '--training.steps=50\n--optimizer.lr=.5\n--training.steps=60\n' >"$work/broken.args"
import "$work/broken.args"
[[ $? == 65 ]] || fail 'an option twice: expected exit code 65'
notes 'broken.args:3: not valid TOML'

cat >"$work/args.json" <<'JSON'
{"output_dir": "run", "per_device_train_batch_size": 16, "gradient_accumulation_steps": 2,
 "max_steps": 500, "learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_ratio": 0.03,
 "bf16": true, "tf32": true, "gradient_checkpointing": true, "fsdp": "full_shard auto_wrap",
 "save_steps": 100, "save_total_limit": 3, "logging_steps": 5, "report_to": ["tensorboard"]}
JSON
import "$work/args.json" --ranks 4 || fail "transformers: exit code $?"
for option in '"global_batch": 128' '"steps": 500' '"warmup_steps": 15' '"schedule": "cosine"' \
    '"min_lr": 0.0' '"beta2": 0.999' '"weight_decay": 0.0' '"zero": 3' '"recompute": "full"' \
    '"seed": 42' '"save_every": 100' '"keep": 3' '"tensorboard": true' '"out": "run"' \
    '"dtype": "bf16"'; do
  has "$option"
done
# A key that affects results is translated, or an error names it. Numbers may be written as strings.
with() {  # arguments: MEMBERS: of transformers' arguments
  echo "{\"per_device_train_batch_size\": \"2\", \"max_steps\": \"100\", $1}" >"$work/with.json"
  import "$work/with.json" --ranks 1
}
while IFS='|' read -r members wanted; do
  with "$members" || fail "$members: exit code $?"
  has "$wanted"
done <<'CASES'
"optim": "sgd"|"momentum": 0
"optim": "lion_32bit"|"beta2": 0.999
"optim": "lion_32bit", "adam_beta1": 0.95|"beta1": 0.95
"optim": "adamw_torch", "learning_rate": "1e-4"|"lr": 0.0001
"learning_rate": null|"lr": 5e-05
"max_grad_norm": "0.5"|"clip": 0.5
"max_grad_norm": null|"clip": 0.0
"average_tokens_across_devices": false|"steps": 100
"fsdp": ["full_shard"], "fsdp_config": {"use_orig_params": true, "version": 2}|"zero": 3
"adafactor": true|"optimizer": "adafactor"
"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": "0.5"}|"schedule": "cosine"
"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": "0.1"}|"min_lr": 5e-06
"lr_scheduler_type": "constant", "warmup_steps": 5|"warmup_steps": 0
"lr_scheduler_type": "inverse_sqrt", "warmup_steps": 5, "lr_scheduler_kwargs": {"timescale": 5}|"schedule": "inverse-sqrt"
"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 20, "decay_type": "1-sqrt"}|"schedule": "wsd-1-sqrt"
"activation_checkpointing": true|"recompute": "full"
"eval_strategy": "steps", "logging_steps": 7|"eval_every": 7
"eval_strategy": "steps", "eval_steps": 1e1|"eval_every": 10
"save_steps": "25.0", "save_total_limit": "3.0"|"keep": 3
"output_dir": "2024"|"out": "2024"
"tp_size": 0, "use_ipex": false|"dtype": "fp32"
CASES
while IFS='|' read -r members key; do
  with "$members"
  [[ $? == 64 ]] || fail "$members: expected exit code 64"
  notes "$key"
  grep -q "left out; it changes no result" "$work/output" && grep -q "^$key: left out" "$work/output" &&
    fail "$key is called harmless"
done <<'CASES'
"load_best_model_at_end": true|load_best_model_at_end
"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": 1.5}|num_cycles
"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 0, "num_cycles": 2}|num_cycles
"lr_scheduler_type": "inverse_sqrt", "warmup_steps": 5, "lr_scheduler_kwargs": {"timescale": 50}|timescale
"lr_scheduler_type": "inverse_sqrt"|lr_scheduler_type
"lr_scheduler_type": "linear", "lr_scheduler_kwargs": {"power": 2}|power
"optim": "sgd", "optim_args": "momentum=0.9"|optim_args
"train_sampling_strategy": "sequential"|train_sampling_strategy
"auto_find_batch_size": true|auto_find_batch_size
"accelerator_config": {"split_batches": true}|split_batches
"parallelism_config": {"tp_size": 2}|tp_size
"deepspeed": {"zero_optimization": {"stage": 3}}|zero_optimization.stage
"tp_size": 2|tp_size
"optim": "lion_8bit"|optim "lion_8bit": expected one of adafactor, adamw_8bit
"half_precision_backend": "apex"|half_precision_backend
"fsdp": "full_shard", "fsdp_config": {"mixed_precision_policy": "bf16"}|mixed_precision_policy
"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"decay_type": "linear"}|give num_decay_steps
"nobody_knows_this": 1|nobody_knows_this
CASES
echo '{"per_device_train_batch_size": 2, "average_tokens_across_devices": false}' >"$work/with.json"
import "$work/with.json" --ranks 2
[[ $? == 64 ]] || fail 'what the ranks of a run decide: expected exit code 64'
notes 'average_tokens_across_devices false: '
echo '{"per_device_train_batch_size": 2}' >"$work/with.json"
import "$work/with.json" || fail "no number of steps: exit code $?"
has '"epochs": 3.0'
echo '{"per_device_train_batch_size": 2, "num_train_epochs": 1.5}' >"$work/with.json"
import "$work/with.json" || fail "a number of epochs: exit code $?"
has '"epochs": 1.5'
with '"learning_rate": "fast"'
[[ $? == 65 ]] || fail 'a text that is no number: expected exit code 65'
notes 'learning_rate: expected a number, found "fast"'
with '"fp16": 1'
[[ $? == 65 ]] || fail 'a number for a flag: expected exit code 65'
# Imports all arguments that transformers 4.57 and 5 write by default, and a number of steps.
import "$(dirname "${BASH_SOURCE[0]}")/../fixtures/training_args/v4.57.json" --ranks 1 || fail "4.57's defaults: exit code $?"
import "$(dirname "${BASH_SOURCE[0]}")/../fixtures/training_args/v5.json" --ranks 1 || fail "5's defaults: exit code $?"
# The printed command contains a model: the one in the file, or a placeholder.
with '"bf16": true'
"$BIN_DIR/shale" config import "$work/with.json" --ranks 1 --out "$work/o" >"$work/output" 2>/dev/null
notes '--model MODEL'
"$BIN_DIR/shale" config import "$work/titan.toml" --out "$work/o" >"$work/output" 2>/dev/null
notes '--model llama3.1-8b'

# DeepSpeed's optimizer parameters; numbers may be strings.
while IFS='|' read -r params wanted; do
  echo "{\"train_batch_size\": 8, \"optimizer\": {$params}}" >"$work/with.json"
  import "$work/with.json" || fail "$params: exit code $?"
  has "$wanted"
done <<'CASES'
"type": "SGD", "params": {"lr": 0.1}|"momentum": 0
"type": "Lion", "params": {"betas": ["0.95", "0.98"]}|"beta2": 0.98
"type": "AdamW", "params": {"lr": "3e-4"}|"lr": 0.0003
"type": "AdamW", "params": {"torch_adam": true}|"weight_decay": 0.01
"type": "AdamW", "params": {"lr": "3e-4"}|"schedule": "constant"
CASES
while IFS='|' read -r members key; do
  echo "{\"train_batch_size\": 8, $members}" >"$work/with.json"
  import "$work/with.json"
  [[ $? == 64 ]] || fail "$members: expected exit code 64"
  notes "$key"
done <<'CASES'
"bf16": {"enabled": true, "bf16_optimizer_states": true}|bf16_optimizer_states
"zero_optimization": {"stage": 2, "zeropp_loco_param": {"err_beta": 0.8}}|zeropp_loco_param.err_beta
"optimizer": {"type": "SGD", "params": {"nesterov": true}}|nesterov
"optimizer": {"type": "Muon"}|optimizer.type "Muon": Shale's Muon needs the lr of AdamW
"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear"}}|warmup_max_lr (not given): --lr would be 0.001
"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear", "total_num_steps": 9}}|scheduler.type "WarmupCosineLR": the final lr is a share
CASES
printf '[optimizer]\nearly_step_in_backward = true\n[model]\nconverters = ["float8"]\n[training]\nsteps = 3\n[checkpoint]\nenable = true\ninitial_load_path = "x"\n' >"$work/with.toml"
import "$work/with.toml"
[[ $? == 64 ]] || fail 'converters: expected exit code 64'
notes 'model.converters'
notes 'optimizer.early_step_in_backward'
notes 'checkpoint.initial_load_path'

echo '{"a": 1}' >"$work/unknown.json"
import "$work/unknown.json"
[[ $? == 64 ]] || fail 'nobody'"'"'s options: expected exit code 64'
notes 'use --from'

# Control characters in a key must neither start a new line of output nor send escape sequences to a
# terminal.
printf '{"train_batch_size": 4, "a\\nerror: b\\u001b[31m": 1}' >"$work/forged.json"
import "$work/forged.json" --from deepspeed
[[ $? == 64 ]] || fail 'a key of two lines: expected exit code 64'
notes 'a\x0aerror: b\x1b[31m'
[[ $(grep -c '^error: ' "$work/output") == 1 ]] || fail 'a key of two lines: more than one error'

finish
