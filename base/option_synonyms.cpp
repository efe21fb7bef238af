#include <array>

#include "shale/base/config_internal.h"
#include "shale/base/error.h"

namespace shale {
namespace {

// Names that other trainers have for an option, or for a value of one.
struct OptionSynonym {
  std::string_view names;  // names separated by blanks; "device=gpu" is a value of --device
  std::string_view flag;   // flag of this program; a program without it ignores the row
  std::string_view use;    // advice for messages; empty: "use --FLAG"
};

constexpr auto kRows = std::to_array<OptionSynonym>({
    // Options for batches and steps.
    {"batch batch-size train-batch train-batch-size bs mbs gbs", "global-batch",
     "use --micro-batch (samples per rank and forward) or --global-batch (samples per step)"},
    {"micro-batch-size micro-bs per-device-train-batch-size local-batch-size device-batch-size "
     "train-micro-batch-size-per-gpu",
     "micro-batch", ""},
    {"global-batch-size total-batch-size", "global-batch", ""},
    {"gradient-accumulation-steps gradient-accumulation grad-accum grad-accum-steps ga "
     "accumulate-grad-batches accumulation-steps",
     "global-batch", "use --global-batch = micro-batch x ranks x accumulation steps"},
    {"per-device-eval-batch-size eval-batch-size", "eval-samples",
     "use --micro-batch, which also applies to validation, and --eval-samples"},
    {"epoch num-epochs num-train-epochs max-epochs n-epochs", "epochs", ""},
    {"early-stopping early-stopping-patience early-stop", "patience", ""},
    {"max-steps train-steps training-steps num-steps train-iters max-iters iters iterations "
     "num-iterations max-train-steps",
     "steps", ""},
    // Options of the optimizer.
    {"learning-rate max-lr peak-lr", "lr", ""},
    {"min-learning-rate lr-min", "min-lr", ""},
    {"warmup warmup-iters num-warmup-steps lr-warmup-steps lr-warmup-iters", "warmup-steps", ""},
    {"warmup-ratio warmup-fraction lr-warmup-fraction", "warmup-steps",
     "use --warmup-steps = ratio x --steps"},
    {"lr-scheduler lr-scheduler-type scheduler lr-schedule lr-decay-style", "schedule", ""},
    {"lr-decay-iters lr-decay-steps wsd-decay-steps", "decay-steps", ""},
    {"optim optimizer-type", "optimizer", ""},
    {"optimizer=adam optimizer=adamw_torch optimizer=adamw_torch_fused optimizer=AdamW",
     "optimizer", "use --optimizer adamw"},
    {"optimizer=adamw_8bit optimizer=adam8bit optimizer=adamw_bnb_8bit optimizer=paged_adamw_8bit",
     "optimizer", "use --optimizer adamw-8bit"},
    {"adam-beta1 b1", "beta1", ""},
    {"adam-beta2 b2", "beta2", ""},
    {"adam-eps adam-epsilon epsilon", "eps", ""},
    {"wd decay", "weight-decay", ""},
    {"max-grad-norm grad-clip clip-grad clip-grad-norm gradient-clipping gradient-clip-val", "clip",
     ""},
    {"random-seed data-seed", "seed", ""},
    // Options for ranks and parallelism.
    {"gpu cuda use-gpu use-cuda no-cpu", "device", "use --device cuda"},
    {"gpus num-gpus n-gpus ngpus ngpu n-gpu nproc nproc-per-node num-processes world-size", "ranks",
     ""},
    {"gpus num-gpus n-gpus ngpus ngpu n-gpu nproc nproc-per-node num-processes world-size ranks "
     "num-nodes nnodes",
     "zero", "use shale train lm --ranks N or --gpus all, or mpirun -np N before the program"},
    {"use-cpu no-cuda cpu", "device", "use --device cpu"},
    {"device=gpu device=GPU device=cuda:0 device=cuda:1 device=cuda:2 device=cuda:3 device=cuda:4 "
     "device=cuda:5 device=cuda:6 device=cuda:7 device=nvidia",
     "device", "use --device cuda; CUDA_VISIBLE_DEVICES chooses among several GPUs"},
    {"device=mps device=rocm device=hip device=xpu device=tpu", "device",
     "use --device cpu: Shale supports only NVIDIA GPUs"},
    {"tp tp-size tensor-parallel tensor-parallel-size tensor-parallel-degree "
     "tensor-model-parallel-size",
     "tensor", ""},
    {"pp pp-size pipeline-parallel pipeline-parallel-size pipeline-parallel-degree "
     "pipeline-model-parallel-size",
     "pipeline", ""},
    {"cp cp-size context-parallel context-parallel-size context-parallel-degree", "context", ""},
    {"sp sequence-parallel sequence-parallel-size", "tensor",
     "leave it out: --tensor includes sequence parallelism"},
    {"ep ep-size expert-parallel expert-parallel-size expert-parallel-degree "
     "expert-model-parallel-size",
     "expert", ""},
    {"dp dp-size data-parallel data-parallel-size data-parallel-shard-degree "
     "data-parallel-replicate-degree",
     "zero", "leave it out: it is the number of ranks / (--tensor x --context x --pipeline)"},
    {"ddp", "zero", "use --zero 0, the default"},
    {"fsdp fsdp2 fully-shard full-shard", "zero", "use --zero 3"},
    {"zero-stage zero-optimization", "zero", ""},
    {"hsdp", "shard-ranks", "use --zero 3 and --shard-ranks"},
    {"deepspeed accelerate-config", "zero", "use --zero; shale config import converts such files"},
    {"use-distributed-optimizer distributed-optimizer", "zero", "use --zero 1"},
    {"cpu-offload offload-optimizer offload-params fsdp-offload-params", "offload",
     "use --offload optimizer or params"},
    {"local-rank rank node-rank master-addr master-port rdzv-endpoint", "zero",
     "leave it out: ranks come from shale train, mpirun or srun"},
    {"nccl backend distributed-backend ddp-backend", "comm", ""},
    // Options for precision and memory.
    {"bf16 bfloat16", "dtype", "use --dtype bf16"},
    {"fp16 half float16", "dtype", "use --dtype fp16"},
    {"fp8", "dtype", "use --dtype fp8"},
    {"fp32 float32", "dtype", "use --dtype fp32"},
    {"dtype=bfloat16 dtype=bf16-mixed dtype=torch.bfloat16 dtype=amp", "dtype", "use --dtype bf16"},
    {"dtype=float16 dtype=half dtype=fp16-mixed dtype=16", "dtype", "use --dtype fp16"},
    {"dtype=float32 dtype=float dtype=32", "dtype", "use --dtype fp32"},
    {"precision mixed-precision amp torch-dtype", "dtype", "use --dtype bf16, fp16 or fp8"},
    {"gradient-checkpointing activation-checkpointing activation-checkpoint recompute-activations "
     "recompute-granularity",
     "recompute", "use --recompute selective or full"},
    {"compile torch-compile flash-attn use-flash-attn flash-attention attn-implementation", "dtype",
     "leave it out: attention is always fused, and nothing is compiled at run time"},
    {"num-workers dataloader-num-workers", "workers", ""},
    // Options of the model.
    {"model-name-or-path model-name model-path base-model pretrained pretrained-model load "
     "finetune",
     "init", "use --init with a local folder or file; Shale does not download models"},
    {"max-seq-length max-seq-len max-length seq-length sequence-length sequence-len block-size "
     "context-length seqlen cutoff-len n-ctx",
     "seq-len", ""},
    {"num-layers n-layer n-layers num-hidden-layers depth", "layers", ""},
    {"hidden-size n-embd d-model embed-dim dim model-dim", "width", ""},
    {"intermediate-size ffn-hidden-size ffn-dim mlp-dim d-ff", "hidden", ""},
    {"num-heads n-head n-heads num-attention-heads", "heads", ""},
    {"num-kv-heads n-kv-heads num-key-value-heads num-query-groups", "kv-heads", ""},
    {"num-experts n-experts num-local-experts", "experts", ""},
    {"moe-top-k moe-router-topk num-experts-per-tok", "active-experts", ""},
    {"vocab-size", "vocab", ""},
    {"arch", "model", ""},
    {"lora lora-r use-peft r", "lora-rank", ""},
    {"target-modules lora-target lora-target-modules lora-modules", "lora-targets", ""},
    {"qlora load-in-4bit", "frozen-dtype", "use --frozen-dtype nf4"},
    {"load-in-8bit", "frozen-dtype", "use --frozen-dtype int8"},
    {"stage", "task", "use --task pretrain, sft or dpo, or --zero for a ZeRO stage"},
    {"beta", "dpo-beta", ""},
    // Options for data.
    {"dataset dataset-name dataset-path dataset-dir data-path data-dir train-data train-file file "
     "input text",
     "data", ""},
    {"val-data val-file validation-file eval-data valid-data", "val-fraction",
     "use --val-fraction, or --data with files that have val in their names"},
    {"validation-split val-size val-split", "val-fraction", ""},
    {"tokenizer-path tokenizer-name tokenizer-model", "tokenizer",
     "use --tokenizer with a local file"},
    {"text-column dataset-text-field text-key text-field json-keys", "data-field", ""},
    {"text-column dataset-text-field text-key text-field json-keys data-field", "field", ""},
    {"image-size img-size input-size resolution", "pixels", ""},
    {"num-classes", "data", "leave it out: there are as many classes as the data has"},
    // Options for output.
    {"output output-dir out-dir outdir save save-dir logdir log-dir logging-dir checkpoint-dir "
     "ckpt-dir run-name",
     "out", ""},
    {"eval-steps eval-interval eval-freq eval-iters val-interval val-check-interval "
     "evaluation-strategy eval-strategy",
     "eval-every", ""},
    {"save-steps save-interval save-freq checkpoint-every checkpoint-interval checkpoint-freq",
     "save-every", ""},
    {"save-total-limit keep-latest-k", "keep", ""},
    {"log-every log-interval log-freq logging-steps log-steps", "report-every",
     "leave it out: metrics.jsonl has every step"},
    {"load-checkpoint resume-from resume-from-checkpoint checkpoint ckpt continue", "resume", ""},
    {"wandb wandb-project report-to mlflow use-wandb", "tensorboard",
     "use --tensorboard, or python3 -m shale.track OUT with --mlflow or --wandb"},
    {"profile profiler", "trace", ""},
    {"verbose debug", "quiet", "leave it out: --quiet prints less, nothing prints more"},
    {"config-file", "data", "use --config"},
    // Options of `shale generate`.
    {"max-new-tokens max-tokens n-predict num-tokens n n-tokens max-length", "tokens", ""},
    {"system-prompt", "system", ""},
    {"temp", "temperature", ""},
    {"batch-size", "batch", ""},
    {"input-file file", "prompts", ""},
});

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; (at = words.find(word, at)) != words.npos; ++at) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
      return true;
  }
  return false;
}

}  // namespace

std::string synonym_advice(const ConfigState& state, std::string_view name) {
  if (name.empty() || name.find(' ') != name.npos) return {};
  for (const OptionSynonym& row : kRows) {
    const ConfigField* const field = state.find(row.flag);
    if (field == nullptr || field->positional || !has_word(row.names, name)) continue;
    return row.use.empty() ? cat("use --", row.flag) : std::string(row.use);
  }
  return {};
}

}  // namespace shale
