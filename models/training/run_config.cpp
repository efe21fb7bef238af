#include "shale/models/training/run_config.h"

#include <array>

#include "shale/base/gpu_model.h"
#include "shale/comm/world.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/slow_links.h"

namespace shale::models {
namespace {

// Far above what any machine holds, and no product of what a run multiplies overflows.
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
  spec.add("steps", c.steps, "optimizer steps", {.min = 0}).basic("optimizer steps");
  spec.add("micro-batch", c.micro_batch, words.sample + "s per rank and forward",
           {.min = 1, .max = kMaxBatch})
      .may_change()
      .basic(cat(words.sample, "s per rank and forward"));
  spec.add("global-batch", c.global_batch,
           words.sample +
               "s per optimizer step over all ranks; more than micro-batch x ranks accumulate",
           {.min = 1, .max = kMaxBatch, .help = {.default_text = "micro-batch x ranks"}})
      .may_change()
      .basic(cat(words.sample, "s per step over all ranks"));
  spec.add("batch-ramp", c.batch_ramp,
           "global batches of the first steps, \"BATCH:STEPS,BATCH:STEPS\", before that of "
           "--global-batch; learning rates go by steps all the same",
           {.help = {.metavar = "BATCH:STEPS,...", .default_text = "none"}})
      .may_change();
}

void describe_optimizer(ConfigSpec& spec, RunConfig& c, const RunWords& words) {
  spec.section("Optimizer");
  std::vector<std::pair<std::string, OptimizerKind>> kinds;
  std::string help = "and what its states take: ";
  for (const OptimizerRow& row : optimizers()) {
    help += cat(kinds.empty() ? "" : ", ", row.name, " (", row.help, ")");
    kinds.emplace_back(row.name, row.kind);
  }
  spec.add_choice("optimizer", c.optimizer, kinds, help);
  spec.add("lr", c.lr, "peak learning rate", {.min = 0, .help = {.default_text = words.default_lr}})
      .basic("peak learning rate");
  spec.add("min-lr", c.min_lr, "learning rate at the end",
           {.min = 0, .help = {.default_text = "lr / 10"}});
  spec.add("warmup-steps", c.warmup_steps, "steps of linear warm-up",
           {.min = 0, .help = {.default_text = "5% of steps"}});
  spec.add_choice("schedule", c.schedule,
                  {{"cosine", optim::Decay::kCosine},
                   {"linear", optim::Decay::kLinear},
                   {"linear-to-zero", optim::Decay::kLinearToZero},
                   {"wsd", optim::Decay::kWsd},
                   {"inverse-sqrt", optim::Decay::kInverseSqrt},
                   {"constant", optim::Decay::kConstant}},
                  "decay after the warm-up; wsd: constant, then down over --decay-steps; "
                  "inverse-sqrt: lr * sqrt(warmup-steps / step)");
  spec.add("decay-steps", c.decay_steps, "steps of the decay of --schedule wsd, the last ones",
           {.min = 0, .help = {.default_text = "20% of steps"}});
  spec.add_choice(
      "decay-shape", c.decay_shape,
      {{"linear", optim::DecayShape::kLinear}, {"1-sqrt", optim::DecayShape::kOneMinusSqrt}},
      "of the decay of --schedule wsd");
  const RealLimits rate{
      .min = 0, .max = 1, .exclude_max = true, .help = {.default_text = "the optimizer's"}};
  spec.add("beta1", c.beta1, "decay of the first moment, adamw 0.9, lion 0.9", rate);
  spec.add("beta2", c.beta2, "decay of the second moment, adamw 0.95; of lion's moment 0.99", rate);
  spec.add(
      "eps", c.eps,
      "added to the second moment's root, adamw 1e-8, lamb 1e-6; to squared gradients, adafactor "
      "1e-30",
      {.min = 0, .help = {.default_text = "the optimizer's"}});
  spec.add("weight-decay", c.weight_decay,
           "on matrices and embeddings, not on norms and biases; decoupled from the gradient, but "
           "for sgd, which adds decay times the weight to the gradient before momentum, as torch's",
           {.min = 0});
  spec.add("param-groups", c.param_groups,
           "parameters with a multiple of the rate and a decay of their own: \"PATTERN:lr=FACTOR,"
           "decay=DECAY;PATTERN:...\", where * in a pattern stands for any characters; of the "
           "groups that a name fits the last one counts");
  spec.add("momentum", c.momentum, "of sgd 0.9, of muon 0.95", rate);
  spec.add("clip", c.clip,
           "largest global gradient norm; 0: no clipping; of 1bit-adam, once replicas no longer "
           "add gradients, of each replica's own",
           {.min = 0});
  spec.add("skip-outliers", c.skip_outliers,
           "skip a step whose gradient norm is more than so many standard deviations above the "
           "mean of the last 128 steps, of which half must be known (6 is usual); 0: none",
           {.min = 0});
  spec.add("ema", c.ema,
           "decay of an exponential moving average of the weights, such as 0.9999, sharded and "
           "saved with the masters (4 bytes per parameter), and validated too; 0: none",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("seed", c.seed, "of initial values, order of data, dropout, samples", {.min = 0});
}

void describe_parallelism(ConfigSpec& spec, RunConfig& c) {
  spec.section("Data parallelism");
  spec.add("zero", c.zero,
           "what ranks share instead of each having it whole: 1: optimizer states, 2: gradients "
           "too, 3: parameters too; losses are the same to the bit, in stages 2 and 3 of several "
           "micro-batches a step with --reproducible",
           {.min = 0, .max = 3})
      .may_change()
      .basic("share 1: states, 2: gradients, 3: parameters");
  spec.add_choice("grad-dtype", c.grad_dtype, {{"fp32", DType::kF32}, {"bf16", DType::kBF16}},
                  "of gradients, in memory and when ranks add them; bf16: each contribution (a "
                  "micro-batch, a use of tied weights, a loss chunk) is computed and added in "
                  "f32, then rounded")
      .may_change();
  spec.add(
          "reproducible", c.reproducible,
          "losses do not depend on the number of ranks, nor on micro-batches being accumulated, at "
          "the same --micro-batch; both numbers are powers of two")
      .may_change();
  spec.add("no-overlap", c.no_overlap, "wait for each collective instead of computing meanwhile")
      .may_change();
  spec.add("shard-ranks", c.shard_ranks,
           "ranks that hold one copy of what is sharded between them, such as those of a node; "
           "other such groups hold copies",
           {.min = 1, .help = {.default_text = "all"}})
      .may_change();
  spec.add("reshard-ranks", c.reshard_ranks,
           "zero 3: between forward and backward keep what so many ranks need to gather "
           "parameters among themselves, such as those of a node",
           {.min = 1, .help = {.default_text = "off"}})
      .may_change();
}

void describe_pipelines(ConfigSpec& spec, RunConfig& c) {
  spec.section("Pipelines");
  spec.add("pipeline", c.pipeline,
           "ranks that have the model's layers in turn, a stage each, and pass micro-batches on; "
           "data parallelism gets the rest of the ranks",
           {.min = 1})
      .may_change();
  spec.add_choice("pipeline-schedule", c.pipeline_schedule, schedule_choices(),
                  "order of forwards and backwards; interleaved and zbv have several stages on a "
                  "rank, zb-h1 and zbv do the gradients of weights where ranks would wait; auto: "
                  "interleaved with --pipeline-chunks, else 1f1b; losses are the same to the bit")
      .may_change();
  spec.add("pipeline-chunks", c.pipeline_chunks, "stages on a rank",
           {.min = 1, .help = {.default_text = "zbv: 2, else 1"}})
      .may_change();
}

void describe_context(ConfigSpec& spec, RunConfig& c) {
  spec.section("Context parallelism");
  spec.add("context", c.context,
           "context-parallel degree: ranks that share each sequence, for sequences too long for "
           "one; data parallelism gets the rest",
           {.min = 1, .max = 1 << 16})
      .may_change();
  using comm::ContextKind;
  spec.add_choice(
          "context-kind", c.context_kind,
          {{"gather", ContextKind::kGather},
           {"ring", ContextKind::kRing},
           {"ulysses", ContextKind::kUlysses},
           {"ulysses+ring", ContextKind::kUlyssesRing}},
          "how attention sees other ranks' tokens. gather: all keys and values at a time; "
          "ring: those of one rank after another, with those of two in memory; ulysses: "
          "all tokens of some heads, which --context divides; ulysses+ring: ulysses in "
          "groups of as many ranks as divide --context and the heads of keys, and a ring of "
          "groups")
      .may_change();
}

void describe_experts(ConfigSpec& spec, RunConfig& c) {
  spec.section("Expert parallelism");
  spec.add("expert", c.expert,
           "ranks of a stage, whatever else they share, to which the experts of mixtures are dealt "
           "out: tokens go to the ranks of their experts",
           {.min = 1, .max = 1 << 16})
      .may_change();
}

void describe_tensor(ConfigSpec& spec, RunConfig& c) {
  spec.section("Tensor parallelism");
  spec.add("tensor", c.tensor,
           "tensor-parallel degree: ranks that share each layer, such as those of a node; data "
           "parallelism gets the rest",
           {.min = 1, .max = 1 << 16})
      .may_change();
  spec.add("ranks-per-process", c.ranks_per_process,
           "ranks of --tensor and --context that one process hosts, a power of two; losses are "
           "the same to the bit on any number of processes",
           {.min = 1, .help = {.default_text = "1, or more if there are too few processes"}})
      .may_change();
}

void describe_offload(ConfigSpec& spec, RunConfig& c) {
  spec.section("Offload to host memory");
  spec.add("offload", c.offload_to,
           "optimizer: masters and optimizer states, whose step the CPU does beside the next "
           "forward, with --clip 0 and no loss scaling beside backward too; params: with zero 3 "
           "parameters too; nvme:DIR: all that on a disk, of which DIR is a folder",
           {.help = {.metavar = "none|optimizer|params|nvme:DIR"}})
      .may_change();
  spec.add("offload-ratio", c.offload_ratio,
           "share of the parameters that --offload is for, in whole blocks, the last ones first",
           {.min = 0, .max = 1, .exclude_min = true})
      .may_change();
  spec.add("offload-activations", c.offload_activations,
           "keep what forward saves for backward in host memory meanwhile")
      .may_change();
}

void describe_device(ConfigSpec& spec, RunConfig& c) {
  spec.section("Device and ranks");
  spec.add_choice(
          "device", c.device, device_choices(),
          "where to compute; auto is a GPU for every rank where there are GPUs, else the CPU; "
          "emu runs the GPU's kernels on the CPU, those of an A100; with a number those of a GPU "
          "of "
          "that compute capability, within its limits: 8.6, 8.9, 9.0 (H100), 10.0 (B200), 12.0")
      .may_change()
      .basic("cpu, cuda, or emu: a GPU emulated on the CPU");
  spec.add("threads", c.threads, "CPU threads per rank",
           {.min = 1, .max = 4096, .help = {.default_text = "the rank's share of the CPUs"}})
      .may_change();
  spec.add("workers", c.workers, "threads that make batches while the device computes",
           {.min = 1, .max = 256})
      .may_change();
  spec.add_choice(
          "dtype", c.dtype,
          precision_choices({Precision::kAuto, Precision::kF32, Precision::kTf32, Precision::kBF16,
                             Precision::kF16, Precision::kFp8}),
          "of parameters and activations; auto is fp32 on the CPU, bf16 on GPUs; tf32: fp32, but "
          "products by tensor cores, which round operands to 10 bits of mantissa; below "
          "fp32 there are "
          "fp32 masters and gradients; fp8: bf16, but products of linear layers in blocks "
          "have operands in 8 bits; on the CPU, and on GPUs of compute capability 9.0")
      .may_change()
      .basic("of parameters and activations");
  spec.add("fp8-kept-blocks", c.fp8_kept_blocks,
           "first and last blocks, so many at either end, that --dtype fp8 leaves in bf16",
           {.min = 0, .max = 1 << 20})
      .may_change();
  spec.add_choice("fp8-scaling", c.fp8_scaling,
                  {{"block", Fp8Scaling::kBlock}, {"tensor", Fp8Scaling::kTensor}},
                  "what has a scale of its own with --dtype fp8; block: 128 numbers along the "
                  "sums, of weights 128 x 128, all of E4M3; tensor: a tensor, gradients of E5M2")
      .may_change();
  spec.add("loss-scale", c.loss_scale,
           "scale of the loss at the start; a step whose gradient overflows is skipped and lowers "
           "it; 0: none",
           {.min = 0, .help = {.default_text = "65536 with fp16, else 0"}})
      .may_change();
  spec.add_choice("recompute", c.recompute,
                  {{"none", Recompute::kNone},
                   {"selective", Recompute::kSelective},
                   {"full", Recompute::kFull}},
                  "what backward computes again to save memory: selective, what costs little; "
                  "full, each block from its input")
      .may_change();
  spec.add_size("device-memory", c.device_memory, "budget of device memory; 0: none", {.min = 0})
      .may_change();
  spec.add("deterministic", c.deterministic, "only kernels that give the same bits on every run")
      .may_change();
  spec.add(
          "cuda-graph", c.cuda_graph,
          "capture the forward and backward of a micro-batch in the second step and replay them as "
          "CUDA graphs, which spares the CPU the launches; not with --offload, nor over MPI")
      .may_change();
  spec.add_choice("comm", c.transport,
                  {{"auto", comm::Transport::kAuto},
                   {"mpi", comm::Transport::kMpi},
                   {"nccl", comm::Transport::kNccl}},
                  "what carries tensors of GPUs: NCCL, which auto is, or host memory and MPI")
      .may_change();
  spec.add("numa-ranks", c.numa_ranks,
           "ranks of a NUMA node, which add in host memory before nodes exchange sums: a power of "
           "two, of one host; 0: by where GPUs are, 1: all ranks alike",
           {.min = 0})
      .may_change();
  spec.add("timeout", c.timeout_s,
           "longest wait for another rank, and for a sign of life of one; 0: for ever",
           {.min = 0, .help = {.metavar = "SECONDS", .unit = "s"}})
      .may_change();
  spec.add("start-timeout", c.start_timeout_s,
           "longest wait for another rank until the first step is done, where --timeout is "
           "shorter; 0: for ever",
           {.min = 0, .help = {.metavar = "SECONDS", .unit = "s"}})
      .may_change();
  spec.add_size("expect-bandwidth", c.expect_bandwidth,
                "bytes per second that a rank sends in an all-reduce; a warning before training "
                "names ranks that are slower",
                {.min = 0,
                 .help = {.metavar = "SIZE",
                          .default_text = "1/16 of a memory copy within a host, else none"}});
  spec.add("check-replicas", c.check_replicas,
           "steps between comparisons of the ranks' copies of parameters, which find memory and "
           "links that change bits; 0: none",
           {.min = 0})
      .may_change();
}

void describe_output(ConfigSpec& spec, RunConfig& c) {
  spec.section("Output");
  spec.add("out", c.out, "folder for metrics.jsonl, status.json and checkpoints/",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change()
      .basic("folder of the run");
  spec.add("eval-every", c.eval_every, "steps between validations, and one at the end; 0: none",
           {.min = 0})
      .may_change()
      .basic("steps between validations");
  spec.add("report-every", c.report_every,
           "steps between rows of metrics.jsonl about the memory, communication and devices of all "
           "ranks; 0: none",
           {.min = 0})
      .may_change();
  spec.add("tensorboard", c.tensorboard, "write event files for TensorBoard to OUT/tensorboard")
      .may_change();
  spec.add("tensorboard-histograms", c.tensorboard_histograms,
           "with --tensorboard, steps between histograms of each parameter and its gradient; 0: "
           "none",
           {.min = 0})
      .may_change();
  spec.add(
          "prometheus", c.prometheus,
          "keep the newest metrics in a file NAME.prom, for node_exporter's textfile collector, or "
          "answer Prometheus at /metrics of a port: of the loopback interface, or of the address",
          {.help = {.metavar = "FILE|[IPV4:]PORT", .default_text = "none"}})
      .may_change();
  spec.add("trace", c.trace,
           "record some steps of all ranks for a trace viewer: NAME.json (Chrome) or NAME.pftrace "
           "(Perfetto)",
           {.is_path = true, .help = {.metavar = "FILE", .default_text = "none"}})
      .may_change();
  spec.add("trace-steps", c.trace_steps, "which steps --trace records, counted from 1",
           {.help = {.metavar = "A-B", .default_text = "the third to the fifth"}})
      .may_change();
  spec.add("memory-profile", c.memory_profile,
           "what lived when in rank 0's device memory in the first three steps of this start: "
           "NAME.svg (a picture) or NAME.pickle (PyTorch's viewer)",
           {.is_path = true, .help = {.metavar = "FILE", .default_text = "none"}})
      .may_change();
  spec.add("quiet", c.quiet, "print warnings and errors only").may_change();
}

void describe_checkpoints(ConfigSpec& spec, RunConfig& c) {
  spec.section("Checkpoints");
  spec.add(
          "save-every", c.save_every,
          "steps between checkpoints, written while training goes on; there is one at the end too; "
          "0: only that one",
          {.min = 0})
      .may_change()
      .basic("steps between checkpoints; 0: one at the end");
  spec.add("save-minutes", c.save_minutes,
           "also save when so many minutes have passed since the last save; 0: never", {.min = 0})
      .may_change();
  spec.add("keep", c.keep, "the newest so many checkpoints stay; 0: all", {.min = 0}).may_change();
  spec.add("no-save", c.no_save, "write no checkpoint").may_change();
  spec.add(
          "resume", c.resume,
          "auto: go on from the newest valid checkpoint in --out, afresh without checkpoints; DIR: "
          "from that checkpoint, or the newest of that run; ranks, sharding, precision, offload, "
          "device and batch may be others than before; none: begin, in an --out without "
          "checkpoints",
          {.is_path = true, .help = {.metavar = "auto|none|DIR"}})
      .may_change()
      .basic("go on from a checkpoint; auto: from the newest");
}

// What does nothing alone.
void describe_needs(ConfigSpec& spec) {
  spec.needs("decay-steps decay-shape", "--schedule wsd");
  spec.needs("freeze-step", "--optimizer 1bit-adam");
  spec.needs("outer-start outer-lr outer-momentum outer-streaming", "--outer-every");
  spec.needs("ranks-per-process", "--tensor or --context");
  spec.needs("context-kind", "--context or --layouts");
  spec.needs("fp8-kept-blocks fp8-scaling", "--dtype fp8");
  spec.needs("tensorboard-histograms", "--tensorboard");
  spec.needs("trace-steps", "--trace");
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

namespace {

void check_fp8(const Device& device) {
  constexpr int kHopper = 90;  // kernels/fp8.h
  if (device.type == DeviceType::kCpu || device.arch == kHopper) return;
  throw ConfigError(cat("--dtype fp8 on ", device,
                        ": fp8 products of GPUs are of compute capability 9.0 so far, this has ",
                        capability_text(device.arch),
                        "; use such a GPU, --device cpu or emu:90, or --dtype bf16"));
}

}  // namespace

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
  if (precision == kFp8) check_fp8(device);
  if (precision == kF16) return DType::kF16;
  const bool is_f32 = precision == kF32 || precision == kTf32 ||
                      (precision == kAuto && device.type != DeviceType::kCuda);
  if (is_f32) return DType::kF32;
  check_dtype_of(device, DType::kBF16, cat("--dtype ", precision_name(precision)));
  return DType::kBF16;
}

}  // namespace shale::models
