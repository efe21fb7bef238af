// Times whole training steps and their phases, and compares them with their GEMMs and convolutions
// alone:
// bench_train --model gpt2-124m --dtype bf16 --threads 2
// Or breaks down the time of a step: bench_train --breakdown
#include <omp.h>

#include <cstdio>
#include <memory>

#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/kernel_recorder.h"
#include "shale/bench/support/memory_sweep.h"
#include "shale/bench/support/product_floor.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/step_breakdown.h"
#include "shale/bench/support/step_report.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/bench/support/train_loop.h"
#include "shale/bench/support/vendor_matmul.h"
#include "shale/comm/world.h"
#include "shale/models/language/generate.h"

namespace shale::bench {
namespace {

constexpr double kPeakSeconds = 0.3;  // seconds for each measured peak

struct BenchConfig {
  TrainOptions train;
  std::string device = "cpu";
  int64_t steps = 10;
  int64_t warmup = 3;
  bool no_floor = false;
  int64_t seed = 1234;
  bool no_overlap = false;
  bool memory = false;
  bool breakdown = false;
  int64_t generate = 0;  // number of tokens to generate; 0: measure training steps
  std::string json;
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.section("Step");
  std::vector<std::string> models = models::preset_names();
  for (const models::ImagePreset& preset : models::image_presets()) models.push_back(preset.name);
  for (const models::DitPreset& preset : models::dit_presets()) models.push_back(preset.name);
  spec.add_choice("model", c.train.model, models, "model preset, for text, images or diffusion");
  spec.add("layers", c.train.layers, "number of transformer blocks",
           {.min = 1, .help = {.default_text = "the preset's"}});
  spec.add("seq-len", c.train.seq_len, "tokens per sequence of text", {.min = 1, .max = 1 << 20});
  spec.add("pixels", c.train.pixels, "width and height of an image in pixels",
           {.min = 1, .max = 4096, .help = {.default_text = "224; 32 for diffusion"}});
  spec.add("micro-batch", c.train.micro_batch, "sequences or images per rank in one forward pass",
           {.min = 1});
  spec.add("global-batch", c.train.global_batch,
           "sequences or images per optimizer step, over all ranks; above micro-batch x ranks, "
           "gradients are accumulated",
           {.min = 1, .help = {.default_text = "micro-batch x ranks"}});
  spec.add("loss-chunk", c.train.loss_chunk,
           "compute the logits of this many tokens at a time; 0: all tokens", {.min = 0});
  spec.add("lora-rank", c.train.lora_rank,
           "train LoRA adapters of this rank on all linear layers, with alpha twice the rank; 0: "
           "train the model",
           {.min = 0, .max = 1 << 16});
  spec.add_choice("dtype", c.train.dtype, {{"fp32", DType::kF32}, {"bf16", DType::kBF16}},
                  "dtype of parameters and activations");
  spec.add_choice(
      "optimizer", c.train.optimizer,
      {{"adamw", models::OptimizerKind::kAdamW}, {"muon", models::OptimizerKind::kMuon}},
      "optimizer; the results include its time, and the time of its GEMMs alone");
  spec.add("zero", c.train.zero, "ZeRO stage", {.min = 0, .max = 3});
  spec.add("cuda-graph", c.train.cuda_graph,
           "replay forward and backward as CUDA graphs, which the second step captures");
  spec.add("dependent-launch", c.train.dependent_launch,
           "start thread blocks of a kernel before the previous kernel ends; needs compute "
           "capability 9.0 or emu:90");
  spec.add("no-overlap", c.no_overlap, "reduce gradients after backward instead of during it");
  spec.add("seed", c.seed, "seed of initial values and tokens", {.min = 0});

  spec.section("Measurement");
  spec.add_choice(
      "device", c.device, device_names(),
      "device of the steps; emu: GPU kernels emulated on the CPU, to test the benchmark");
  spec.add("threads", c.train.threads, "CPU threads per rank",
           {.min = 1, .max = 4096, .help = {.default_text = "the rank's share of the CPUs"}});
  spec.add("steps", c.steps, "number of measured steps", {.min = 1});
  spec.add("warmup", c.warmup, "number of warm-up steps before the measured ones", {.min = 1});
  spec.add("no-floor", c.no_floor,
           "do not time the GEMMs and convolutions of a step alone (on the CPU, oneDNN runs them)");
  spec.add("breakdown", c.breakdown,
           "measure each part of a step, not only whole steps: within the step, alone, and at the "
           "measured peak of the machine");
  spec.add("generate", c.generate,
           "in place of training, measure greedy generation of this many tokens after each of "
           "--micro-batch prompts of --seq-len tokens; a step is one generation",
           {.min = 1, .max = 1 << 20, .help = {.default_text = "training steps"}});
  spec.add("memory", c.memory,
           "measure memory in place of time, for all combinations of --zero, --dtype, "
           "recomputation and offload");
  spec.add("json", c.json, "JSON results file", {.is_path = true, .help = {.metavar = "FILE"}});

  spec.example("bench_train --threads 2 --dtype bf16");
  spec.example("bench_train --model resnet50 --micro-batch 32 --threads 2");
  spec.example("bench_train --breakdown --device cuda --dtype bf16 --seq-len 1024");
  spec.example("bench_train --model llama-160m --micro-batch 1 --seq-len 16 --generate 256");
  spec.example("mpirun -np 2 --bind-to none bench_train --threads 1 --global-batch 8");
  spec.example("mpirun -np 4 --bind-to none bench_train --memory --model nano --threads 1");
  spec.example("bench_train --model nano --micro-batch 8 --no-floor --json nano.json");
}

// Results of the measured steps on this rank.
struct Measured {
  Samples step, exposed, floor;
  Samples optimizer, optimizer_floor;        // times of the optimizer in the step and in the floor
  double wall_seconds = 0, cpu_seconds = 0;  // time of the steps alone
  float loss = 0;
  std::string floor_missing;  // why there is no floor
};

// Floors (ProductFloor) of all GEMMs of a step, and of the optimizer's GEMMs. Null: there are no
// such GEMMs, or they cannot be timed.
struct Floors {
  std::unique_ptr<ProductFloor> step, optimizer;
};

Floors make_floors(const KernelRecorder& recorder, Measured& measured) {
  std::vector<ProductCall> of_optimizer = recorder.product_calls();
  std::erase_if(of_optimizer, [](const ProductCall& call) {
    return call.phase != phase_name(Phase::kOptimizer);
  });
  Floors floors;
  try {
    floors.step = std::make_unique<ProductFloor>(recorder.product_calls());
    if (!of_optimizer.empty()) {
      floors.optimizer = std::make_unique<ProductFloor>(std::move(of_optimizer));
    }
  } catch (const UnavailableError& error) {
    measured.floor_missing = error.what();
    return {};
  }
  return floors;
}

// Runs steps and their floors in turn, so that disturbances affect both.
void measure(const BenchConfig& config, TrainLoop& loop, KernelRecorder& recorder,
             const Floors& floors, Measured& measured) {
  ProductFloor* const floor = floors.step.get();
  if (floor != nullptr) floor->run();  // a first run to warm up
  if (floors.optimizer != nullptr) floors.optimizer->run();
  recorder.reset();
  loop.reset_times();
  if (floor != nullptr) floor->reset();
  for (int64_t i = 0; i < config.steps; ++i) {
    const double cpu_before = process_cpu_seconds();
    const double optimizer_before = loop.phase_seconds(Phase::kOptimizer);
    const StepTime time = loop.step(recorder);
    measured.cpu_seconds += process_cpu_seconds() - cpu_before;
    measured.step.add(time.seconds);
    measured.optimizer.add(loop.phase_seconds(Phase::kOptimizer) - optimizer_before);
    measured.exposed.add(time.exposed_comm_seconds);
    measured.loss = time.loss;
    if (floor == nullptr) continue;
    loop.group().barrier("bench floor");
    measured.floor.add(floor->run());
    if (floors.optimizer != nullptr) measured.optimizer_floor.add(floors.optimizer->run());
  }
}

double flops_of(const std::vector<StepRow>& parts, std::string_view slot_prefix) {
  double sum = 0;
  for (const StepRow& part : parts) {
    if (part.name.compare(0, slot_prefix.size(), slot_prefix) == 0) sum += part.flops;
  }
  return sum;
}

// Returns "tokens_per_s" or "images_per_s".
std::string rate_key(const TrainLoop& loop) {
  return cat(loop.work().item, "s_per_s");
}

// Returns the first fields of a row: the model and configuration.
Json setup_row(const char* kind, const BenchConfig& config, int ranks, const TrainLoop& loop) {
  const bool images = is_image_preset(config.train.model);
  return {{"kind", images ? cat("image_", kind) : kind},
          {"model", config.train.model},
          {"params", loop.parameter_count()},
          {"device", to_string(loop.device())},
          {"dtype", std::string(dtype_name(config.train.dtype))},
          {"ranks", ranks},
          {"optimizer", config.train.optimizer == models::OptimizerKind::kMuon ? "muon" : "adamw"},
          {"zero", config.train.zero},
          {"threads", config.train.threads},
          {images ? "pixels" : "seq_len", images ? config.train.pixels : config.train.seq_len},
          {"micro_batch", config.train.micro_batch},
          {"global_batch", config.train.global_batch},
          {"cuda_graph", config.train.cuda_graph},
          {"dependent_launch", config.train.dependent_launch},
          {"steps", config.steps}};
}

Json step_row(const BenchConfig& config, int ranks, const TrainLoop& loop, const Measured& m,
              const std::vector<StepRow>& parts) {
  const double median = m.step.median();
  Json row = setup_row("step", config, ranks, loop);
  row["step_ms"] = median * 1e3;
  row["step_ms_min"] = m.step.min() * 1e3;
  row[rate_key(loop)] = double(loop.items_per_step()) / median;
  row["optimizer_ms"] = m.optimizer.median() * 1e3;
  row["exposed_comm_ms"] = m.exposed.median() * 1e3;
  row["cpu_share"] = m.cpu_seconds / m.step.sum() / config.train.threads;
  // With a CUDA graph, kernels are observed only during the capture.
  if (!config.train.cuda_graph) {
    row["gemm_gflop"] = flops_of(parts, "gemm") / 1e9;
    row["conv_gflop"] = flops_of(parts, "conv") / 1e9;
    row["attention_gflop"] = flops_of(parts, "attention") / 1e9;
  }
  row["model_gflop"] = loop.work().item_flops * double(loop.items_per_step()) / 1e9;
  row["loss"] = m.loss;
  row["memory"] = memory_json(loop.memory());
  if (!m.floor.empty()) {
    row["floor_ms"] = m.floor.median() * 1e3;
    row["floor_ms_min"] = m.floor.min() * 1e3;
    row["floor_share"] = paired_ratio(m.floor, m.step);
    row["floor_share_min"] = m.floor.min() / m.step.min();
  }
  if (!m.optimizer_floor.empty()) {
    row["optimizer_floor_ms"] = m.optimizer_floor.median() * 1e3;
    row["optimizer_floor_share"] = paired_ratio(m.optimizer_floor, m.optimizer);
  }
  return row;
}

void print_summary(const Json& row, const TrainLoop& loop, const Measured& m) {
  const auto number = [&](const char* key) { return row[key].get<double>(); };
  const double step_ms = number("step_ms");
  const double ranks = number("ranks");
  std::printf("step        %s ms median, %s ms min of %zu; loss %s\n", fixed(step_ms, 1).c_str(),
              fixed(number("step_ms_min"), 1).c_str(), m.step.seconds.size(),
              fixed(m.loss, 4).c_str());
  const double rate = number(rate_key(loop).c_str());
  std::printf("speed       %s %ss/s, %s per rank; %s model GFLOP/s%s\n", fixed(rate, 1).c_str(),
              loop.work().item, fixed(rate / ranks, 1).c_str(),
              fixed(number("model_gflop") / step_ms * 1e3, 1).c_str(),
              row.contains("seq_len") ? ", 6 N + 6 L C T per token" : "");
  if (!m.floor.empty()) {
    std::printf(
        "floor       %s ms median, %s ms min: the GEMMs and convolutions alone, run by oneDNN\n",
        fixed(number("floor_ms"), 1).c_str(), fixed(number("floor_ms_min"), 1).c_str());
    std::printf("share       floor / step: %s (median of pairs), %s (of the minima)\n",
                percent(number("floor_share")).c_str(), percent(number("floor_share_min")).c_str());
  } else {
    std::printf("floor       not measured%s%s\n", m.floor_missing.empty() ? "" : ": ",
                m.floor_missing.c_str());
  }
  std::printf("optimizer   %s ms median, %s of the step", fixed(number("optimizer_ms"), 1).c_str(),
              percent(number("optimizer_ms") / step_ms).c_str());
  if (row.contains("optimizer_floor_ms")) {
    std::printf("; its GEMMs alone %s ms, %s of its time",
                fixed(number("optimizer_floor_ms"), 1).c_str(),
                percent(number("optimizer_floor_share")).c_str());
  }
  std::printf("\n");
  if (row.contains("gemm_gflop")) {
    std::printf(
        "work        %s GFLOP in GEMMs, %s in convolutions, %s in attention, per rank and "
        "step\n",
        fixed(number("gemm_gflop"), 1).c_str(), fixed(number("conv_gflop"), 1).c_str(),
        fixed(number("attention_gflop"), 1).c_str());
  }
  std::printf("exposed communication %s ms a step; processor time / (threads x time) %s%s\n\n",
              fixed(number("exposed_comm_ms"), 2).c_str(), fixed(number("cpu_share"), 2).c_str(),
              number("cpu_share") < 0.9 ? " (below 0.9: idle, waiting, or a busy machine)" : "");
}

void report(const BenchConfig& config, int ranks, const Machine& machine, const TrainLoop& loop,
            const KernelRecorder& recorder, const ProductFloor* floor, const Measured& m) {
  // On other devices, the host's clock would measure only the launch of a kernel. Use --breakdown
  // for them.
  const bool on_cpu = loop.device().type == DeviceType::kCpu;
  const double mean = m.step.sum() / double(config.steps);
  const auto parts = step_rows(loop, recorder, config.steps);
  const auto gemms = product_totals(recorder, config.steps, floor, config.steps);
  const Json row = step_row(config, ranks, loop, m, parts);
  print_summary(row, loop, m);
  if (on_cpu) {
    std::printf("Parts of a step, means of %lld steps\n%s\n", static_cast<long long>(config.steps),
                parts_table(parts, mean).c_str());
    std::printf("GEMMs and convolutions\n%s\n", product_table(gemms, mean).c_str());
  }
  const MemoryParts memory = loop.memory();
  std::printf("%speak reserved / sum of the parts: %s\n", memory_table(memory).c_str(),
              fixed(double(memory.peak_reserved) / double(memory.sum()), 3).c_str());

  Json rows = Json::array({row});
  if (on_cpu) {
    for (const Json& part : step_json(parts, mean)) rows.push_back(part);
    for (const Json& part : product_json(gemms)) rows.push_back(part);
  }
  write_results(
      config.json, "bench_train", machine,
      {{"steps", config.steps}, {"warmup", config.warmup}, {"overlap", config.train.overlap}},
      rows);
}

void report_breakdown(const BenchConfig& config, int ranks, const Machine& machine,
                      const TrainLoop& loop, const StepBreakdown& breakdown) {
  std::printf("Where a step goes; medians of %lld steps of each kind\n%s\n",
              static_cast<long long>(config.steps), breakdown_table(breakdown).c_str());
  std::printf(
      "step / sum of its parts alone: %s (target: at most %s)\n"
      "in step: timed inside the step; alone: every call repeated several times in a row on the "
      "same operands;\nfloor: time of its FLOP at the library's best rate, or of its bytes at the "
      "memory bandwidth\n",
      fixed(breakdown.ratio(), 3).c_str(), fixed(kMostOverParts, 2).c_str());
  Json row = setup_row("breakdown_step", config, ranks, loop);
  row["step_ms"] = breakdown.step_seconds * 1e3;
  row["alone_ms"] = breakdown.all_parts().alone_seconds * 1e3;
  row["floor_ms"] = breakdown.all_parts().floor_seconds * 1e3;
  row["step_over_alone"] = breakdown.ratio();
  Json rows = Json::array({row});
  for (const Json& part : breakdown_rows(breakdown)) rows.push_back(part);
  write_results(config.json, "bench_train", machine,
                {{"steps", config.steps}, {"warmup", config.warmup}, {"breakdown", true}}, rows);
}

// Times greedy generation with random weights. Between generations, times the GEMMs of a generation
// alone.
int run_generation(const BenchConfig& config, const Machine& machine, bool with_floor) {
  omp_set_num_threads(config.train.threads);  // oneDNN's threads
  TrainOptions longer = config.train;
  longer.seq_len += config.generate;
  Tracer tracer;
  Context context(
      {.device = config.train.device, .threads = config.train.threads, .seed = config.train.seed});
  const models::LanguageModelConfig sizes = language_config(longer);
  const auto model = models::make_language_model(sizes);
  materialize(*model, context, config.train.dtype, config.train.seed);
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < config.train.micro_batch; ++i) {
    prompts.push_back(
        random_tokens(sizes.vocab, config.train.seq_len, config.train.seed, /*sample=*/i));
  }
  context.set_tracer(&tracer);
  KernelRecorder recorder;
  recorder.set_phase("generate");
  const auto generate = [&] {
    const Context::Observation observation(context, recorder);
    const models::GenerateOptions greedy{.tokens = config.generate, .temperature = 0};
    return time_once([&] { models::generate_all(*model, context, prompts, greedy); });
  };
  for (int64_t i = 0; i < config.warmup; ++i) {
    recorder.keep_products(with_floor && i + 1 == config.warmup);
    generate();
  }
  recorder.keep_products(false);
  Measured measured;
  const Floors floors = with_floor ? make_floors(recorder, measured) : Floors();
  if (floors.step != nullptr) floors.step->run();  // a first run to warm up
  recorder.reset();
  tracer.reset();
  if (floors.step != nullptr) floors.step->reset();
  for (int64_t i = 0; i < config.steps; ++i) {
    const double cpu_before = process_cpu_seconds();
    measured.step.add(generate());
    measured.cpu_seconds += process_cpu_seconds() - cpu_before;
    if (floors.step != nullptr) measured.floor.add(floors.step->run());
  }

  const double median = measured.step.median(), mean = measured.step.sum() / double(config.steps);
  const double rate = double(config.train.micro_batch * config.generate) / median;
  Json row = {{"kind", "generation"},
              {"model", config.train.model},
              {"params", whole_numel(*model)},
              {"device", to_string(context.device())},
              {"dtype", std::string(dtype_name(config.train.dtype))},
              {"threads", config.train.threads},
              {"prompt", config.train.seq_len},
              {"generate", config.generate},
              {"micro_batch", config.train.micro_batch},
              {"steps", config.steps},
              {"step_ms", median * 1e3},
              {"step_ms_min", measured.step.min() * 1e3},
              {"tokens_per_s", rate},
              {"cpu_share", measured.cpu_seconds / measured.step.sum() / config.train.threads}};
  if (!measured.floor.empty()) {
    row["floor_ms"] = measured.floor.median() * 1e3;
    row["floor_share"] = paired_ratio(measured.floor, measured.step);
  }
  const std::vector<StepRow> parts =
      phase_rows("generate", tracer, measured.step.sum(), recorder, config.steps);
  std::printf("%s\n%s %s, %lld texts of %lld + %lld tokens: %s ms, %s tokens/s\n\n%s\n",
              summary(machine).c_str(), config.train.model.c_str(),
              std::string(dtype_name(config.train.dtype)).c_str(),
              static_cast<long long>(config.train.micro_batch),
              static_cast<long long>(config.train.seq_len), static_cast<long long>(config.generate),
              fixed(median * 1e3, 1).c_str(), fixed(rate, 1).c_str(),
              parts_table(parts, mean).c_str());
  Json rows = Json::array({row});
  for (const Json& part : step_json(parts, mean)) rows.push_back(part);
  const auto gemms = product_totals(recorder, config.steps, floors.step.get(), config.steps);
  for (const Json& part : product_json(gemms)) rows.push_back(part);
  write_results(config.json, "bench_train", machine,
                {{"steps", config.steps}, {"warmup", config.warmup}}, rows);
  return 0;
}

int run_memory(const BenchConfig& config, const Machine& machine, comm::World& world) {
  const std::vector<MemoryCase> cases = memory_sweep(config.train, world);
  if (world.rank() != 0) return 0;
  std::printf("%s\n%s, %lld parameters, T = %lld, micro-batch %lld, %d ranks\n\n%s",
              summary(machine).c_str(), config.train.model.c_str(),
              static_cast<long long>(cases.front().parameters),
              static_cast<long long>(config.train.seq_len),
              static_cast<long long>(config.train.micro_batch), world.size(),
              memory_sweep_table(cases).c_str());
  write_results(config.json, "bench_train", machine, {{"memory", true}},
                memory_sweep_rows(cases, world.size()));
  return 0;
}

void print_heading(const BenchConfig& config, const Machine& machine, const TrainLoop& loop,
                   int ranks) {
  const bool images = is_image_preset(config.train.model);
  std::printf(
      "%s\n%s %s on %s, %lld parameters, %s = %lld, micro-batch %lld, global batch %lld, "
      "%d rank%s x %d thread%s%s%s\n\n",
      summary(machine).c_str(), config.train.model.c_str(),
      std::string(dtype_name(config.train.dtype)).c_str(), to_string(loop.device()).c_str(),
      static_cast<long long>(loop.parameter_count()), images ? "pixels" : "T",
      static_cast<long long>(images ? config.train.pixels : config.train.seq_len),
      static_cast<long long>(config.train.micro_batch),
      static_cast<long long>(config.train.global_batch), ranks, ranks == 1 ? "" : "s",
      config.train.threads, config.train.threads == 1 ? "" : "s",
      config.train.cuda_graph ? ", CUDA graphs" : "",
      config.train.dependent_launch ? ", dependent launch" : "");
  std::fflush(stdout);
}

// Throws ConfigError for incompatible options.
void check(const BenchConfig& config, int ranks) {
  if (config.generate > 0 && (config.breakdown || config.memory || ranks > 1)) {
    throw ConfigError(cat("--generate is incompatible with ",
                          config.breakdown ? "--breakdown"
                          : config.memory  ? "--memory"
                                           : "several ranks",
                          "; leave out one of the two"));
  }
  if (config.memory && config.train.device.type != DeviceType::kCpu) {
    throw ConfigError("--memory needs --device cpu: it counts memory of the CPU only");
  }
  if (config.train.cuda_graph && (config.breakdown || config.memory)) {
    throw ConfigError(cat("--cuda-graph is incompatible with ",
                          config.breakdown ? "--breakdown" : "--memory",
                          ", which must see each kernel launch; use one of the two"));
  }
  if (config.train.cuda_graph && config.warmup < 2) {
    throw ConfigError(cat("--warmup is ", config.warmup,
                          ", expected 2 or more: --cuda-graph captures the second step, which must "
                          "not be measured"));
  }
}

int run(comm::World& world, int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_train", "times training steps and their parts on random tokens or images");
  describe(spec, config);
  const bool is_main = world.rank() == 0;
  if (parse_or_print(spec, argc, argv, world.rank())) return 0;
  config.train.device = device_named(config.device);
  if (config.train.device.type == DeviceType::kCuda) {
    config.train.device = world.device({.gpu = true});
  }
  config.train.overlap = !config.no_overlap;
  config.train.seed = uint64_t(config.seed);
  check(config, world.size());
  const bool with_floor =
      !config.no_floor && !config.breakdown && config.train.device.type == DeviceType::kCpu;
  // Runs before the benchmark starts work, so the machine's load is that of other programs.
  Machine machine = describe_machine();
  machine.onednn = onednn_version();
  if (config.memory) return run_memory(config, machine, world);

  KernelRecorder recorder;
  config.train.threads = resolve_threads(config.train.threads, world.local_size());
  if (config.generate > 0) return run_generation(config, machine, with_floor);
  const auto device = make_bench_device(config.train.device, config.train.threads);
  device->describe(machine);
  Peaks peaks;  // measured before the model is allocated, on all ranks at once, as in a step
  if (config.breakdown) peaks = device->measure_peaks(kPeakSeconds);
  TrainLoop loop(config.train, world);
  // Sets oneDNN's threads; Shale's kernels have their own setting.
  omp_set_num_threads(config.train.threads);
  if (is_main) print_heading(config, machine, loop, world.size());
  for (int64_t i = 0; i < config.warmup; ++i) {
    recorder.keep_products(with_floor && i + 1 == config.warmup);
    loop.step(recorder);
  }
  recorder.keep_products(false);
  if (config.breakdown) {
    const auto clock = make_stream_clock(loop.device());
    const StepBreakdown breakdown = measure_breakdown(loop, recorder, peaks, *clock, config.steps);
    if (is_main) report_breakdown(config, world.size(), machine, loop, breakdown);
    return 0;
  }
  Measured measured;
  Floors floors;
  if (with_floor) floors = make_floors(recorder, measured);
  measure(config, loop, recorder, floors, measured);
  if (is_main) report(config, world.size(), machine, loop, recorder, floors.step.get(), measured);
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::comm::run(
      argc, argv, [&](shale::comm::World& world) { return shale::bench::run(world, argc, argv); });
}
