// Compares reading and writing the weights of a model with a plain copy of the same file on the
// same disk: what --init and --export do, on several ranks of one host: mpirun -np 2 --bind-to none
// bench_weights --model gpt2-355m --out /where/models/are
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/world.h"
#include "shale/models/language/stored_model.h"
#include "shale/runtime/io/file.h"

namespace shale::bench {
namespace {

namespace fs = std::filesystem;

struct BenchConfig {
  std::string model = "gpt2-355m";
  int zero = 3;
  int repeats = 5;
  std::string out = "bench_weights";
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add_choice("model", c.model, models::preset_names(), "model preset, stored as f32");
  spec.add("zero", c.zero, "ZeRO stage, which determines what a rank reads", {.min = 0, .max = 3});
  spec.add("repeats", c.repeats, "number of runs; the median is reported", {.min = 1});
  spec.add("out", c.out, "new folder on the disk to measure; it is removed at the end",
           {.is_path = true, .help = {.metavar = "DIR"}});
}

// Syncs a file, and drops it from the page cache if `drops`.
void settle(const fs::path& path, bool drops) {
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ::fsync(file.get());
  if (drops) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

// Bytes that this process has caused to be read from disks.
int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string key;
  for (int64_t value = 0; file >> key >> value;) {
    if (key == "read_bytes:") return value;
  }
  throw DataError("/proc/self/io has no read_bytes");
}

class Bench {
 public:
  Bench(const BenchConfig& config, comm::World& world)
      : group_(world.group()),
        context_({.threads = 1}),
        model_(models::make_language_model(models::preset(config.model, 256))),
        parallel_(*model_, model_->blocks(), context_, *group_, {.stage = config.zero}),
        folder_(fs::path(config.out) / "model"),
        file_(folder_ / "model.safetensors"),
        copy_(fs::path(config.out) / "copy") {
    parallel_.load([](const Parameter&, int64_t, const View& to) {
      std::fill_n(to.as<float>(), to.numel(), 0.5f);
    });
    save();
  }
  int64_t bytes() const { return static_cast<int64_t>(fs::file_size(file_)); }

  // Seconds of the slowest rank, and how often a cold load reads each byte of the file.
  struct Times {
    Samples save, written_copy, load, copy, cold_load, cold_copy, reads;
  };
  // Each pair is measured in turns: the second goes first in every other round.
  void round(int64_t number, Times& out) {
    const bool swaps = number % 2 == 1;
    pair(
        swaps, [&] { out.save.add(slowest([&] { save(); })); },
        [&] { out.written_copy.add(slowest([&] { copy(/*syncs=*/true); })); });
    pair(
        swaps, [&] { out.load.add(slowest([&] { load(); })); },
        [&] { out.copy.add(slowest([&] { copy(/*syncs=*/false); })); });
    pair(
        swaps,
        [&] {
          drop();
          int64_t before = bytes_read();
          out.cold_load.add(slowest([&] { load(); }));
          int64_t read = bytes_read() - before;
          group_->all_reduce_sum(make_view(&read, {1}));
          out.reads.add(static_cast<double>(read) / static_cast<double>(bytes()));
        },
        [&] {
          drop();
          out.cold_copy.add(slowest([&] { copy(/*syncs=*/false); }));
        });
  }

 private:
  static void pair(bool swaps, const std::function<void()>& mine,
                   const std::function<void()>& plain) {
    if (swaps) plain();
    mine();
    if (!swaps) plain();
  }
  double slowest(const std::function<void()>& task) {
    if (group_->rank() == 0) ::sync();
    group_->barrier("one task at a time");
    double seconds = time_once(task);
    group_->all_reduce_max(make_view(&seconds, {1}));
    return seconds;
  }
  void save() {
    if (group_->rank() == 0) fs::remove_all(folder_);
    models::export_model(folder_.string(), *model_, parallel_, group_->rank() == 0);
    group_->barrier("written");
  }
  void load() {
    models::load_stored_model(*models::open_stored_model(folder_.string()), parallel_);
  }
  void copy(bool syncs) {
    if (group_->rank() == 0) {
      fs::remove(copy_);
      fs::copy_file(file_, copy_);
      if (syncs) settle(copy_, /*drops=*/false);
    }
    group_->barrier("copied");
  }
  void drop() {
    if (group_->rank() == 0) settle(file_, /*drops=*/true);
    group_->barrier("dropped");
  }

  std::unique_ptr<comm::ProcessGroup> group_;
  Context context_;
  std::unique_ptr<models::LanguageModel> model_;
  comm::DataParallel parallel_;
  const fs::path folder_, file_, copy_;
};

int run(comm::World& world, int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_weights",
                  "times --init and --export, and compares them with plain copies");
  describe(spec, config);
  const ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit) {
    if (world.rank() == 0) std::fputs(parsed.output.c_str(), stdout);
    return 0;
  }
  if (world.rank() == 0 && !fs::create_directories(config.out)) {
    throw ConfigError(
        cat("--out ", config.out, " exists; use a new folder, which is removed at the end"));
  }
  world.group()->barrier("the folder exists");
  Bench bench(config, world);
  Bench::Times times;
  for (int64_t round = 0; round < config.repeats; ++round) bench.round(round, times);
  world.group()->barrier("all is measured");
  if (world.rank() != 0) return 0;
  Table table{{"what", "s", "GB/s", "plain copy", "s", "GB/s", "copy / ours"}};
  const auto bytes = static_cast<double>(bench.bytes());
  const auto add = [&](const char* what, const Samples& mine, const char* beside,
                       const Samples& plain) {
    const auto rate = [&](const Samples& s) { return fixed(bytes / s.median() / 1e9, 2); };
    table.add({what, short_number(mine.median()), rate(mine), beside, short_number(plain.median()),
               rate(plain), fixed(paired_ratio(plain, mine), 2)});
  };
  add("export", times.save, "and fsync", times.written_copy);
  add("load, file in memory", times.load, "", times.copy);
  add("load, file on disk", times.cold_load, "", times.cold_copy);
  std::printf("weights of %s, zero %d, %s on %d ranks; %s\n%s", config.model.c_str(), config.zero,
              format_bytes(bytes).c_str(), world.size(), summary(describe_machine()).c_str(),
              table.text().c_str());
  std::printf("a load from disk reads each byte %.2f times\n", times.reads.median());
  fs::remove_all(config.out);
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::comm::run(
      argc, argv, [&](shale::comm::World& world) { return shale::bench::run(world, argc, argv); });
}
