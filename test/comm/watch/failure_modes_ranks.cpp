// Program for test/cli/rank_failures.sh: its ranks fail in each of the ways that end a job.

#include <chrono>
#include <csignal>
#include <new>
#include <thread>
#include <vector>

#include "shale/runtime/tensor/context.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/mesh_line.h"

namespace shale::test {

// External linkage puts the function's name into the symbol table, so that the watchdog's report
// shows it.
__attribute__((noinline)) void hang_in_computation() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < end) {
  }
}

namespace {

using comm::World;

void compute_for_a_minute() {
  std::this_thread::sleep_for(std::chrono::minutes(1));
}

// Waits for rank 1, which never calls the collective.
std::unique_ptr<comm::ProcessGroup> wait_for_rank_1(World& world, const comm::GroupOptions& options,
                                                    bool async) {
  auto group = world.group(options);
  group->barrier();
  if (world.rank() == 1) return group;
  std::vector<float> values(100'000);
  const View view = make_view(values.data(), {100'000});
  group->all_reduce_sum(view, {.tag = "blocks.7 gradient", .async = async}).wait();
  return group;
}

using Links = std::vector<std::unique_ptr<comm::PipeLink>>;

Links link_to_rank_0(comm::ProcessGroup& group) {
  return group.make_links(std::vector<comm::LinkSpec>{
      {.sender = 1, .receiver = 0, .chunk = 1, .capacity_bytes = 4096}});
}

void receive(comm::PipeLink& link) {
  std::vector<float> values(1024);
  link.receive(make_view(values.data(), {1024}), {.step = 41, .micro_batch = 7, .chunk = 1}).wait();
}

// Two ranks with a link. Rank 0 waits for a message that rank 1 never sends.
struct LinkedRanks {
  std::unique_ptr<comm::ProcessGroup> group;
  Links links;
};
LinkedRanks wait_on_link(World& world, const comm::GroupOptions& options) {
  LinkedRanks ranks{.group = world.group(options), .links = {}};
  ranks.links = link_to_rank_0(*ranks.group);
  ranks.group->barrier();
  if (world.rank() == 0) receive(*ranks.links[0]);
  if (world.rank() > 1) compute_for_a_minute();
  return ranks;
}

// Rank 1 stops sending heartbeats, or hangs in a computation while its heartbeats continue. Other
// ranks wait for it.
void run_watched_mode(std::string_view mode, World& world) {
  const bool one = world.rank() == 1;
  // In modes that begin with "stopped-", main() has started the watchdog through comm::run().
  const bool waits_long = mode == "hung-long-before-the-timeout";
  if (waits_long) world.watch({.timeout_s = 600, .lost_s = 2});
  if (mode.starts_with("hung-") && !waits_long) world.watch({.timeout_s = 2});
  world.at_step(41);
  const auto group = world.group({.timeout_s = mode == "hung-in-compute" ? 2. : 60.});
  std::vector<float> values(100'000);
  const View view = make_view(values.data(), {100'000});
  group->all_reduce_sum(view, {.tag = "blocks.7 gradient"});
  const auto links = mode == "stopped-on-link" ? link_to_rank_0(*group) : Links();
  if (one) {
    if (mode == "hung-in-compute") hang_in_computation();
    std::raise(SIGSTOP);
  }
  if (mode == "stopped-while-others-compute") compute_for_a_minute();
  if (!links.empty() && world.rank() == 0) receive(*links[0]);
  group->all_reduce_sum(view, {.tag = "blocks.8 gradient", .async = true}).wait();
}

[[noreturn]] void throw_bad_data() {
  throw DataError("tokens.bin: magic is 7, expected 20240520");
}

}  // namespace

int run_failure_mode(std::string_view mode, World& world) {
  const bool one = world.rank() == 1;
  if (mode == "none") return 0;
  constexpr std::string_view kTraining = "training-";
  if (mode.starts_with(kTraining)) return fail_while_training(mode.substr(kTraining.size()), world);
  if (mode == "alike") throw ConfigError("--lr: 'fast' is not a number");
  if (mode == "each-of-its-own") throw ConfigError(cat("h.", world.rank(), " is on 3 ranks"));
  if (mode == "alone-while-others-wait") {
    const auto group = wait_for_rank_1(world, {}, /*async=*/false);
    throw_bad_data();
  }
  if (mode == "alone-while-others-wait-async") {
    const auto group = wait_for_rank_1(world, {}, /*async=*/true);
    throw_bad_data();
  }
  if (mode == "alone-while-nodes-wait") {
    const auto group = wait_for_rank_1(world, {.ranks_per_node = 1}, /*async=*/false);
    throw_bad_data();
  }
  if (mode == "alone-while-a-link-waits") {
    const LinkedRanks ranks = wait_on_link(world, {});
    throw_bad_data();
  }
  if (mode == "alone-while-a-link-between-nodes-waits") {
    const LinkedRanks ranks = wait_on_link(world, {.ranks_per_node = 1});
    throw_bad_data();
  }
  if (mode == "leaves-a-link") {
    wait_on_link(world, {});
    compute_for_a_minute();
  }
  if (mode == "alone-with-collectives-in-flight") {
    const auto group = world.group();
    if (!one) compute_for_a_minute();
    std::vector<float> values(100'000);
    const auto work = group->all_reduce_sum(make_view(values.data(), {100'000}), {.async = true});
    throw_bad_data();
  }
  if (mode == "alone-while-others-compute") {
    if (!one) compute_for_a_minute();
    throw_bad_data();
  }
  if (mode == "out-of-memory") {
    if (!one) compute_for_a_minute();
    throw std::bad_alloc();
  }
  if (mode == "unknown-exception") {
    if (!one) compute_for_a_minute();
    throw 42;
  }
  if (mode == "second-world") {
    const World second(0, nullptr);
  }
  if (mode == "disagree") {
    const auto group = world.group();
    std::vector<float> values(8);
    group->all_reduce_sum(make_view(values.data(), {one ? 7 : 8}), {.tag = "wte gradient"});
  }
  if (mode == "missing") {
    const auto group = wait_for_rank_1(world, {.timeout_s = 0.5}, /*async=*/true);
    compute_for_a_minute();
  }
  if (mode == "a-ring-stalls") {
    const auto group = world.group({.timeout_s = 0.5});
    comm::HostedExchange exchange(line_over(*group, "context"), 0);
    Context context({.threads = 1});
    const Tensor keys = empty(context, {1000}, DType::kF32);
    group->barrier();
    if (!one) exchange.begin_pass(keys).get();
    compute_for_a_minute();
  }
  if (mode == "leaves-with-an-error") {
    // The group that this returns is destroyed before the error is thrown.
    wait_for_rank_1(world, {}, /*async=*/false);
    throw_bad_data();
  }
  if (mode == "leaves") {
    wait_for_rank_1(world, {}, /*async=*/false);
    return 0;
  }
  if (mode.starts_with("stopped-") || mode.starts_with("hung-")) run_watched_mode(mode, world);
  if (mode == "killed") {
    if (one) std::raise(SIGKILL);
    wait_for_rank_1(world, {}, /*async=*/false);
  }
  throw ConfigError(cat("--fail: unknown mode '", mode, "'"));
}

}  // namespace shale::test
