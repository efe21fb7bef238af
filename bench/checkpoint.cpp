// Compares the cost of checkpoints with plain transfers of the same bytes in one run. Compares the
// pause of training with a copy of the state in memory. Compares a complete save, and loading, with
// plain sequential writing and reading of one file per rank on the same disk, both through the page
// cache and with direct I/O:
// mpirun -np 2 --bind-to none bench_checkpoint --out /where/checkpoints/go
// With --weights, compares what --export and --init do with plain copies of the same file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/language/stored_model.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/runtime/io/file.h"

namespace shale::bench {
namespace {

namespace fs = std::filesystem;

struct BenchConfig {
  std::string model = "gpt2-124m";
  int zero = 2;
  int repeats = 5;
  bool weights = false;
  std::string out = "bench_checkpoint";
  std::string json;
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add_choice("model", c.model, models::preset_names(),
                  "model preset; its parameters and AdamW states are saved");
  spec.add("zero", c.zero, "ZeRO stage, which determines how the state is sharded",
           {.min = 0, .max = 3});
  spec.add("repeats", c.repeats, "number of runs; the median is reported", {.min = 1});
  spec.add("weights", c.weights, "export and load the model's weights, without AdamW states");
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
    if (!file.is_open()) continue;
    ::fsync(file.get());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
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

// Seconds of a task and of the plain task that it is compared with, by round.
struct Row {
  std::string what, beside;
  Samples mine, plain;
};

// A model on the ranks, and the times of its tasks.
class Bench {
 public:
  Bench(const BenchConfig& config, comm::World& world)
      : group_(world.group()),
        context_({.threads = 1}),
        model_(models::make_language_model(models::preset(config.model, 256))),
        parallel_(*model_, model_->blocks(), context_, *group_, {.stage = config.zero}) {}
  virtual ~Bench() = default;

  // Measures all tasks in turn, so that disturbances affect all of them. Round 0 maps memory, and
  // does not count.
  virtual void round(int64_t step) = 0;
  virtual int64_t total_bytes() = 0;  // over all ranks
  virtual std::string note() const { return ""; }
  const std::vector<Row>& rows() const { return rows_; }

 protected:
  void add(int64_t step, const std::string& what, double mine, const std::string& beside,
           double plain) {
    if (step == 0) return rows_.push_back({.what = what, .beside = beside});
    for (Row& row : rows_) {
      if (row.what != what || row.beside != beside) continue;
      row.mine.add(mine);
      row.plain.add(plain);
    }
  }
  int64_t sum(int64_t value) {
    group_->all_reduce_sum(make_view(&value, {1}));
    return value;
  }
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
    group_->barrier("dropped");
  }
  // Measures the tasks. Their order rotates from step to step, because each may leave work for the
  // disk to the next one. Syncs the disk before each task, so that it has freed deleted files.
  std::vector<double> in_turns(int64_t step, const std::vector<std::function<double()>>& tasks) {
    std::vector<double> seconds(tasks.size());
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

 private:
  std::vector<Row> rows_;
};

// Saves and loads the training state, compared with plain buffers of the same size.
class StateBench : public Bench {
 public:
  StateBench(const BenchConfig& config, comm::World& world)
      : Bench(config, world),
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
  int64_t total_bytes() override { return sum(bytes_); }

  void round(int64_t step) override {
    const auto size = static_cast<size_t>(bytes_);
    const auto write = [&](Way way) {
      return slowest([&] { write_plainly(plain_, plain_name(way), {from_.get(), size}, way); });
    };
    const auto read = [&](Way way) {
      drop(plain_.path());
      return slowest([&] { read_plainly(plain_, plain_name(way), {to_.get(), size}, way); });
    };
    const double copy = slowest([&] { std::memcpy(to_.get(), from_.get(), size); });
    const auto writes =
        in_turns(step, {[&] { return save(step); }, [&] { return write(Way::kThroughCache); },
                        [&] { return write(Way::kPastCache); }});
    const auto reads =
        in_turns(step, {[&] { return load(step); }, [&] { return read(Way::kThroughCache); },
                        [&] { return read(Way::kPastCache); }});
    for (const Way way : {Way::kThroughCache, Way::kPastCache}) {
      plain_.remove_file(plain_name(way));
    }
    if (group_->rank() == 0) fs::remove_all(checkpoints_.path_of(step));
    add(step, "stall of a save", slowest_of(saver_.cost().copy_s), "memcpy", copy);
    add(step, "save, blocking", writes[0], "plain write", writes[1]);
    add(step, "save, blocking", writes[0], "direct write", writes[2]);
    add(step, "load", reads[0], "plain read", reads[1]);
    add(step, "load", reads[0], "direct read", reads[2]);
  }

 private:
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

  optim::AdamW optimizer_;
  std::vector<StatePart> share_;
  CheckpointFolder checkpoints_;
  Folder plain_;
  comm::CheckpointSaver saver_;
  int64_t bytes_ = 0;
  DirectMemory from_, to_;
};

// Exports the weights as f32 and loads them, compared with copies of the same file by rank 0.
class WeightsBench : public Bench {
 public:
  WeightsBench(const BenchConfig& config, comm::World& world)
      : Bench(config, world),
        folder_(fs::path(config.out) / "model"),
        copies_(fs::path(config.out) / "copies") {
    parallel_.load([](const Parameter&, int64_t, const View& to) {
      std::fill_n(to.as<float>(), to.numel(), 0.5f);
    });
    if (group_->rank() == 0) fs::create_directories(copies_);
    save();
  }
  int64_t total_bytes() override {
    return static_cast<int64_t>(fs::file_size(folder_ / "model.safetensors"));
  }
  std::string note() const override {
    return cat("a load from disk reads each byte ", fixed(reads_.median(), 2), " times\n");
  }

  void round(int64_t step) override {
    const auto cold_load = [&] {
      drop(folder_);
      const int64_t before = bytes_read();
      const double seconds = slowest([&] { load(); });
      const int64_t read = sum(bytes_read() - before);
      if (step > 0) reads_.add(static_cast<double>(read) / static_cast<double>(total_bytes()));
      return seconds;
    };
    const auto copy = [&] { return slowest([&] { copy_file(); }); };
    const auto written_copy = [&] {
      return slowest([&] {
        copy_file();
        drop(copies_);
      });
    };
    const auto cold_copy = [&] {
      drop(folder_);
      return copy();
    };
    const auto saves = in_turns(step, {[&] { return slowest([&] { save(); }); }, written_copy});
    const auto loads = in_turns(step, {[&] { return slowest([&] { load(); }); }, copy});
    const auto cold = in_turns(step, {cold_load, cold_copy});
    add(step, "export", saves[0], "copy and fsync", saves[1]);
    add(step, "load, file in memory", loads[0], "copy", loads[1]);
    add(step, "load, file on disk", cold[0], "copy", cold[1]);
  }

 private:
  void save() {
    if (group_->rank() == 0) fs::remove_all(folder_);
    models::export_model(folder_.string(), *model_, parallel_, group_->rank() == 0);
    group_->barrier("written");
  }
  void load() {
    models::load_stored_model(*models::open_stored_model(folder_.string()), parallel_);
  }
  void copy_file() {
    if (group_->rank() == 0) {
      fs::copy_file(folder_ / "model.safetensors", copies_ / "copy",
                    fs::copy_options::overwrite_existing);
    }
    group_->barrier("copied");
  }

  const fs::path folder_, copies_;
  Samples reads_;
};

int run(comm::World& world, int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_checkpoint",
                  "times saving and loading, and compares them with plain copies and files");
  describe(spec, config);
  if (parse_or_print(spec, argc, argv, world.rank())) return 0;
  if (world.rank() == 0 && fs::exists(config.out)) {
    throw ConfigError(
        cat("--out ", config.out, " exists; use a new folder, which is removed at the end"));
  }
  world.group()->barrier("nobody has made the folder");
  std::unique_ptr<Bench> bench;
  if (config.weights) {
    bench = std::make_unique<WeightsBench>(config, world);
  } else {
    bench = std::make_unique<StateBench>(config, world);
  }
  for (int64_t round = 0; round <= config.repeats; ++round) bench->round(round);
  const auto bytes = static_cast<double>(bench->total_bytes());
  world.group()->barrier("all is measured");
  if (world.rank() != 0) return 0;
  fs::remove_all(config.out);
  Table table{{"what", "s", "GB/s", "beside", "s", "GB/s", "ratio"}};
  Json rows = Json::array();
  for (const auto& [what, beside, mine, plain] : bench->rows()) {
    const auto rate = [&](const Samples& s) { return fixed(bytes / s.median() / 1e9, 2); };
    const double ratio = paired_ratio(mine, plain);  // median over rounds
    table.add({what, short_number(mine.median()), rate(mine), beside, short_number(plain.median()),
               rate(plain), fixed(ratio, 2)});
    rows.push_back({{"what", what},
                    {"bytes", bytes},
                    {"seconds", mine.median()},
                    {"beside", beside},
                    {"beside_seconds", plain.median()},
                    {"ratio", ratio}});
  }
  const Machine machine = describe_machine();
  std::printf("%s of %s, zero %d, %s on %d ranks; %s\n%s%s", config.weights ? "weights" : "state",
              config.model.c_str(), config.zero, format_bytes(bytes).c_str(), world.size(),
              summary(machine).c_str(), table.text().c_str(), bench->note().c_str());
  const Json options = {{"model", config.model},
                        {"zero", config.zero},
                        {"weights", config.weights},
                        {"ranks", world.size()}};
  write_results(config.json, "bench_checkpoint", machine, options, rows);
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::comm::run(
      argc, argv, [&](shale::comm::World& world) { return shale::bench::run(world, argc, argv); });
}
