// A training state saved on one layout and loaded on another is bit-identical.
#include "shale/comm/checkpoint/saver.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/shard.h"
#include "shale/comm/checkpoint/spread.h"
#include "shale/comm/mesh.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

// A few layouts, because saving is slow. Each stage, precision and offload tier occurs at least
// once.
std::vector<RunLayout> few_layouts() {
  return {{{.stage = 0}},
          {{.compute = DType::kBF16, .stage = 1}, {.optimizer = true}},
          {{.compute = DType::kBF16, .stage = 2}},
          {{.stage = 3}, {.optimizer = true, .gradients = true, .parameters = true}}};
}

std::vector<RunLayout> layouts() {
  std::vector<RunLayout> all;
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
  const std::vector<RunLayout> table = all->size() == 4 ? layouts() : few_layouts();
  for (int n = 1; n <= all->size(); ++n) {
    comm::ProcessGroup* const group = groups[size_t(n)].get();
    for (size_t i = 0; i < table.size(); ++i) {
      if (n < all->size() && i % 3 != size_t(n) % 3) continue;
      const std::string folder = dir / cat("from_", n, "_", i);
      std::map<std::string, std::string> want;
      if (group != nullptr) {
        TinyRun run({.shard = group}, *group, table[i]);
        run.train(2);
        run.save(folder);
        want = run.state();
        CHECK_FALSE(TinyRun({.shard = group}, *group, table[i]).state() == want);
      }
      all->barrier("saved");
      // Tests some pairs of layouts: each saved layout is loaded on every number of ranks.
      for (int m = 1; m <= all->size(); ++m) {
        comm::ProcessGroup* const target = groups[size_t(m)].get();
        if (target == nullptr) continue;
        const size_t j = (i + size_t(m)) % table.size();
        CAPTURE(n, m, i, j);
        TinyRun run({.shard = target}, *target, table[j]);
        run.poison();
        run.load(CheckpointFolder(folder).path_of(2));
        const auto got = run.state();
        if (group != nullptr) CHECK(got == want);  // other ranks are not in the group
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
    OptimizerKind kind;
    RunLayout layout;
  };
  std::vector<Row> rows;
  for (const RunLayout& layout : layouts()) rows.push_back({OptimizerKind::kAdamW, layout});
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamWBF16, OptimizerKind::kAdamW8bit, OptimizerKind::kLion,
        OptimizerKind::kAdafactor, OptimizerKind::kSgd, OptimizerKind::kMuon}) {
    for (const int stage : {0, 3}) {
      rows.push_back({kind, {{.compute = DType::kBF16, .stage = stage}}});
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [kind, layout] = rows[i];
    CAPTURE(i, int(kind), layout.parallel.stage);
    const std::string folder = dir / std::to_string(i);
    TinyRun run({.shard = all.get()}, *all, layout, kind);
    run.train(2);
    run.save(folder);
    const std::vector<float> want = run.train(3);
    TinyRun again({.shard = all.get()}, *all, layout, kind);
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
    TinyRun run({.shard = alone}, *alone, {{.reproducible = true}});
    run.train(2);
    want = run.train(3);
  }
  for (int n = 1; n <= all->size(); n *= 2) {
    for (int m = 1; m <= all->size(); m *= 2) {
      comm::ProcessGroup* const from = groups[size_t(n)].get();
      comm::ProcessGroup* const to = groups[size_t(m)].get();
      const std::string folder = dir / cat(n, "_", m);
      if (from != nullptr) {
        TinyRun run({.shard = from}, *from, {{.stage = m % 4, .reproducible = true}});
        run.train(2);
        run.save(folder);
      }
      all->barrier("saved");
      if (to != nullptr) {
        CAPTURE(n, m);
        TinyRun run({.shard = to}, *to, {{.stage = n % 4, .reproducible = true}});
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
  const std::vector<RunLayout> table = few_layouts();
  for (size_t i = 0; i < table.size(); ++i) {
    const RunLayout& layout = table[i];
    CAPTURE(i);
    const std::string folder = dir / std::to_string(i);
    TinyRun plain({.shard = all.get()}, *all, layout);
    std::vector<float> want;
    std::vector<std::map<std::string, std::string>> states;
    for (int step = 0; step < 4; ++step) {
      want.push_back(plain.train(1)[0]);
      states.push_back(plain.state());
    }
    TinyRun run({.shard = all.get()}, *all, layout);
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
      TinyRun loaded({.shard = all.get()}, *all, layout);
      loaded.load(CheckpointFolder(folder).path_of(step));
      CHECK(loaded.state() == states[size_t(step - 1)]);
    }
    all->barrier("looked at");
  }
}

TEST_CASE("the memory for saves of a host's ranks is checked before the first step",
          "[checkpoint]") {
  const auto all = world().group();
  if (12 % all->size() != 0) return;
  const SharedDir dir(*all);
  TinyRun run({.shard = all.get()}, *all, {{.stage = 1}});
  int64_t bytes = 0;
  const auto check = [&](int64_t available) {
    comm::CheckpointSaver saver(*all, run.context(), dir / "none", {.available_memory = available});
    saver.check(run.share());
  };
  const std::string message = message_of<OutOfMemoryError>([&] { check(100); });
  CHECK(std::sscanf(message.c_str(), "checkpoint: saves need %ld bytes", &bytes) == 1);
  CHECK(contains(message, cat(" for ", all->size(), " rank")));
  CHECK(contains(message, "found 100"));
  int64_t values = 0;
  for (const StatePart& part : run.share()) values += part.values.bytes();
  all->all_reduce_sum(make_view(&values, {1}));
  CHECK(bytes > values);  // the files also have headers
  CHECK_THROWS_AS(check(bytes - 1), OutOfMemoryError);
  CHECK_NOTHROW(check(bytes));
}

TEST_CASE("ranks with folders of their own save there, and give each other their files",
          "[checkpoint]") {
  const auto all = world().group();
  if (12 % all->size() != 0) return;
  const SharedDir dir(*all);
  const RunLayout layout{{.stage = all->size() > 2 ? 0 : 3}};
  const std::string mine = dir / cat("host", all->rank());
  Folder::make(mine);
  TinyRun run({.shard = all.get()}, *all, layout);
  run.train(2);
  {
    comm::CheckpointSaver saver(*all, run.context(), mine,
                                {.keep = 1, .is_shared = false, .commits = true});
    saver.save({.step = 1}, run.share());
    saver.save({.step = 2, .state = R"({"hosts": ["a", "b", "c", "d"]})"}, run.share());
    saver.finish();
  }
  const CheckpointFolder folder(mine);
  CHECK(folder.steps() == std::vector<int64_t>{2});
  const auto shards = [&] {
    int count = 0;
    for (int r = 0; r < all->size(); ++r) {
      count += std::filesystem::exists(folder.path_of(2) + "/" + shard_file_name(r, all->size()));
    }
    return count;
  };
  CHECK(shards() == 1);
  // One rank loses its disk; nobody has its file.
  const int last = all->size() - 1;
  const std::string aside = dir / "aside";
  all->barrier("saved");
  if (all->rank() == last) std::filesystem::rename(folder.path_of(2), aside);
  const std::string message = message_of<MissingInputError>(
      [&] { comm::spread_checkpoint(*all, folder.path_of(2), true); });
  CHECK(contains(message, all->size() == 1 ? "no host has manifest.json"
                                           : cat("which host ", "abcd"[last], " wrote")));
  // Rank 0 gets all files from a copy elsewhere. The last rank still has its own file, cut in half.
  if (all->rank() == 0) {
    std::filesystem::create_directories(folder.path_of(2));
    using enum std::filesystem::copy_options;
    std::filesystem::copy(aside, folder.path_of(2), skip_existing | recursive);
  }
  if (all->rank() == last && last > 0) {
    std::filesystem::create_directories(folder.path_of(2));
    std::filesystem::copy_file(aside + "/" + shard_file_name(last, all->size()),
                               folder.path_of(2) + "/" + shard_file_name(last, all->size()));
    std::filesystem::resize_file(folder.path_of(2) + "/" + shard_file_name(last, all->size()), 9);
  }
  comm::spread_checkpoint(*all, folder.path_of(2), true);
  CHECK(shards() == all->size());
  TinyRun loaded({.shard = all.get()}, *all, layout);
  loaded.load(folder.path_of(2));
  CHECK(loaded.state() == run.state());
  all->barrier("looked at");
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
      TinyRun run(groups, *all, {{.stage = stage}});
      std::string mine;
      int64_t my_bytes = 0;
      for (const StatePart& part : run.share()) {
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
      for (const StatePart& part : run.parts()) {
        CAPTURE(part.name);
        int64_t end = 0;
        for (const auto& [first, count] : written[part.name]) {
          CHECK(first == end);
          end = first + count;
        }
        CHECK(end == part.shape.numel());
        total += end * dtype_size(part.values.dtype());
      }
      // Unsharded states are divided evenly among the ranks, in blocks of 1024 elements (4096
      // bytes).
      if (stage == 0) CHECK(std::abs(my_bytes - total / all->size()) <= 4096);
    }
  }
}

TEST_CASE("a checkpoint of other tensors is refused by their names", "[checkpoint]") {
  const auto all = world().group();
  const SharedDir dir(*all);
  TinyRun run({.shard = all.get()}, *all, {{.stage = 1}});
  run.save(dir.path());
  const auto refused = [&](OptimizerKind kind) {
    TinyRun other({.shard = all.get()}, *all, {{.stage = 1}}, kind);
    return message_of<DataError>([&] { other.load(CheckpointFolder(dir.path()).path_of(0)); });
  };
  const std::string lion = refused(OptimizerKind::kLion);
  CHECK(contains(lion, "unexpected:"));
  CHECK(contains(lion, "h.0.attn.c_attn.bias/v"));
  CHECK(contains(lion, "more"));
  const std::string sgd = refused(OptimizerKind::kSgd);
  CHECK(contains(sgd, "without"));
  CHECK(contains(sgd, "/momentum"));
  CHECK(contains(refused(OptimizerKind::kAdamWBF16), "wte.weight/m (fp32, expected bf16)"));
}

TEST_CASE("checkpoints that somebody deletes between two saves come again", "[checkpoint]") {
  const auto all = world().group();
  const SharedDir dir(*all);
  const std::string folder = dir.path() + "/checkpoints";
  TinyRun run({.shard = all.get()}, *all, {});
  comm::CheckpointSaver saver(*all, run.context(), folder, {});
  run.start_save(saver);
  REQUIRE(saver.finish() == 0);
  if (all->rank() == 0) std::filesystem::remove_all(folder);
  all->barrier("nothing is left");
  run.train(1);
  run.start_save(saver);
  CHECK(saver.finish() == 1);
  CHECK(CheckpointFolder(folder).steps() == std::vector<int64_t>{1});
  TinyRun resumed({.shard = all.get()}, *all, {});
  CHECK_NOTHROW(resumed.load(CheckpointFolder(folder).path_of(1)));
}

TEST_CASE("a rank whose disk fails stops the save on all ranks; the checkpoint before it stays",
          "[checkpoint]") {
  const auto all = world().group();
  const SharedDir dir(*all);
  TinyRun run({.shard = all.get()}, *all, {});
  comm::CheckpointSaver saver(*all, run.context(), dir.path(), {});
  run.start_save(saver);
  REQUIRE(saver.finish() == 0);
  run.train(1);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  // Limits this rank's files to 4 KiB, so that the system refuses to write more.
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
  // The failed save left no file that clean() would delete.
  if (all->rank() == 0) CHECK(CheckpointFolder(dir.path()).clean() == 0);
  run.start_save(saver);
  CHECK(saver.finish() == 1);
}

TEST_CASE("a rank that cannot copy its share stops the save on all ranks, and the next one works",
          "[checkpoint]") {
  const auto all = world().group();
  const SharedDir dir(*all);
  TinyRun run({.shard = all.get()}, *all, {});
  comm::CheckpointSaver saver(*all, run.context(), dir.path(), {});
  std::vector<StatePart> share = run.share();
  const bool is_last = all->rank() == all->size() - 1;
  if (is_last) share.back().first = -1;  // this range begins outside its tensor
  saver.save({.step = 1}, share);
  const std::string message = message_of<Error>([&] { saver.finish(); });
  all->barrier("rank 0 has cleared away");
  CHECK(contains(message, "a part that begins at element -1"));
  CHECK(contains(message, cat("rank ", all->size() - 1)));
  CHECK(CheckpointFolder(dir.path()).steps().empty());
  saver.save({.step = 1}, run.share());
  CHECK(saver.finish() == 1);
}

}  // namespace shale::test
