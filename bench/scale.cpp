// Counts the requests of one rank of a large job to its peers and to the file system, per step,
// save, resume, export and load. One process runs the real code for one rank at a time over a
// simulated group.
// bench_scale --ranks 4096 --out /dev/shm/scale
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/text.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/simulated_run.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/hosts/rank_places.h"
#include "shale/comm/watch/heartbeat_neighbors.h"
#include "shale/comm/watch/issued_calls.h"
#include "shale/models/training/checks/straggler_watch.h"
#include "shale/models/training/report/metrics.h"

namespace shale::bench {
namespace {

namespace fs = std::filesystem;

struct BenchConfig {
  SimulatedJob job;
  std::string out = "bench_scale";
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add("ranks", c.job.ranks, "number of ranks of the simulated job",
           {.min = 2, .max = 100'000});
  spec.add("zero", c.job.stage, "ZeRO stage of the job", {.min = 0, .max = 3});
  spec.add("layers", c.job.layers, "number of layers of the model", {.min = 1, .max = 1000});
  spec.add("width", c.job.width, "model width, a multiple of 64", {.min = 64, .max = 1 << 16});
  spec.add("out", c.out, "new folder for a checkpoint; it is removed at the end",
           {.is_path = true, .help = {.metavar = "DIR"}});
  spec.example("bench_scale --ranks 4096 --out /dev/shm/scale");
}

void add_row(Table& table, const std::string& what, const SimulatedCost& cost) {
  const comm::SimulatedCounts& traffic = cost.traffic;
  table.add({what, std::to_string(traffic.calls), std::to_string(traffic.blocking),
             std::to_string(traffic.messages), format_bytes(traffic.sent_bytes),
             format_bytes(traffic.received_bytes), std::to_string(cost.opens),
             cost.read > 0 ? std::to_string(cost.read) : "", std::to_string(cost.locks.taken),
             fixed(1e3 * cost.locks.seconds, 3), fixed(cost.seconds, 3)});
}

// Seconds of one rank's own work, outside of collectives, that could grow with the ranks or steps.
Table own_work(int ranks, const std::string& folder) {
  Table table({"own work of a rank", "s"});
  const auto add = [&](const std::string& what, const auto& body) {
    table.add({what, fixed(time_once(body), 6)});
  };
  const auto count = static_cast<size_t>(ranks);
  std::vector<double> busy_s(count, 0.1);
  busy_s.back() = 1;
  models::StragglerWatch stragglers;
  add("10 steps of the straggler watch, on rank 0", [&] {
    for (int step = 0; step < 10; ++step) stragglers.look(busy_s);
  });
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  comm::IssuedCalls calls;
  comm::Progress mine;
  float value = 0;
  const View view = make_view(&value, {1});
  for (uint64_t i = 0; i < comm::IssuedCalls::kKept; ++i) {
    calls.add(
        comm::fingerprint({.op = comm::CollectiveOp::kAllReduceSum, .in = view, .out = view}, i),
        mine);
  }
  const std::vector<comm::Progress> progress(count, mine);
  add("comparing the progress of a group", [&] { calls.disagreement(progress, all); });
  const comm::RankPlaces places;
  add("naming all ranks in an error", [&] { static_cast<void>(places.list(all)); });
  const int nodes = std::max(2, ranks / 8);
  add("choosing the nodes to watch, for all nodes", [&] {
    for (int node = 0; node < nodes; ++node)
      static_cast<void>(comm::heartbeat_neighbors(node, nodes));
  });
  constexpr int64_t kRows = 10'000'000;
  const std::string metrics = folder + "/metrics.jsonl";
  std::ofstream rows(metrics);
  for (int64_t step = 1; step <= kRows; ++step) {
    rows << "{\"step\": " << step << R"(, "loss": 3.5, "loss_bits": "40600000", "grad_norm": 0.5, )"
         << R"("lr": 0.001, "tokens": )" << step << R"(, "tokens_per_s": 1e6, "step_ms": 1000, )"
         << R"("comm_exposed_ms": 0, "mfu": null, "device_peak_bytes": 1, "host_peak_bytes": 1})"
         << '\n';
  }
  rows.close();
  sync();  // writes the run's rows to disk before it ends
  add("resuming 10 million rows of metrics, 100 of them dropped",
      [&] { drop_metrics_after(metrics, kRows - 100); });
  return table;
}

int run(int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_scale",
                  "measures what each rank of a large job costs, over a simulated group");
  describe(spec, config);
  if (parse_or_print(spec, argc, argv)) return 0;
  fs::create_directory(config.out);
  const SimulatedCheckpoint checkpoint = write_checkpoint(config.job, config.out);
  SimulatedRank rank(config.job, config.job.ranks / 2);
  Table table({"a rank's", "collectives", "blocking", "messages", "sent", "received", "opens",
               "elements read", "locks", "ms under locks", "s"});
  add_row(table, "resume, rank 0", SimulatedRank(config.job, 0).resume(checkpoint.path));
  add_row(table, "resume", rank.resume(checkpoint.path));
  rank.step();
  add_row(table, "step", rank.step());
  add_row(table, "save", rank.save(config.out));
  add_row(table, "export", rank.export_weights());
  add_row(table, "load", rank.load_weights());
  std::fputs(table.markdown().c_str(), stdout);
  std::printf(
      "\nrecords %s, manifest %s, %lld values, joined in %.3f s; gathered %lld elements of "
      "%lld\n",
      format_bytes(double(checkpoint.record_bytes)).c_str(),
      format_bytes(double(checkpoint.manifest_bytes)).c_str(),
      static_cast<long long>(checkpoint.manifest_values), checkpoint.join_s,
      static_cast<long long>(rank.gathered_elements()),
      static_cast<long long>(rank.model_elements()));
  std::printf("\n%s", own_work(config.job.ranks, config.out).markdown().c_str());
  fs::remove_all(config.out);
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::bench::run_program([&] { return shale::bench::run(argc, argv); });
}
