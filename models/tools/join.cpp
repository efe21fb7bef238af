// shale join: lets the head of a run start ranks on this host, without ssh.
#include <algorithm>
#include <cstdlib>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/tools/join/handshake.h"
#include "shale/models/tools/join/node.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"

namespace shale::models {
namespace {

struct JoinOptions {
  std::string head;
  double limit_s = 600;
};

void describe(ConfigSpec& spec, JoinOptions& options) {
  spec.example("shale join 10.0.0.1:29500");
  spec.example("torchrun --nnodes 2 --nproc-per-node 8 ... --no-python shale join -- train lm ...");
  spec.add_positional("head", options.head,
                      "HOST:PORT of shale train or shale run --nodes N; "
                      "default: by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE");
  spec.section("Flags (before --; after it, the command of rank 0 if MASTER_ADDR is set)");
  spec.add("join-timeout", options.limit_s, "time to wait for the head",
           {.min = 0, .exclude_min = true, .help = {.metavar = "SECONDS", .unit = "s"}});
}

// Runs "train lm ..." or "run -- ..." on the host that is the head of the run.
int run_head(std::vector<const char*> words, double limit_s) {
  const bool trains = words.size() > 1 && std::string_view(words[0]) == "train";
  const bool runs = !words.empty() && std::string_view(words[0]) == "run";
  if (!trains && !runs) {
    throw ConfigError(
        "shale join: this is rank 0, which starts the run: expected -- and its command, such as "
        "shale join -- train lm --gpus all --data /data, found none");
  }
  const std::string limit = cat("--join-timeout=", limit_s);
  words.insert(words.begin() + (trains ? 2 : 1), {"--nodes=env", limit.c_str()});
  return (trains ? run_train : run_run)(static_cast<int>(words.size()), words.data());
}

}  // namespace

int run_join(int argc, const char* const* argv) {
  const char* const* const end = argv + argc;
  const char* const* const dashes = std::find(argv + 1, end, std::string_view("--"));
  JoinOptions options;
  ConfigSpec spec("shale join", "starts ranks on this host for a run that another host leads");
  describe(spec, options);
  if (parse_or_print(spec, static_cast<int>(dashes - argv), argv)) return 0;
  NodeOptions node{.limit_s = options.limit_s};
  if (!options.head.empty()) {
    if (dashes != end) {
      throw ConfigError(
          "shale join: expected HOST:PORT, or -- and a command for rank 0, found both");
    }
    node.head = parse_host_port("shale join", options.head);
    return run_node(node);
  }
  const auto place = torch_place([](const char* name) { return std::getenv(name); });
  if (!place) {
    throw ConfigError(
        "shale join: expected HOST:PORT of the run, or MASTER_ADDR, RANK and WORLD_SIZE in the "
        "environment, found neither");
  }
  if (place->rank == 0) return run_head({std::min(dashes + 1, end), end}, options.limit_s);
  node.head = {.host = place->address, .port = static_cast<int>(place->port)};
  node.rank = place->rank;
  node.waits = place->waits;
  return run_node(node);
}

}  // namespace shale::models
