// Compares data parallelism with a parameter owner (one rank updates all parameters) to DDP and
// ZeRO: traffic on links, memory and time of each rank. Run it with
//   mpirun -np 4 --bind-to none bench_data_parallel
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/owner_step.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/bench/support/train_work.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/training/make_optimizer.h"
#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/step.h"

namespace shale::bench {
namespace {

constexpr float kLearningRate = 1e-4f;

struct BenchConfig {
  std::string model = "all", only = "all";
  int64_t batch = 16;
  int64_t pixels = 64;
  int64_t seq_len = 64;
  int64_t steps = 3;
  std::string device_name = "cpu";
  Device device = {};  // this rank's device of the type device_name
  int threads = 1;
  std::string json;
};

struct Way {
  const char* name;
  std::optional<int> zero;  // nullopt: data parallelism with an owner
};
constexpr Way kWays[] = {{"owner", {}}, {"DDP", 0}, {"ZeRO-1", 1}, {"ZeRO-2", 2}, {"ZeRO-3", 3}};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add_choice("model", c.model, {"all", "resnet18", "vit-s16", "gpt2"}, "model to train");
  std::vector<std::string> ways = {"all"};
  for (const Way& way : kWays) ways.emplace_back(way.name);
  spec.add_choice("only", c.only, ways, "kind of data parallelism to measure");
  spec.add("batch", c.batch, "samples per step; a multiple of the number of ranks", {.min = 1});
  spec.add("pixels", c.pixels, "image edge in pixels, a multiple of 16", {.min = 16, .max = 1024});
  spec.add("seq-len", c.seq_len, "tokens per sequence", {.min = 1, .max = 1024});
  spec.add("steps", c.steps, "measured steps, after two warm-up steps", {.min = 1});
  spec.add_choice(
      "device", c.device_name, device_names(),
      "device of the steps; emu: GPU kernels emulated on the CPU, to test the benchmark");
  spec.add("threads", c.threads, "CPU threads per rank", {.min = 1});
  spec.add("json", c.json, "file to which the results are appended, as JSON lines",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.example("mpirun -np 4 --bind-to none bench_data_parallel --json rows.jsonl");
  spec.example("mpirun -np 4 --bind-to none bench_data_parallel --device cuda");
}

TrainWork small_image_work(const std::string& preset, const BenchConfig& config) {
  models::ImageModelConfig sizes = models::find_image_preset(preset).model;
  sizes.classes = 100;
  sizes.pixels = config.pixels;
  return image_work(preset, sizes, /*seed=*/1);
}

TrainWork small_language_work(const BenchConfig& config) {
  models::LanguageModelConfig sizes = models::preset("nano", config.seq_len);
  sizes.layers = 6, sizes.width = 384, sizes.heads = 6;
  sizes.vocab = sizes.padded_vocab = 8192;
  return language_work("gpt2-6x384", sizes, {}, config.seq_len, /*seed=*/3);
}

// What a step used on a rank.
struct Used {
  double sent = 0, received = 0;  // bytes that this rank sent and received
  // Bytes over one link: the sum of both directions for a star, one direction for a ring.
  double link = 0;
  double memory = 0;  // peak bytes in use
  double cpu_s = 0;
  double step_s = 0;
  double loss = 0;  // loss of the last step, over this rank's rows
};

models::RunConfig run_config(int zero) {
  models::RunConfig run;
  run.seed = 0;  // seed of the initial values, as with an owner
  run.zero = zero;
  run.clip = 0;
  run.loss_scale = 0;
  models::resolve_optimizer(run);
  return run;
}

// Runs `step(i, batch)` for the batches of make(i), and measures the steps. step() returns the
// rank's loss.
template <typename Make, typename Step>
Used measure(const BenchConfig& config, comm::ProcessGroup& group, Context& context,
             const Make& make, const Step& step) {
  constexpr int64_t kWarmUp = 2;
  Used used;
  Samples times;
  double cpu = 0;
  for (int64_t i = 0; i < kWarmUp + config.steps; ++i) {
    const Batch batch = make(i);
    group.barrier("bench step");
    group.reset_traffic();
    const double before = process_cpu_seconds();
    const Clock::time_point start = Clock::now();
    used.loss = step(i, batch);
    context.synchronize();
    if (i < kWarmUp) continue;
    times.add(seconds_since(start));
    cpu += process_cpu_seconds() - before;
  }
  used.cpu_s = cpu / double(config.steps);
  used.step_s = times.median();
  used.memory = double(context.allocator().stats().peak_allocated);
  used.sent = used.received = used.link = group.traffic().totals().sent_bytes;
  return used;
}

// Makes the task. The model must be destroyed before the context that owns its memory.
using MakeWork = std::function<TrainWork()>;

Used run_owner(const BenchConfig& config, const MakeWork& make, comm::World& world) {
  Context context({.device = config.device, .threads = config.threads});
  const auto group = world.group({}, context.backend());
  const TrainWork work = make();
  const auto alone = group->split(group->rank(), 0, "alone");
  const models::RunConfig run = run_config(0);
  OwnerStep owner(*work.model, work.units, context, *group, *alone, run.seed,
                  [&](std::vector<OptimShard> shards) {
                    return models::make_optimizer(run, work.units, std::move(shards));
                  });
  const bool owns = group->rank() == 0;
  Used used = measure(
      config, *group, context,
      [&](int64_t i) {
        const Batch whole = work.batch(i * config.batch, config.batch);
        return owns ? whole : without_rows(whole);
      },
      [&](int64_t i, const Batch& batch) {
        return owner.run(batch, i, kLearningRate, double(config.batch * work.items), work.loss);
      });
  const auto [down, up] = owner.bytes();
  const double links = owns ? group->size() - 1 : 1;
  used.sent = links * (owns ? down : up);
  used.received = links * (owns ? up : down);
  used.link = down + up;
  return used;
}

struct LastLoss : models::StepObserver {
  void done(const models::StepOutcome& outcome) override { loss = outcome.losses.front(); }
  double loss = 0;
};

Used run_sharded(const BenchConfig& config, const MakeWork& make, comm::World& world, int zero) {
  Context context({.device = config.device, .threads = config.threads});
  const auto group = world.group({}, context.backend());
  const TrainWork work = make();
  const models::RunConfig run = run_config(zero);
  LastLoss last;
  models::TrainStep step(
      context, {.shard = group.get()}, {*work.model, work.units, work.loss},
      models::step_options(run, DType::kF32, /*micro_batches=*/1),
      [&](std::vector<OptimShard> shards) {
        return models::make_optimizer(run, work.units, std::move(shards));
      },
      &last);
  const int64_t rows = config.batch / group->size();
  return measure(
      config, *group, context,
      [&](int64_t i) { return work.batch(i * config.batch + group->rank() * rows, rows); },
      [&](int64_t i, const Batch& mine) {
        step.run({.step = i,
                  .lr = kLearningRate,
                  .weight = double(config.batch * work.items),
                  .first_position = mine.first_position,
                  .next_batch = [&]() -> const Batch& { return mine; }});
        step.finish();
        return last.loss;
      });
}

// Gathers the measurements of all ranks.
std::vector<Used> gather(comm::ProcessGroup& group, const Used& mine) {
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  std::vector<Used> all;
  for (const std::string& other : group.all_gather_bytes(bytes, "bench figures")) {
    std::memcpy(&all.emplace_back(), other.data(), sizeof(Used));
  }
  return all;
}

Json row_of(const TrainWork& work, const Way& way, const Device& device,
            const std::vector<Used>& all) {
  int64_t parameters = 0;
  for (const Parameter* parameter : work.model->parameters()) parameters += parameter->numel();
  const auto mib = [](double bytes) { return bytes / double(1 << 20); };
  const auto most_of_others = [&](double Used::*what) {
    double most = 0;
    for (size_t rank = 1; rank < all.size(); ++rank) most = std::max(most, all[rank].*what);
    return most;
  };
  double loss = 0;
  for (const Used& used : all) loss += used.loss;
  return {{"kind", "data_parallel"},
          {"model", work.name},
          {"parameters", parameters},
          {"device", to_string(device)},
          {"way", way.name},
          {"ranks", all.size()},
          {"first_sent_mib", mib(all[0].sent)},
          {"first_received_mib", mib(all[0].received)},
          {"link_mib", mib(all[0].link)},
          {"other_sent_mib", mib(most_of_others(&Used::sent))},
          {"other_received_mib", mib(most_of_others(&Used::received))},
          {"first_memory_mib", mib(all[0].memory)},
          {"other_memory_mib", mib(most_of_others(&Used::memory))},
          {"first_cpu_ms", 1e3 * all[0].cpu_s},
          {"other_cpu_ms", 1e3 * most_of_others(&Used::cpu_s)},
          {"step_ms", 1e3 * all[0].step_s},
          {"loss", loss}};
}

void add_row(Table& table, const Json& row) {
  const auto number = [&](const char* key) { return fixed(row[key].real(), 1); };
  table.add({row["model"].text(), row["way"].text(), std::to_string(row["ranks"].get<int>()),
             number("first_sent_mib"), number("first_received_mib"), number("other_sent_mib"),
             number("other_received_mib"), number("link_mib"), number("first_memory_mib"),
             number("other_memory_mib"), number("first_cpu_ms"), number("other_cpu_ms"),
             number("step_ms")});
}

// Checks that a method's loss equals that of the other methods up to rounding, because all methods
// compute the same training.
void check_loss(const Json& row, double want) {
  const double loss = row["loss"].real();
  if (std::abs(loss - want) <= 1e-4 * std::abs(want)) return;
  throw InternalError(cat("bench_data_parallel: ", row["model"].text(), " by ", row["way"].text(),
                          " has the loss ", loss, ", expected ", want));
}

int run(comm::World& world, int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_data_parallel",
                  "compares DDP and ZeRO with data parallelism in which one rank owns the state");
  describe(spec, config);
  if (parse_or_print(spec, argc, argv, world.rank())) return 0;
  if (config.batch % world.size() != 0) {
    throw ConfigError(
        cat("--batch is ", config.batch, ", expected a multiple of the ", world.size(), " ranks"));
  }
  config.device = device_named(config.device_name);
  if (config.device.type == DeviceType::kCuda) config.device = world.device({.gpu = true});
  const auto group = world.group({});
  Table table({"model", "way", "ranks", "rank 0 sends, MiB", "receives", "another sends",
               "receives", "over a link", "rank 0's memory, MiB", "another's",
               "rank 0's processor time, ms", "another's", "step, ms"});
  std::ofstream json;
  if (world.rank() == 0 && !config.json.empty()) json.open(config.json, std::ios::app);
  std::vector<MakeWork> works;
  const auto add = [&](const char* name, const MakeWork& make) {
    if (config.model == "all" || config.model == name) works.push_back(make);
  };
  add("resnet18", [&] { return small_image_work("resnet18", config); });
  add("vit-s16", [&] { return small_image_work("vit-s16", config); });
  add("gpt2", [&] { return small_language_work(config); });
  for (const auto& make : works) {
    const TrainWork named = make();
    std::optional<double> loss;
    for (const Way& way : kWays) {
      if (config.only != "all" && config.only != way.name) continue;
      const Used used =
          way.zero ? run_sharded(config, make, world, *way.zero) : run_owner(config, make, world);
      const Json row = row_of(named, way, config.device, gather(*group, used));
      if (!loss) loss = row["loss"].real();
      check_loss(row, *loss);
      add_row(table, row);
      if (json.is_open()) json << row.dump() << std::endl;
    }
  }
  if (world.rank() == 0) std::fputs(table.markdown().c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::comm::run(
      argc, argv, [&](shale::comm::World& world) { return shale::bench::run(world, argc, argv); });
}
