// Tests collectives in host memory that add inside NUMA nodes first. Results have the bits of a sum
// over one tree, and traffic between nodes is low.

#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

// While it exists, groups of the World use simulated NUMA nodes.
struct SimulatedNodes {
  explicit SimulatedNodes(int ranks_per_node) {
    std::vector<int> nodes;
    for (int rank = 0; rank < world().size(); ++rank) nodes.push_back(rank / ranks_per_node);
    world().set_numa_nodes(std::move(nodes));
  }
  ~SimulatedNodes() { world().set_numa_nodes({}); }
  SimulatedNodes(const SimulatedNodes&) = delete;
  SimulatedNodes& operator=(const SimulatedNodes&) = delete;
};

// Returns the bytes that all ranks of the group have sent to other nodes.
double crossed(comm::ProcessGroup& group) {
  double bytes = group.traffic().totals(comm::Traffic::kGradients).crossing_bytes;
  group.host().all_reduce_sum(make_view(&bytes, {1}));
  return bytes;
}

template <typename T>
void fill(T* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) data[i] = order_value<T>(world().rank(), i);
}

}  // namespace

TEMPLATE_TEST_CASE("sums over NUMA nodes have the bits of one tree", "[many_ranks][numa]", float,
                   bf16, int64_t) {
  using T = TestType;
  const SimulatedNodes nodes(2);
  for_all_staged([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (const int64_t count : {int64_t{1}, int64_t{4099}, int64_t{130013}}) {
      CAPTURE(count);
      const Buffer buffer(setup, count * int64_t{sizeof(T)});
      fill(buffer.as<T>(), count);
      buffer.give();
      group.all_reduce_sum(buffer.view<T>(count), {.tag = "test", .stream = setup.stream});
      buffer.take();
      const auto want = [&](int64_t i) { return expected_sum<T>(group.size(), 0, i); };
      REQUIRE(first_difference(buffer.as<T>(), count, want) == -1);
    }
  });
}

TEMPLATE_TEST_CASE("a chunk crosses between NUMA nodes once", "[many_ranks][numa]", float, bf16) {
  using T = TestType;
  // Bytes per element of a partial sum (f32) and of a result.
  constexpr int64_t kSum = 4, kResult = sizeof(T);
  const int ranks = world().size();
  const int64_t nodes = ranks / 2, slice = 50001, count = slice * ranks;
  if (ranks < 4 || ranks % 2 != 0) return;  // nodes of two ranks are impossible
  const SimulatedNodes simulated(2);
  const auto group = world().group({.timeout_s = 60});
  std::vector<T> whole(static_cast<size_t>(count)), part(static_cast<size_t>(slice));
  fill(whole.data(), count);
  const View all = make_view(whole.data(), {count}), own = make_view(part.data(), {slice});
  const comm::CollectiveOptions options{.traffic = comm::Traffic::kGradients};

  // Each node sends its partial sums to the node that reduces them, which sends the results to all
  // other nodes.
  group->all_reduce_sum(all, options);
  CHECK(crossed(*group) == static_cast<double>((nodes - 1) * count * (kSum + kResult)));
  group->reset_traffic();
  group->reduce_scatter_sum(all, own, options);
  CHECK(crossed(*group) == static_cast<double>((nodes - 1) * count * kSum));
  group->reset_traffic();
  group->all_gather(own, all, options);
  CHECK(crossed(*group) == static_cast<double>((nodes - 1) * count * kResult));
  group->reset_traffic();
  group->broadcast(all, 0, options);
  CHECK(crossed(*group) == static_cast<double>((nodes - 1) * count * kResult));
}

TEST_CASE("groups that no NUMA node has two ranks of are made as without nodes", "[numa]") {
  const SimulatedNodes nodes(2);
  const auto group = world().group({.timeout_s = 60});
  const auto across = group->split(world().rank() % 2, 0, "across");
  const auto inside = group->split(world().rank() / 2, 0, "inside");
  for (comm::ProcessGroup* part : {across.get(), inside.get()}) {
    std::vector<float> values(100000, 1);
    part->all_reduce_sum(make_view(values.data(), {100000}));
    CHECK(values[99999] == static_cast<float>(part->size()));
    CHECK(part->traffic().totals().crossing_bytes == 0);
  }
}

}  // namespace shale::test
