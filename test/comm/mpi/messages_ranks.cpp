// Tests the number and length of messages between nodes, for the checks before every collective and
// for its data. Each rank pretends to be a node.
#include <mpi.h>

#include <bit>
#include <numeric>
#include <thread>
#include <vector>

#include "shale/comm/watch/group_progress_internal.h"
#include "shale/test/support/ranks/harness.h"

namespace {

std::vector<int64_t> sent_bytes;  // length of each message sent while recording
bool looking = false;

}  // namespace

// Intercepts MPI_Isend through MPI's profiling interface (PMPI).
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  if (looking) {
    int size = 0;
    MPI_Type_size(type, &size);
    sent_bytes.push_back(int64_t{count} * size);
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace shale::test {
namespace {

constexpr int64_t kVerdict = 16, kMessage = 64 << 10;

struct Sent {
  int64_t verdicts = 0;
  std::vector<int64_t> data;  // bytes of data received from other nodes
};

template <typename Call>
Sent sent_in(const Call& call) {
  sent_bytes.clear();
  looking = true;
  call();
  looking = false;
  Sent sent;
  for (const int64_t bytes : sent_bytes) {
    if (bytes == kVerdict) {
      ++sent.verdicts;
    } else {
      sent.data.push_back(bytes);
    }
  }
  return sent;
}

int64_t largest(comm::ProcessGroup& group, int64_t value) {
  group.all_reduce_max(make_view(&value, {1}));
  return value;
}

// Number of message rounds after which each node has heard from all nodes. Recursive doubling takes
// log2 rounds. Nodes beyond the largest power of two add two rounds.
int64_t verdict_rounds(int nodes) {
  const auto n = static_cast<unsigned>(nodes);
  return std::bit_width(n) - 1 + (std::has_single_bit(n) ? 0 : 1);
}

struct Nodes {
  // The staging areas are so small that a message of one rank would be far below 64 KiB.
  std::unique_ptr<comm::ProcessGroup> group =
      world().group({.timeout_s = 60, .ranks_per_node = 1, .staging_bytes = 32 << 10});
  int ranks = group->size();
  std::vector<float> in, out;
  View give(int64_t count) {
    in.assign(static_cast<size_t>(count), 1.f);
    return make_view(in.data(), {count});
  }
  View take(int64_t count) {
    out.resize(static_cast<size_t>(count));
    return make_view(out.data(), {count});
  }
};

}  // namespace

TEST_CASE("what nodes compare before a collective is 16 bytes in log2(nodes) rounds",
          "[many_ranks]") {
  if (world().size() < 2) return;
  Nodes nodes;
  const Sent sent = sent_in([&] { nodes.group->barrier(); });
  CHECK(sent.data.empty());
  CHECK(largest(*nodes.group, sent.verdicts) == verdict_rounds(nodes.ranks));
}

TEST_CASE("a short sum over nodes takes log2(nodes) rounds up a tree and down again",
          "[many_ranks]") {
  if (world().size() < 2) return;
  Nodes nodes;
  const Sent sent = sent_in([&] { nodes.group->all_reduce_sum(nodes.give(3)); });
  for (const int64_t bytes : sent.data) CHECK(bytes == 12);
  auto all = static_cast<int64_t>(sent.data.size());
  const int64_t most = largest(*nodes.group, all);
  CHECK(most <= std::bit_width(static_cast<unsigned>(nodes.ranks - 1)));
  nodes.group->all_reduce_sum(make_view(&all, {1}));
  CHECK(all == 2 * (nodes.ranks - 1));
}

TEST_CASE("a short all-gather over nodes takes log2(nodes) rounds", "[many_ranks]") {
  if (world().size() < 2) return;
  Nodes nodes;
  comm::ProcessGroup& group = *nodes.group;
  nodes.in.assign(3, static_cast<float>(group.rank()));
  const View all = nodes.take(3 * nodes.ranks);
  const Sent sent = sent_in([&] { group.all_gather(make_view(nodes.in.data(), {3}), all); });
  CHECK(sent.data.size() ==
        static_cast<size_t>(std::bit_width(static_cast<unsigned>(nodes.ranks - 1))));
  CHECK(std::accumulate(sent.data.begin(), sent.data.end(), int64_t{0}) == 12 * (nodes.ranks - 1));
  for (size_t i = 0; i < nodes.out.size(); ++i) CHECK(nodes.out[i] == static_cast<float>(i / 3));
}

TEST_CASE("the progress of a group takes log2(ranks) messages of each rank", "[many_ranks]") {
  if (!world().uses_mpi()) return;
  std::vector<int> ranks(static_cast<size_t>(world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  comm::GroupProgress progress(comm::MpiComm::split(MPI_COMM_WORLD, 0, world().rank()), ranks);
  const Sent sent = sent_in([&] {
    while (!progress.leave()) std::this_thread::yield();
  });
  CHECK(sent.data.size() == static_cast<size_t>(std::bit_width(ranks.size() - 1)));
}

TEST_CASE("messages between nodes have 64 KiB, however many ranks there are", "[many_ranks]") {
  if (world().size() < 2) return;
  Nodes nodes;
  comm::ProcessGroup& group = *nodes.group;
  const int64_t others = nodes.ranks - 1, chunks = 3, slice = chunks * kMessage / 4;
  const auto check = [&](const char* op, const Sent& sent, int64_t messages) {
    CAPTURE(op);
    CHECK(static_cast<int64_t>(sent.data.size()) == messages);
    for (const int64_t bytes : sent.data) CHECK(bytes == kMessage);
  };
  const View whole = nodes.give(slice * nodes.ranks), part = nodes.take(slice);
  check("reduce_scatter_sum", sent_in([&] { group.reduce_scatter_sum(whole, part); }),
        chunks * others);
  check("all_gather", sent_in([&] { group.all_gather(part, whole); }), chunks * others);
  check("gather", sent_in([&] { group.gather(part, whole, 0); }), group.rank() == 0 ? 0 : chunks);
  // An all-reduce is a reduce-scatter followed by an all-gather. With two nodes, each node reduces
  // half.
  check("all_reduce_sum", sent_in([&] { group.all_reduce_sum(whole); }), 2 * chunks * others);
  check("reduce_sum", sent_in([&] { group.reduce_sum(whole, 0); }),
        chunks * others + (group.rank() == 0 ? 0 : chunks));
  const View received = nodes.take(slice * nodes.ranks);
  const Sent sent = sent_in([&] { group.all_to_all(whole, received); });
  CHECK(static_cast<int64_t>(sent.data.size()) == others);
  for (const int64_t bytes : sent.data) CHECK(bytes == chunks * kMessage);
}

}  // namespace shale::test
