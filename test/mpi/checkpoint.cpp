// A training state that was saved on some layout and loaded on another is the same, to the bit.
#include "comm/checkpoint_saver.h"

#include <sys/resource.h>

#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "comm/mesh.h"
#include "comm/ordered_sum.h"
#include "runtime/autograd/tape.h"
#include "runtime/base/error.h"
#include "runtime/offload/optimizer_offload.h"
#include "runtime/optim/adafactor.h"
#include "test/mpi/harness.h"
#include "test/mpi/training.h"
#include "test/support/op_check.h"
#include "test/support/temp_dir.h"

namespace shale::test {
namespace {

enum class Kind { kAdamW, kAdamWBF16, kAdamW8bit, kLion, kAdafactor, kSgd };

// How a run lies on its ranks.
struct Layout {
  comm::DataParallelOptions parallel = {};
  TrainOffload offload = {};
};

// A run of the tiny model that can be saved and loaded.
class Run {
 public:
  Run(const comm::ShardGroups& groups, comm::ProcessGroup& all, const Layout& layout,
      Kind kind = Kind::kAdamW)
      : groups_(groups),
        all_(all),
        context_(small_context(1)),
        model_(models::make_language_model(tiny_model())),
        tier_(context_, {}) {
    comm::DataParallelOptions options = layout.parallel;
    options.seed = 3;
    if (options.reproducible) batch_.global_batch = 8;
    if (layout.offload.optimizer) {
      options.offload = {.tier = &tier_,
                         .gradients = layout.offload.gradients,
                         .parameters = layout.offload.parameters};
    }
    parallel_.emplace(*model_, model_->blocks(), context_, groups, options);
    std::vector<OptimShard> shards = parallel_->shards();
    if (layout.offload.optimizer) {
      offload_.emplace(tier_, shards, layout.offload.background);
      shards = offload_->shards();
    }
    make_optimizer(kind, std::move(shards), options.stage);
  }

  // Trains steps [step(), step() + count), and returns their losses.
  std::vector<float> train(int64_t count) {
    std::vector<float> losses;
    for (const int64_t end = step_ + count; step_ < end; ++step_) {
      optimizer_->prepare(context_, step_, 1e-2f);
      std::vector<double> sums;
      const int64_t micros = batch_.global_batch / all_.size();
      for (int64_t j = 0; j < micros; ++j) {
        const int64_t first = j * all_.size() + all_.rank();
        const Tensor loss = micro_batch_loss(*model_, context_, batch_, step_, first);
        parallel_->begin_backward(/*last=*/j + 1 == micros);
        backward(loss);
        sums.push_back(to_host<float>(loss)[0]);
      }
      parallel_->finish_gradients();
      parallel_->clip_grad_norm(1);
      if (offload_) {
        offload_->step(*optimizer_);
      } else {
        optimizer_->step();
      }
      optimizer_->zero_grad();
      losses.push_back(float(comm::ordered_sum(all_, sums)));
    }
    return losses;
  }

  std::vector<comm::StatePart> parts() {
    if (offload_) offload_->finish();
    return comm::training_state(*parallel_, *optimizer_);
  }
  std::vector<comm::StatePart> share() { return share_to_write(parts(), groups_); }

  void start_save(comm::CheckpointSaver& saver) { saver.save({.step = step_}, share()); }
  void save(const std::string& folder) {
    comm::CheckpointSaver saver(all_, context_, folder, {});
    start_save(saver);
    REQUIRE(saver.finish() == step_);
  }

  void load(const std::string& checkpoint) {
    CheckpointReader reader(checkpoint);
    comm::load_training_state(reader, *parallel_, *optimizer_);
    step_ = reader.manifest().step;
  }

  // The bytes of all tensors, whole, by name. Collective.
  std::map<std::string, std::string> state() {
    std::map<std::string, std::string> whole;
    for (const comm::StatePart& part : parts()) {
      const int64_t size = dtype_size(part.values.dtype());
      std::string mine(static_cast<size_t>(part.values.bytes()), '\0');
      part.values.context().copy(mine.data(), part.values.data(), part.values.bytes());
      part.values.context().synchronize();
      std::string& bytes = whole[part.name];
      bytes.assign(static_cast<size_t>(part.shape.numel() * size), '\xee');
      const std::string first = std::to_string(part.first * size);
      const std::vector<std::string> places = groups_.shard->all_gather_bytes(first);
      const std::vector<std::string> pieces = groups_.shard->all_gather_bytes(mine);
      for (size_t rank = 0; rank < pieces.size(); ++rank) {
        bytes.replace(std::stoul(places[rank]), pieces[rank].size(), pieces[rank]);
      }
    }
    return whole;
  }

  // Overwrites all of the state with what no run has.
  void poison() {
    for (const comm::StatePart& part : parts()) {
      const std::string junk(static_cast<size_t>(part.values.bytes()), '\x5a');
      part.values.context().copy(part.values.data(), junk.data(), part.values.bytes());
    }
  }

  Context& context() { return context_; }
  comm::DataParallel& parallel() { return *parallel_; }
  optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  void make_optimizer(Kind kind, std::vector<OptimShard> shards, int stage);

  // Reproducible sums are of powers of two.
  TrainOptions batch_{.global_batch = 12, .micro_batch = 1};
  comm::ShardGroups groups_;
  comm::ProcessGroup& all_;
  Context context_;
  std::unique_ptr<models::LanguageModel> model_;
  offload::HostTier tier_;
  std::optional<comm::DataParallel> parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<offload::OptimizerOffload> offload_;  // goes before the optimizer, which it uses
  int64_t step_ = 0;
};

void Run::make_optimizer(Kind kind, std::vector<OptimShard> shards, int stage) {
  const auto adamw = [&](optim::Moments moments) {
    optimizer_ =
        std::make_unique<optim::AdamW>(std::move(shards), optim::AdamWOptions{.moments = moments});
  };
  optim::Adafactor::SumOverRanks sum;
  if (stage > 0) {
    sum = [this](const Tensor& x) {
      parallel_->shared().wait(groups_.shard->all_reduce_sum(x, {.tag = "adafactor"}));
    };
  }
  switch (kind) {
    case Kind::kAdamW: return adamw(optim::Moments::kF32);
    case Kind::kAdamWBF16: return adamw(optim::Moments::kBF16);
    case Kind::kAdamW8bit: return adamw(optim::Moments::kInt8);
    case Kind::kLion:
      optimizer_ = std::make_unique<optim::Lion>(std::move(shards), optim::LionOptions{});
      return;
    case Kind::kAdafactor:
      optimizer_ = std::make_unique<optim::Adafactor>(std::move(shards), optim::AdafactorOptions{},
                                                      std::move(sum));
      return;
    case Kind::kSgd:
      optimizer_ = std::make_unique<optim::Sgd>(std::move(shards), optim::SgdOptions{});
      return;
  }
}

// A folder that all ranks see, removed at the end. Collective.
class SharedDir {
 public:
  explicit SharedDir(comm::ProcessGroup& all) : all_(all) {
    if (all.rank() == 0) dir_.emplace();
    path_ = all.all_gather_bytes(dir_ ? dir_->path().string() : "", "folder").front();
  }
  ~SharedDir() {
    if (std::uncaught_exceptions() == 0) all_.barrier("folder is done with");
  }
  SharedDir(const SharedDir&) = delete;
  SharedDir& operator=(const SharedDir&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  comm::ProcessGroup& all_;
  std::optional<TempDir> dir_;
  std::string path_;
};

// Element n: a group of the first n ranks, null on the others. Collective over the world.
std::vector<std::unique_ptr<comm::ProcessGroup>> groups_of_first_ranks(comm::ProcessGroup& all) {
  std::vector<std::unique_ptr<comm::ProcessGroup>> groups(1);
  for (int n = 1; n <= all.size(); ++n) {
    const bool inside = all.rank() < n;
    auto group = all.split(inside ? 0 : 1 + all.rank(), all.rank(), "first ranks");
    groups.push_back(inside ? std::move(group) : nullptr);
  }
  return groups;
}

// Each stage, precision and tier at least once: saving waits for the disk.
std::vector<Layout> few_layouts() {
  return {{{.stage = 0}},
          {{.compute = DType::kBF16, .stage = 1}, {.optimizer = true}},
          {{.compute = DType::kBF16, .stage = 2}},
          {{.stage = 3}, {.optimizer = true, .gradients = true, .parameters = true}}};
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int stage : {0, 1, 2, 3}) {
    all.push_back({{.stage = stage}});
    all.push_back({{.compute = DType::kBF16, .stage = stage}});
    all.push_back({{.compute = DType::kBF16, .stage = stage}, {.optimizer = true}});
  }
  all.push_back({{.persist_below = 100, .stage = 3}});
  all.push_back({{.stage = 3}, {.optimizer = true, .gradients = true, .parameters = true}});
  return all;
}

}  // namespace

TEST_CASE("a state saved by N ranks is the same on M ranks, in every stage, precision and tier",
          "[checkpoint]") {
  const auto all = world().group();
  const SharedDir dir(*all);
  const auto groups = groups_of_first_ranks(*all);
  const std::vector<Layout> table = all->size() == 4 ? layouts() : few_layouts();
  for (int n = 1; n <= all->size(); ++n) {
    comm::ProcessGroup* const group = groups[size_t(n)].get();
    for (size_t i = 0; i < table.size(); ++i) {
      if (n < all->size() && i % 3 != size_t(n) % 3) continue;
      const std::string folder = dir / cat("from_", n, "_", i);
      std::map<std::string, std::string> want;
      if (group != nullptr) {
        Run run({.shard = group}, *group, table[i]);
        run.train(2);
        run.save(folder);
        want = run.state();
        CHECK_FALSE(Run({.shard = group}, *group, table[i]).state() == want);
      }
      all->barrier("saved");
      // Of the many pairs: every layout to every number of ranks, on another layout.
      for (int m = 1; m <= all->size(); ++m) {
        comm::ProcessGroup* const target = groups[size_t(m)].get();
        if (target == nullptr) continue;
        const size_t j = (i + size_t(m)) % table.size();
        CAPTURE(n, m, i, j);
        Run run({.shard = target}, *target, table[j]);
        run.poison();
        run.load(CheckpointFolder(folder).path_of(2));
        const auto got = run.state();
        if (group != nullptr) CHECK(got == want);  // the others do not know it
      }
      all->barrier("loaded");
    }
  }
}

TEST_CASE("a run that goes on from a checkpoint has the losses of one that was not interrupted",
          "[checkpoint]") {
  const auto all = world().group();
  if (12 % all->size() != 0) return;
  const SharedDir dir(*all);
  struct Row {
    Kind kind;
    Layout layout;
  };
  std::vector<Row> rows;
  for (const Layout& layout : layouts()) rows.push_back({Kind::kAdamW, layout});
  for (const Kind kind :
       {Kind::kAdamWBF16, Kind::kAdamW8bit, Kind::kLion, Kind::kAdafactor, Kind::kSgd}) {
    for (const int stage : {0, 3}) {
      rows.push_back({kind, {{.compute = DType::kBF16, .stage = stage}}});
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [kind, layout] = rows[i];
    CAPTURE(i, int(kind), layout.parallel.stage);
    const std::string folder = dir / std::to_string(i);
    Run run({.shard = all.get()}, *all, layout, kind);
    run.train(2);
    run.save(folder);
    const std::vector<float> want = run.train(3);
    Run again({.shard = all.get()}, *all, layout, kind);
    again.poison();
    again.load(CheckpointFolder(folder).path_of(2));
    CHECK(again.train(3) == want);
    CHECK(again.state() == run.state());
  }
}

TEST_CASE("a reproducible run goes on with the same losses on another number of ranks",
          "[checkpoint]") {
  const auto all = world().group();
  if (all->size() == 3) return;
  const SharedDir dir(*all);
  const auto groups = groups_of_first_ranks(*all);
  comm::ProcessGroup* const alone = groups[1].get();
  std::vector<float> want;
  if (alone != nullptr) {
    Run run({.shard = alone}, *alone, {{.reproducible = true}});
    run.train(2);
    want = run.train(3);
  }
  for (int n = 1; n <= all->size(); n *= 2) {
    for (int m = 1; m <= all->size(); m *= 2) {
      comm::ProcessGroup* const from = groups[size_t(n)].get();
      comm::ProcessGroup* const to = groups[size_t(m)].get();
      const std::string folder = dir / cat(n, "_", m);
      if (from != nullptr) {
        Run run({.shard = from}, *from, {{.stage = m % 4, .reproducible = true}});
        run.train(2);
        run.save(folder);
      }
      all->barrier("saved");
      if (to != nullptr) {
        CAPTURE(n, m);
        Run run({.shard = to}, *to, {{.stage = n % 4, .reproducible = true}});
        run.load(CheckpointFolder(folder).path_of(2));
        const std::vector<float> got = run.train(3);
        if (alone != nullptr) CHECK(got == want);
      }
      all->barrier("loaded");
    }
  }
}

TEST_CASE("saving beside training changes no bit, and keeps the state of its step",
          "[checkpoint]") {
  const auto all = world().group();
  if (12 % all->size() != 0) return;
  const SharedDir dir(*all);
  const std::vector<Layout> table = few_layouts();
  for (size_t i = 0; i < table.size(); ++i) {
    const Layout& layout = table[i];
    CAPTURE(i);
    const std::string folder = dir / std::to_string(i);
    Run plain({.shard = all.get()}, *all, layout);
    std::vector<float> want;
    std::vector<std::map<std::string, std::string>> states;
    for (int step = 0; step < 4; ++step) {
      want.push_back(plain.train(1)[0]);
      states.push_back(plain.state());
    }
    Run run({.shard = all.get()}, *all, layout);
    std::vector<float> got;
    std::set<int64_t> committed;
    {
      comm::CheckpointSaver saver(*all, run.context(), folder, {.keep = 2});
      const auto note = [&](std::optional<int64_t> step) {
        if (step) committed.insert(*step);
      };
      for (int step = 1; step <= 4; ++step) {
        got.push_back(run.train(1)[0]);
        note(saver.poll());
        note(saver.save({.step = step}, run.share()));
      }
      run.train(1);
      note(saver.finish());
    }
    CHECK(got == want);
    CHECK(committed == std::set<int64_t>{1, 2, 3, 4});
    CHECK(CheckpointFolder(folder).steps() == std::vector<int64_t>{4, 3});
    for (const int64_t step : {3, 4}) {
      Run loaded({.shard = all.get()}, *all, layout);
      loaded.load(CheckpointFolder(folder).path_of(step));
      CHECK(loaded.state() == states[size_t(step - 1)]);
    }
    all->barrier("looked at");
  }
}

TEST_CASE("all ranks together write every element once, and about as much each", "[checkpoint]") {
  const auto all = world().group();
  std::optional<comm::Mesh> mesh;
  if (all->size() == 4)
    mesh.emplace(*all, std::vector<comm::MeshAxis>{{"replica", 2}, {"node", 2}});
  for (const bool hybrid : {false, true}) {
    if (hybrid && !mesh) continue;
    for (const int stage : {0, 1, 2, 3}) {
      if (hybrid && stage == 0) continue;
      CAPTURE(hybrid, stage);
      comm::ShardGroups groups{.shard = all.get()};
      if (hybrid) groups = {.shard = &mesh->group("node"), .replicate = &mesh->group("replica")};
      Run run(groups, *all, {{.stage = stage}});
      std::string mine;
      int64_t my_bytes = 0;
      for (const comm::StatePart& part : run.share()) {
        mine += cat(part.name, " ", part.first, " ", part.count(), "\n");
        my_bytes += part.values.bytes();
      }
      std::map<std::string, std::map<int64_t, int64_t>> written;
      for (const std::string& list : all->all_gather_bytes(mine)) {
        std::istringstream lines(list);
        std::string name;
        int64_t first = 0, count = 0;
        while (lines >> name >> first >> count) {
          CHECK(written[name].emplace(first, count).second);
        }
      }
      int64_t total = 0;
      for (const comm::StatePart& part : run.parts()) {
        CAPTURE(part.name);
        int64_t end = 0;
        for (const auto& [first, count] : written[part.name]) {
          CHECK(first == end);
          end = first + count;
        }
        CHECK(end == part.shape.numel());
        total += end * dtype_size(part.values.dtype());
      }
      // Whole states are cut evenly, to a block of 1024 elements; shards are as even as their
      // units.
      if (stage == 0) CHECK(std::abs(my_bytes - total / all->size()) <= 4096);
    }
  }
}

TEST_CASE("a checkpoint of other tensors is refused by their names", "[checkpoint]") {
  const auto all = world().group();
  const SharedDir dir(*all);
  Run run({.shard = all.get()}, *all, {{.stage = 1}});
  run.save(dir.path());
  const auto refused = [&](Kind kind) {
    Run other({.shard = all.get()}, *all, {{.stage = 1}}, kind);
    return message_of<DataError>([&] { other.load(CheckpointFolder(dir.path()).path_of(0)); });
  };
  const std::string lion = refused(Kind::kLion);
  CHECK(contains(lion, "with also"));
  CHECK(contains(lion, "h.0.attn.c_attn.bias/v"));
  CHECK(contains(lion, "more"));
  const std::string sgd = refused(Kind::kSgd);
  CHECK(contains(sgd, "without"));
  CHECK(contains(sgd, "/momentum"));
  CHECK(contains(refused(Kind::kAdamWBF16), "wte.weight/m (fp32, want bf16)"));
}

TEST_CASE("a rank whose disk fails stops the save on all ranks; the checkpoint before it stays",
          "[checkpoint]") {
  const auto all = world().group();
  const SharedDir dir(*all);
  Run run({.shard = all.get()}, *all, {});
  comm::CheckpointSaver saver(*all, run.context(), dir.path(), {});
  run.start_save(saver);
  REQUIRE(saver.finish() == 0);
  run.train(1);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  // Files of this rank may have 4 KiB: the system refuses to write more.
  std::signal(SIGXFSZ, SIG_IGN);
  if (all->rank() == all->size() - 1) {
    const rlimit tiny{.rlim_cur = 4096, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tiny);
  }
  run.start_save(saver);
  const std::string message = message_of<Error>([&] { saver.finish(); });
  setrlimit(RLIMIT_FSIZE, &before);
  all->barrier("rank 0 has cleared away");
  CHECK(contains(message, "step 1"));
  CHECK(contains(message, "File too large"));
  CHECK(contains(message, cat("rank ", all->size() - 1)));
  CHECK(CheckpointFolder(dir.path()).steps() == std::vector<int64_t>{0});
  if (all->rank() == 0) CHECK(CheckpointFolder(dir.path()).clean() == 0);  // nothing is left of it
  run.start_save(saver);
  CHECK(saver.finish() == 1);
}

}  // namespace shale::test
