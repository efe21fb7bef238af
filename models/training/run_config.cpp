#include "shale/models/training/run_config.h"

#include <array>

#include "shale/base/gpu_model.h"
#include "shale/comm/world.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/slow_links.h"

namespace shale::models {
namespace {

// Limit of batch sizes, far above any real one, so that their products cannot overflow.
constexpr int64_t kMaxBatch = 1 << 30;  // samples

std::vector<std::pair<std::string, std::optional<comm::ScheduleKind>>> schedule_choices() {
  using enum comm::ScheduleKind;
  std::vector<std::pair<std::string, std::optional<comm::ScheduleKind>>> choices = {
      {"auto", std::nullopt}};
  for (const comm::ScheduleKind kind : {kGpipe, k1F1B, kInterleaved, kZbH1, kZbV}) {
    choices.emplace_back(comm::schedule_name(kind), kind);
  }
  return choices;
}

void describe_batch(ConfigSpec& spec, RunConfig& c, const RunWords& words) {
  spec.section("Batch");
  spec.add("steps", c.steps,
           "optimizer steps; with --epochs, whichever limit is reached first ends the run",
           {.min = 0})
      .basic("optimizer steps");
  spec.add("epochs", c.epochs,
           "passes over the training data, such as 3 or 0.5, in place of --steps or with it",
           {.min = 0, .max = 1e9, .exclude_min = true, .help = {.default_text = "by --steps"}})
      .may_change()
      .basic("passes over the data, in place of --steps");
  spec.add("micro-batch", c.micro_batch, words.sample + "s per rank in one forward pass",
           {.min = 1, .max = kMaxBatch})
      .may_change()
      .basic(cat(words.sample, "s per rank in one forward pass"));
  spec.add("global-batch", c.global_batch,
           words.sample +
               "s per optimizer step, over all ranks; above micro-batch x ranks, gradients are "
               "accumulated",
           {.min = 1, .max = kMaxBatch, .help = {.default_text = "micro-batch x ranks"}})
      .may_change()
      .basic(cat(words.sample, "s per optimizer step, all ranks"));
  spec.add("batch-ramp", c.batch_ramp,
           "global batch sizes of the first steps, before --global-batch applies; does not change "
           "the learning rate",
           {.help = {.metavar = "BATCH:STEPS,...", .default_text = "none"}})
      .may_change();
}

void describe_optimizer(ConfigSpec& spec, RunConfig& c, const RunWords& words) {
  spec.section("Optimizer");
  std::vector<std::pair<std::string, OptimizerKind>> kinds;
  std::string help = "optimizer, with the bytes of its states per parameter: ";
  for (const OptimizerRow& row : optimizers()) {
    help += cat(kinds.empty() ? "" : ", ", row.name, " (", row.help, ")");
    kinds.emplace_back(row.name, row.kind);
  }
  spec.add_choice("optimizer", c.optimizer, kinds, help);
  spec.add("lr", c.lr, "peak learning rate", {.min = 0, .help = {.default_text = words.default_lr}})
      .basic("peak learning rate");
  spec.add("min-lr", c.min_lr, "final learning rate",
           {.min = 0, .help = {.default_text = "lr / 10"}});
  spec.add("warmup-steps", c.warmup_steps, "steps of linear warm-up before --schedule",
           {.min = 0, .help = {.default_text = "5% of steps"}});
  spec.add_choice(
      "schedule", c.schedule,
      {{"cosine", optim::Decay::kCosine},
       {"linear", optim::Decay::kLinear},
       {"linear-to-zero", optim::Decay::kLinearToZero},
       {"wsd", optim::Decay::kWsd},
       {"wsd-1-sqrt", optim::Decay::kWsdOneMinusSqrt},
       {"inverse-sqrt", optim::Decay::kInverseSqrt},
       {"constant", optim::Decay::kConstant}},
      "learning-rate decay after warm-up; wsd: constant, then linear over --decay-steps; "
      "wsd-1-sqrt: as wsd, but by 1 - sqrt(share of the decay done); inverse-sqrt: lr * "
      "sqrt(warmup-steps "
      "/ step)");
  spec.add("decay-steps", c.decay_steps,
           "steps of the decay at the end of --schedule wsd and wsd-1-sqrt",
           {.min = 0, .help = {.default_text = "20% of steps"}});
  const RealLimits rate{
      .min = 0, .max = 1, .exclude_max = true, .help = {.default_text = "the optimizer's"}};
  spec.add("beta1", c.beta1, "decay of the first moment: 0.9 for adamw and lion", rate);
  spec.add("beta2", c.beta2,
           "decay of the second moment: 0.95 for adamw; lion: decay of its momentum, 0.99", rate);
  spec.add("eps", c.eps,
           "denominator epsilon: 1e-8 for adamw, 1e-6 for lamb; adafactor: added to squared "
           "gradients, 1e-30",
           {.min = 0, .help = {.default_text = "the optimizer's"}});
  spec.add(
      "weight-decay", c.weight_decay,
      "decoupled weight decay, not for norms and biases; sgd: L2 penalty as in torch.optim.SGD",
      {.min = 0});
  spec.add("param-groups", c.param_groups,
           "lr factor and weight decay by parameter name: \"PATTERN:lr=FACTOR,decay=DECAY;...\"; * "
           "matches any characters, the last matching group wins");
  spec.add("momentum", c.momentum, "momentum: 0.9 for sgd, 0.95 for muon", rate);
  spec.add("clip", c.clip,
           "maximum global gradient norm; 0: no clipping; 1bit-adam: after --freeze-step each "
           "replica clips by its own norm",
           {.min = 0});
  spec.add("skip-outliers", c.skip_outliers,
           "skip a step whose gradient norm is this many standard deviations above the mean of the "
           "last 128 steps (6 is usual); 0: off",
           {.min = 0});
  spec.add(
          "skip-non-finite", c.skip_non_finite,
          "skip up to this many steps in a row whose gradient is not finite; 0: the first ends the "
          "run",
          {.min = 0})
      .may_change();
  spec.add("skip-samples", c.skip_samples,
           "samples to skip, counted from 1 in training order; to get past bad data, resume from a "
           "checkpoint before it",
           {.help = {.metavar = "A-B", .default_text = "none"}})
      .may_change();
  spec.add("ema", c.ema,
           "decay of a moving average of the weights, such as 0.9999; the average is validated "
           "too, and takes 4 bytes per parameter; 0: off",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("seed", c.seed, "seed of initial weights, data order, dropout and samples", {.min = 0});
}

void describe_parallelism(ConfigSpec& spec, RunConfig& c) {
  spec.section("Data parallelism");
  spec.add("zero", c.zero,
           "ZeRO stage; 0: DDP; 1 shards optimizer states, 2 also gradients, 3 also parameters; "
           "losses are bit-identical in all stages (with gradient accumulation, 2 and 3 need "
           "--reproducible for this)",
           {.min = 0, .max = 3})
      .may_change()
      .basic("ZeRO stage; 1 shards states, 2 gradients, 3 parameters");
  spec.add_choice("grad-dtype", c.grad_dtype, {{"fp32", DType::kF32}, {"bf16", DType::kBF16}},
                  "gradient dtype, for storage and reduction; bf16: each contribution is computed "
                  "in fp32, then rounded")
      .may_change();
  spec.add("reproducible", c.reproducible,
           "bit-identical losses for any number of ranks and accumulation steps (powers of two), "
           "at the same --micro-batch")
      .may_change();
  spec.add("no-overlap", c.no_overlap, "do not overlap communication with computation")
      .may_change();
  spec.add("shard-ranks", c.shard_ranks,
           "ranks per sharding group, such as those of a node; the groups are replicas (HSDP)",
           {.min = 1, .help = {.default_text = "all"}})
      .may_change();
  spec.add("reshard-ranks", c.reshard_ranks,
           "with --zero 3: between forward and backward, shard parameters over this many ranks, "
           "such as those of a node",
           {.min = 1, .help = {.default_text = "off"}})
      .may_change();
}

void describe_pipelines(ConfigSpec& spec, RunConfig& c) {
  spec.section("Pipelines");
  spec.add("pipeline", c.pipeline,
           "pipeline-parallel degree: number of ranks in a pipeline; other ranks are data-parallel",
           {.min = 1})
      .may_change();
  spec.add_choice("pipeline-schedule", c.pipeline_schedule, schedule_choices(),
                  "order of forwards and backwards; interleaved, zbv: several stages per rank; "
                  "zb-h1, zbv: compute weight gradients in bubbles; auto: interleaved with "
                  "--pipeline-chunks, else 1f1b; losses are bit-identical")
      .may_change();
  spec.add("pipeline-chunks", c.pipeline_chunks, "pipeline stages per rank",
           {.min = 1, .help = {.default_text = "zbv: 2, else 1"}})
      .may_change();
}

void describe_context(ConfigSpec& spec, RunConfig& c) {
  spec.section("Context parallelism");
  spec.add("context", c.context,
           "context-parallel degree: ranks that share each sequence; other ranks are data-parallel",
           {.min = 1, .max = 1 << 16})
      .may_change();
  using comm::ContextKind;
  spec.add_choice("context-kind", c.context_kind,
                  {{"gather", ContextKind::kGather},
                   {"ring", ContextKind::kRing},
                   {"ulysses", ContextKind::kUlysses},
                   {"ulysses+ring", ContextKind::kUlyssesRing}},
                  "attention over the tokens of other ranks; gather: all keys and values at once; "
                  "ring: one rank after another; ulysses: all tokens of some heads (--context must "
                  "divide the number of heads); ulysses+ring: a ring of ulysses groups")
      .may_change();
}

void describe_experts(ConfigSpec& spec, RunConfig& c) {
  spec.section("Expert parallelism");
  spec.add("expert", c.expert,
           "expert-parallel degree: ranks of a pipeline stage that share the experts of MoE layers",
           {.min = 1, .max = 1 << 16})
      .may_change();
}

void describe_tensor(ConfigSpec& spec, RunConfig& c) {
  spec.section("Tensor parallelism");
  spec.add("tensor", c.tensor,
           "tensor- and sequence-parallel degree: ranks that share each layer; other ranks are "
           "data-parallel",
           {.min = 1, .max = 1 << 16})
      .may_change();
  spec.add(
          "ranks-per-process", c.ranks_per_process,
          "number of --tensor and --context ranks that each process runs, a power of two; does not "
          "change losses",
          {.min = 1, .help = {.default_text = "1, or more if there are too few processes"}})
      .may_change();
}

void describe_offload(ConfigSpec& spec, RunConfig& c) {
  spec.section("Offload to host memory");
  spec.add("offload", c.offload_to,
           "state to keep in host memory; optimizer: masters and optimizer states, stepped by the "
           "CPU during the next forward; params: also parameters, with --zero 3; nvme:DIR: all of "
           "these, in a folder on a disk",
           {.help = {.metavar = "none|optimizer|params|nvme:DIR"}})
      .may_change();
  spec.add("offload-ratio", c.offload_ratio,
           "share of the parameters to offload, in whole blocks, starting with the last block",
           {.min = 0, .max = 1, .exclude_min = true})
      .may_change();
  spec.add("offload-activations", c.offload_activations,
           "keep activations in host memory between forward and backward")
      .may_change();
}

void describe_device(ConfigSpec& spec, RunConfig& c) {
  spec.section("Device and ranks");
  spec.add_choice(
          "device", c.device, device_choices(),
          "cpu, cuda, or emu: GPU kernels emulated on the CPU; auto: a GPU per rank if there are "
          "any, else cpu; emu emulates an A100 (8.0), emu:90 an H100, emu:100 a B200")
      .may_change()
      .basic("cpu, cuda, or emu: a GPU emulated on the CPU");
  spec.add("threads", c.threads, "CPU threads per rank",
           {.min = 1, .max = 4096, .help = {.default_text = "the rank's share of the CPUs"}})
      .may_change();
  spec.add("workers", c.workers, "threads per rank that prepare batches", {.min = 1, .max = 256})
      .may_change();
  spec.add_choice("dtype", c.dtype,
                  precision_choices({Precision::kAuto, Precision::kF32, Precision::kTf32,
                                     Precision::kBF16, Precision::kF16, Precision::kFp8}),
                  "dtype of parameters and activations; auto: fp32 on the CPU, bf16 on GPUs; tf32: "
                  "fp32 with tf32 GEMMs; bf16, fp16: with fp32 masters; fp8: bf16 with fp8 GEMMs "
                  "in blocks, on the CPU and GPUs of compute capability 9.0")
      .may_change()
      .basic("dtype of parameters and activations");
  spec.add("fp8-kept-blocks", c.fp8_kept_blocks,
           "number of blocks at each end of the model that stay in bf16 with --dtype fp8",
           {.min = 0, .max = 1 << 20})
      .may_change();
  spec.add_choice("fp8-scaling", c.fp8_scaling,
                  {{"block", Fp8Scaling::kBlock}, {"tensor", Fp8Scaling::kTensor}},
                  "granularity of fp8 scales; block: 128 values (weights: 128 x 128), all E4M3; "
                  "tensor: a whole tensor, gradients in E5M2")
      .may_change();
  spec.add("loss-scale", c.loss_scale,
           "initial loss scale; a step whose gradients overflow is skipped and lowers it; 0: none",
           {.min = 0, .help = {.default_text = "65536 with fp16, else 0"}})
      .may_change();
  spec.add_choice("recompute", c.recompute,
                  {{"none", Recompute::kNone},
                   {"selective", Recompute::kSelective},
                   {"full", Recompute::kFull}},
                  "activation checkpointing; selective: recompute what is cheap; full: each block "
                  "from its input")
      .may_change();
  spec.add_size("device-memory", c.device_memory, "limit on the device memory of a rank; 0: none",
                {.min = 0})
      .may_change();
  spec.add("deterministic", c.deterministic,
           "use only kernels that give the same bits on every run")
      .may_change();
  spec.add("cuda-graph", c.cuda_graph,
           "capture forward and backward as CUDA graphs in step 2, then replay them; not with "
           "--offload or over MPI")
      .may_change();
  spec.add_choice("comm", c.transport,
                  {{"auto", comm::Transport::kAuto},
                   {"mpi", comm::Transport::kMpi},
                   {"nccl", comm::Transport::kNccl}},
                  "backend of collectives on GPU tensors; mpi: through host memory; auto: nccl")
      .may_change();
  spec.add("numa-ranks", c.numa_ranks,
           "ranks per NUMA node, a power of two: tensors are reduced within NUMA nodes first; 0: "
           "from the placement of GPUs; 1: off",
           {.min = 0})
      .may_change();
  spec.add("timeout", c.timeout_s,
           "maximum wait for a collective; for a heartbeat at most 90 s; before the first step is "
           "done, a value below 600 s is raised to 10 times, at most to 600 s; 0: no limit",
           {.min = 0, .help = {.metavar = "SECONDS", .unit = "s"}})
      .may_change();
  spec.add("check-replicas", c.check_replicas,
           "steps between bitwise comparisons of replicated parameters, to find faulty hardware; "
           "0: off",
           {.min = 0})
      .may_change();
}

void describe_output(ConfigSpec& spec, RunConfig& c) {
  spec.section("Output");
  spec.add("out", c.out, "folder of the run: metrics.jsonl, status.json and checkpoints/",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change()
      .basic("folder of the run");
  spec.add("eval-every", c.eval_every,
           "steps between validations, with one more at the end; 0: no validation", {.min = 0})
      .may_change()
      .basic("steps between validations; 0: none");
  spec.add("patience", c.patience,
           "end the run after this many validations in a row without a lower loss; 0: never",
           {.min = 0})
      .may_change();
  spec.add("report-every", c.report_every,
           "steps between rows of metrics.jsonl on memory, communication and devices of all ranks; "
           "0: none",
           {.min = 0})
      .may_change();
  spec.add("tensorboard", c.tensorboard, "write TensorBoard event files to OUT/tensorboard")
      .may_change();
  spec.add("prometheus", c.prometheus,
           "write the newest metrics to a FILE named *.prom (for node_exporter), or serve them "
           "over HTTP at /metrics; IPV4 is 127.0.0.1 by default",
           {.help = {.metavar = "FILE|[IPV4:]PORT", .default_text = "none"}})
      .may_change();
  spec.add("trace", c.trace,
           "record a timeline of all ranks: NAME.json (Chrome), NAME.pftrace (Perfetto); or the "
           "device memory of rank 0 in the first 3 steps: NAME.svg, NAME.pickle (PyTorch)",
           {.is_path = true, .help = {.metavar = "FILE", .default_text = "none"}})
      .may_change();
  spec.add("trace-steps", c.trace_steps, "steps of the timeline of --trace; the first step is 1",
           {.help = {.metavar = "A-B", .default_text = "3-5"}})
      .may_change();
  spec.add("quiet", c.quiet, "print only warnings and errors").may_change();
}

void describe_checkpoints(ConfigSpec& spec, RunConfig& c) {
  spec.section("Checkpoints");
  spec.add("save-every", c.save_every,
           "steps between checkpoints, written in the background; 0: only one, at the end",
           {.min = 0})
      .may_change()
      .basic("steps between checkpoints; 0: one at the end");
  spec.add("save-minutes", c.save_minutes,
           "write a checkpoint if the last one is this many minutes old; auto: computed from the "
           "save time and the failure rate; 0: off",
           {.min = 0, .may_be_auto = true})
      .may_change();
  spec.add("keep", c.keep, "number of newest checkpoints to keep; 0: all", {.min = 0}).may_change();
  spec.add("keep-every", c.keep_every,
           "also keep the checkpoints at every multiple of this many steps; 0: none", {.min = 0})
      .may_change();
  spec.add("keep-best", c.keep_best,
           "save when a validation loss is the lowest so far, and keep that checkpoint too")
      .may_change();
  spec.add("no-save", c.no_save, "write no checkpoints").may_change();
  spec.add("after-save", c.after_save,
           "shell command to run after each save while training continues, such as an upload of "
           "$SHALE_CHECKPOINT; runs once per host, or once if all hosts share --out",
           {.help = {.metavar = "COMMAND", .default_text = "none"}})
      .may_change();
  spec.add("before-resume", c.before_resume,
           "shell command to run before --resume, such as a download to $SHALE_OUT/checkpoints; "
           "runs once per host, or once if all hosts share --out; required if they do not share it",
           {.help = {.metavar = "COMMAND", .default_text = "none"}})
      .may_change();
  spec.add("resume", c.resume,
           "what to continue; auto: the newest valid checkpoint in --out, if any; DIR: that "
           "checkpoint or run; none: start a new run; layout, precision, device and batch may "
           "change",
           {.is_path = true, .help = {.metavar = "auto|none|DIR"}})
      .may_change()
      .basic("continue from a checkpoint; auto: the newest in --out");
}

// Declares options that have no effect without another option.
void describe_needs(ConfigSpec& spec) {
  spec.needs("decay-steps", "--schedule wsd or --schedule wsd-1-sqrt");
  spec.needs("freeze-step", "--optimizer 1bit-adam");
  spec.needs("outer-start outer-lr outer-momentum outer-streaming", "--outer-every");
  spec.needs("ranks-per-process", "--tensor or --context");
  spec.needs("context-kind", "--context or --layouts");
  spec.needs("fp8-kept-blocks fp8-scaling", "--dtype fp8");
  spec.needs("trace-steps", "--trace");
  spec.needs("patience keep-best", "--eval-every");
  spec.needs("before-resume", "--resume");
}

}  // namespace

void describe(ConfigSpec& spec, RunConfig& config, const RunWords& words) {
  describe_batch(spec, config, words);
  describe_optimizer(spec, config, words);
  describe_parallelism(spec, config);
  describe_slow_links(spec, config);
  describe_tensor(spec, config);
  describe_context(spec, config);
  describe_experts(spec, config);
  describe_pipelines(spec, config);
  describe_offload(spec, config);
  describe_device(spec, config);
  describe_output(spec, config);
  describe_checkpoints(spec, config);
  describe_needs(spec);
}

Device device_of(const RunConfig& config, comm::World& world) {
  if (config.device == "cuda" || config.device == "auto") {
    return world.device(
        {.gpu = config.device == "cuda", .may_share = config.transport == comm::Transport::kMpi});
  }
  if (config.device == "cpu") return {};
  return emulated_device(config.device == "emu" ? "emu:80" : config.device);
}

std::string_view precision_name(Precision precision) {
  constexpr std::array<std::string_view, 6> kNames = {"auto", "fp32", "tf32",
                                                      "bf16", "fp16", "fp8"};
  return kNames[static_cast<size_t>(precision)];
}

std::vector<std::pair<std::string, Precision>> precision_choices(
    std::initializer_list<Precision> allowed) {
  std::vector<std::pair<std::string, Precision>> choices;
  for (const Precision one : allowed) choices.emplace_back(precision_name(one), one);
  return choices;
}

DType dtype_of_flag(Precision precision, const Device& device) {
  using enum Precision;
  if (precision == kF16) return DType::kF16;
  const bool is_f32 = precision == kF32 || precision == kTf32 ||
                      (precision == kAuto && device.type != DeviceType::kCuda);
  if (is_f32) return DType::kF32;
  check_dtype_of(device, DType::kBF16, cat("--dtype ", precision_name(precision)));
  return DType::kBF16;
}

}  // namespace shale::models
