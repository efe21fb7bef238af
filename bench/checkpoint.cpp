// Compares the cost of checkpoints with plain transfers of the same bytes in one run: the pause of
// training with a copy of the state in memory; the duration of a complete save and of loading with
// plain sequential writing and reading of one file per rank on the same disk, through the page
// cache and with direct I/O:
// mpirun -np 2 --bind-to none bench_checkpoint --out /where/checkpoints/go
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/runtime/io/file.h"

namespace shale::bench {
namespace {

namespace fs = std::filesystem;

struct BenchConfig {
  std::string model = "gpt2-124m";
  int zero = 2;
  int repeats = 5;
  std::string out = "bench_checkpoint";
  std::string json;
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add_choice("model", c.model, models::preset_names(),
                  "model preset; its parameters and AdamW states are saved");
  spec.add("zero", c.zero, "ZeRO stage, which determines how the state is sharded",
           {.min = 0, .max = 3});
  spec.add("repeats", c.repeats, "number of runs; the median is reported", {.min = 1});
  spec.add("out", c.out, "new folder on the disk to measure; it is removed at the end",
           {.is_path = true, .help = {.metavar = "DIR"}});
  spec.add("json", c.json, "JSON file for the results",
           {.is_path = true, .help = {.metavar = "FILE"}});
}

constexpr size_t kPiece = size_t{8} << 20;

// Drops these files from the page cache, so that reading accesses the disk.
void drop_from_memory(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const FileHandle file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (file.is_open()) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// How plain programs access the disk: through the page cache, like dd, or with direct I/O, like
// dd's oflag=direct.
enum class Way { kThroughCache, kPastCache };

// Writes `bytes` in large pieces, and syncs the file at the end.
void write_plainly(const Folder& folder, const std::string& name, std::span<const std::byte> bytes,
                   Way way) {
  File file = File::create(folder, name);
  const auto write = [&](size_t begin, size_t end) {
    for (; begin < end; begin += kPiece) {
      file.write_at(int64_t(begin), bytes.subspan(begin, std::min(kPiece, end - begin)));
    }
  };
  const size_t direct = way == Way::kPastCache ? align_down(bytes.size()) : 0;
  if (direct > 0) {
    file.reserve(int64_t(bytes.size()));
    file.bypass_cache(true);
    write(0, direct);
    file.bypass_cache(false);
  }
  write(direct, bytes.size());
  file.sync();
  file.close();
}

// Reads a file into `into`, which has room up to a multiple of kDirectAlignment.
void read_plainly(const Folder& folder, const std::string& name, std::span<std::byte> into,
                  Way way) {
  File file = File::open(folder, name);
  if (way == Way::kPastCache) {
    file.bypass_cache(true);
  } else {
    file.expect_sequential_reads();
  }
  for (size_t done = 0; done < into.size(); done += kPiece) {
    const size_t count = std::min(kPiece, into.size() - done);
    file.read_at(int64_t(done), {into.data() + done, align_up(count)}, count);
  }
}

// The training state of a model on the ranks, and a plain buffer of the same size.
class Bench {
 public:
  Bench(const BenchConfig& config, comm::World& world)
      : group_(world.group()),
        context_({.threads = 1}),
        model_(models::make_language_model(models::preset(config.model, 256))),
        parallel_(*model_, model_->blocks(), context_, *group_, {.stage = config.zero}),
        optimizer_(parallel_.shards(), {}),
        share_(comm::share_to_write(comm::training_state(parallel_, optimizer_),
                                    {.shard = group_.get()})),
        checkpoints_(config.out + "/checkpoints"),
        plain_(Folder::make(config.out + "/plain")),
        saver_(*group_, context_, checkpoints_.path(), {}) {
    for (const StatePart& part : share_) bytes_ += part.values.bytes();
    const auto size = static_cast<size_t>(bytes_);
    from_ = allocate_direct_memory(align_up(size));
    to_ = allocate_direct_memory(align_up(size));
    std::memset(from_.get(), 1, size);
    std::memset(to_.get(), 2, size);
  }

  // Returns the bytes of the state, summed over all ranks.
  int64_t total_bytes() {
    int64_t sum = bytes_;
    group_->all_reduce_sum(make_view(&sum, {1}));
    return sum;
  }

  // Seconds that the slowest rank took for each task. Each round measures all tasks in turn, so
  // that disturbances affect all of them. Their order rotates, because each task may leave work for
  // the disk to the next one. The first round maps memory, and does not count.
  struct Times {
    Samples copy, stall, save, cached_write, direct_write, load, cached_read, direct_read;
  };
  void round(int64_t step, Times& out) {
    const auto size = static_cast<size_t>(bytes_);
    const auto write = [&](Way way) {
      return slowest([&] { write_plainly(plain_, plain_name(way), {from_.get(), size}, way); });
    };
    const auto read = [&](Way way) {
      drop(plain_.path());
      return slowest([&] { read_plainly(plain_, plain_name(way), {to_.get(), size}, way); });
    };
    const double copy = slowest([&] { std::memcpy(to_.get(), from_.get(), size); });
    const std::array<double, 3> writes =
        in_turns(step, {[&] { return save(step); }, [&] { return write(Way::kThroughCache); },
                        [&] { return write(Way::kPastCache); }});
    const std::array<double, 3> reads =
        in_turns(step, {[&] { return load(step); }, [&] { return read(Way::kThroughCache); },
                        [&] { return read(Way::kPastCache); }});
    for (const Way way : {Way::kThroughCache, Way::kPastCache}) {
      plain_.remove_file(plain_name(way));
    }
    if (group_->rank() == 0) fs::remove_all(checkpoints_.path_of(step));
    const double stall = slowest_of(saver_.cost().copy_s);
    if (step == 0) return;
    out.copy.add(copy);
    out.stall.add(stall);
    out.save.add(writes[0]);
    out.cached_write.add(writes[1]);
    out.direct_write.add(writes[2]);
    out.load.add(reads[0]);
    out.cached_read.add(reads[1]);
    out.direct_read.add(reads[2]);
  }

 private:
  double slowest_of(double seconds) {
    group_->all_reduce_max(make_view(&seconds, {1}));
    return seconds;
  }
  template <typename Fn>
  double slowest(Fn&& fn) {
    group_->barrier();
    return slowest_of(time_once(fn));
  }
  void drop(const std::string& folder) {
    if (group_->rank() == 0) drop_from_memory(folder);
  }
  double save(int64_t step) {
    return slowest([&] {
      saver_.save({.step = step}, share_);
      saver_.finish();
    });
  }
  double load(int64_t step) {
    drop(checkpoints_.path_of(step));
    return slowest([&] {
      CheckpointReader reader(checkpoints_.path_of(step));
      comm::load_training_state(reader, parallel_, optimizer_);
    });
  }
  std::string plain_name(Way way) const {
    return cat(way == Way::kPastCache ? "direct_" : "cached_", group_->rank());
  }
  // Measures the tasks, starting with task number step % 3. Syncs the disk before each task, so
  // that the disk has freed deleted files.
  std::array<double, 3> in_turns(int64_t step,
                                 const std::array<std::function<double()>, 3>& tasks) {
    std::array<double, 3> seconds{};
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (group_->rank() == 0) ::sync();
      group_->barrier();
      const size_t turn = (i + static_cast<size_t>(step)) % tasks.size();
      seconds[turn] = tasks[turn]();
    }
    return seconds;
  }

  std::unique_ptr<comm::ProcessGroup> group_;
  Context context_;
  std::unique_ptr<models::LanguageModel> model_;
  comm::DataParallel parallel_;
  optim::AdamW optimizer_;
  std::vector<StatePart> share_;
  CheckpointFolder checkpoints_;
  Folder plain_;
  comm::CheckpointSaver saver_;
  int64_t bytes_ = 0;
  DirectMemory from_, to_;
};

struct Results {
  Table table{{"what", "s", "GB/s", "beside", "s", "GB/s", "ratio"}};
  Json rows = Json::array();

  // Adds a row. Its ratio is the median over rounds of the seconds of `mine` over those of `plain`.
  void add(const char* what, const Samples& mine, const char* beside, const Samples& plain,
           double bytes) {
    const auto rate = [&](const Samples& samples) { return bytes / samples.median() / 1e9; };
    table.add({what, short_number(mine.median()), fixed(rate(mine), 2), beside,
               short_number(plain.median()), fixed(rate(plain), 2),
               fixed(paired_ratio(mine, plain), 2)});
    rows.push_back({{"what", what},
                    {"bytes", bytes},
                    {"seconds", mine.median()},
                    {"beside", beside},
                    {"beside_seconds", plain.median()},
                    {"ratio", paired_ratio(mine, plain)}});
  }
};

int run(comm::World& world, int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_checkpoint",
                  "times saving and loading, and compares them with plain copies and files");
  describe(spec, config);
  const ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit) {
    if (world.rank() == 0) std::fputs(parsed.output.c_str(), stdout);
    return 0;
  }
  if (world.rank() == 0 && fs::exists(config.out)) {
    throw ConfigError(
        cat("--out ", config.out, " exists; use a new folder, which is removed at the end"));
  }
  world.group()->barrier("nobody has made the folder");
  Bench bench(config, world);
  Bench::Times times;
  for (int64_t round = 0; round <= config.repeats; ++round) bench.round(round, times);
  const auto bytes = static_cast<double>(bench.total_bytes());
  if (world.rank() != 0) return 0;
  fs::remove_all(config.out);
  Results results;
  results.add("stall of a save", times.stall, "memcpy", times.copy, bytes);
  results.add("save, blocking", times.save, "plain write", times.cached_write, bytes);
  results.add("save, blocking", times.save, "direct write", times.direct_write, bytes);
  results.add("load", times.load, "plain read", times.cached_read, bytes);
  results.add("load", times.load, "direct read", times.direct_read, bytes);
  const Machine machine = describe_machine();
  std::printf("state of %s, zero %d, %s on %d ranks; %s\n%s", config.model.c_str(), config.zero,
              format_bytes(bytes).c_str(), world.size(), summary(machine).c_str(),
              results.table.text().c_str());
  const Json options = {{"model", config.model}, {"zero", config.zero}, {"ranks", world.size()}};
  write_results(config.json, "bench_checkpoint", machine, options, results.rows);
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::comm::run(
      argc, argv, [&](shale::comm::World& world) { return shale::bench::run(world, argc, argv); });
}
