#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "shale/comm/mpi/inter_node_internal.h"

namespace shale::comm {
namespace {

constexpr int kTag = 1;

DType accumulator(DType dtype) {
  return dtype_size(dtype) == 2 ? DType::kF32 : dtype;
}

void copy_bytes(const void* from, void* to, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

void InterNode::run(const CollectiveCall& call, uint64_t sequence, bool blocking) {
  current_ = fingerprint(call, sequence);
  agree(node_.announce(call, sequence, blocking));
  if (is_all_to_all(call.op)) return run_all_to_all(call, sequence, blocking);

  const bool sliced = call.op == CollectiveOp::kReduceScatterSum ||
                      call.op == CollectiveOp::kAllGather || call.op == CollectiveOp::kGather;
  const int ranks = static_cast<int>(topology_.world_ranks.size());
  const DType dtype = call.out.dtype;
  const int64_t total = call.count();
  const int64_t step = node_.chunk_elements(dtype, sliced ? ranks : 1);
  // Ranks outside the lanes learn from this sync that all nodes agree, or why not.
  if (total == 0) channel_.sync(current_, blocking);
  for (int64_t offset = 0; offset < total; offset += step) {
    Chunk chunk{
        .offset = offset, .count = std::min(step, total - offset), .half = channel_.next_half()};
    fill(call, chunk);
    channel_.sync(current_, blocking);
    if (in_lane()) {
      chunk.part = part_of(chunk.count, topology_.lanes(), topology_.local, dtype);
      switch (call.op) {
        case CollectiveOp::kReduceScatterSum: exchange_reduce_scatter(call, chunk); break;
        case CollectiveOp::kAllGather:
        case CollectiveOp::kGather: exchange_all_gather(call, chunk); break;
        case CollectiveOp::kBroadcast: exchange_broadcast(call, chunk); break;
        default: exchange_all_reduce(call, chunk); break;
      }
    }
    channel_.sync(current_, blocking);
    drain(call, chunk);
  }
}

// Nodes compare what they are about to do: in log2(nodes) rounds of 16 bytes, and only if they
// disagree do they tell each other what. A node whose own ranks disagree takes part; otherwise the
// others would wait for it.
void InterNode::agree(const std::vector<Fingerprint>& calls) {
  // Ranks outside the lanes hear of it at the next sync. Were they to fail now, the lanes would
  // stop before they have told the other nodes.
  if (!in_lane()) return;
  Verdict verdict{.call = hash_of(current_) | 1};
  for (const Fingerprint& print : calls) {
    if (print != current_) verdict.call = Verdict::kDisagree;
    verdict.balance += print.balance;
  }
  verdict = merged(verdict);
  if (verdict.call == Verdict::kDisagree) report_disagreement(calls);
  if (verdict.balance != 0) report_pairs();
}

// The verdicts of all nodes: by recursive doubling among the largest power of two of them; each of
// the rest has one of these speak for it.
InterNode::Verdict InterNode::merged(Verdict mine) {
  const int nodes = topology_.nodes(), node = topology_.node;
  const int speakers = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)));
  const auto swap = [&](int with, bool send, bool receive) {
    send_buffer_.resize(sizeof mine);
    receive_buffer_.resize(sizeof mine);
    std::memcpy(send_buffer_.data(), &mine, sizeof mine);
    std::vector<Transfer> sends, receives;
    if (send) sends.push_back({with, send_buffer_.data(), sizeof mine});
    if (receive) receives.push_back({with, receive_buffer_.data(), sizeof mine});
    exchange(sends, receives);
    Verdict theirs;
    if (receive) std::memcpy(&theirs, receive_buffer_.data(), sizeof theirs);
    return theirs;
  };
  if (node >= speakers) {
    swap(node - speakers, /*send=*/true, /*receive=*/false);
    return swap(node - speakers, /*send=*/false, /*receive=*/true);
  }
  const bool speaks_for = node + speakers < nodes;
  if (speaks_for) mine.merge(swap(node + speakers, /*send=*/false, /*receive=*/true));
  for (int distance = 1; distance < speakers; distance *= 2) {
    mine.merge(swap(node ^ distance, /*send=*/true, /*receive=*/true));
  }
  if (speaks_for) swap(node + speakers, /*send=*/true, /*receive=*/false);
  return mine;
}

// Sends `mine` to every other node, and returns what each has sent, by node.
std::vector<std::vector<std::byte>> InterNode::tell_all(std::span<const std::byte> mine,
                                                        const std::vector<int64_t>& sizes) {
  std::vector<std::vector<std::byte>> all(sizes.size());
  send_buffer_.assign(mine.begin(), mine.end());
  receive_buffer_.resize(
      static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
  std::vector<Transfer> sends, receives;
  std::byte* next = receive_buffer_.data();
  for (int j = 0; j < topology_.nodes(); ++j) {
    const int64_t bytes = sizes[static_cast<size_t>(j)];
    if (j != topology_.node) {
      sends.push_back({j, send_buffer_.data(), static_cast<int64_t>(mine.size())});
      receives.push_back({j, next, bytes});
    }
    next += bytes;
  }
  exchange(sends, receives);
  for (const Transfer& receive : receives) {
    const auto* data = static_cast<const std::byte*>(receive.data);
    all[static_cast<size_t>(receive.node)].assign(data, data + receive.bytes);
  }
  all[static_cast<size_t>(topology_.node)].assign(mine.begin(), mine.end());
  return all;
}

void InterNode::report_disagreement(const std::vector<Fingerprint>& calls) {
  struct Report {
    Fingerprint call;
    char text[1000] = {};  // empty if the ranks of the node agree
  };
  std::vector<int> locals;
  for (const int r : topology_.local_ranks()) {
    locals.push_back(topology_.world_ranks[static_cast<size_t>(r)]);
  }
  const std::string local_report = disagreement(calls, locals);
  Report mine{.call = current_};
  local_report.copy(mine.text, sizeof mine.text - 1);
  const std::vector<int64_t> sizes(static_cast<size_t>(topology_.nodes()), sizeof mine);
  const auto reports = tell_all(std::as_bytes(std::span(&mine, 1)), sizes);

  const std::string prefix = cat("group '", channel_.options().group_name, "': ");
  std::vector<Fingerprint> all;
  std::vector<int> ranks;
  for (size_t j = 0; j < reports.size(); ++j) {
    Report report;
    std::memcpy(&report, reports[j].data(), sizeof report);
    if (report.text[0] != '\0') channel_.fail(cat(prefix, report.text));
    for (const int r : topology_.ranks_of[j]) {
      all.push_back(report.call);
      ranks.push_back(topology_.world_ranks[static_cast<size_t>(r)]);
    }
  }
  channel_.fail(cat(prefix, disagreement(all, ranks)));
}

// The ranks agree on what they call, but not on the counts of an all_to_all_v.
void InterNode::report_pairs() {
  const size_t ranks = topology_.world_ranks.size();
  std::vector<int64_t> mine;
  for (int local = 0; local < channel_.ranks(); ++local) {
    const SliceTable table = node_.exchange().table_of(local);
    mine.insert(mine.end(), table.in_counts.begin(), table.in_counts.end());
    mine.insert(mine.end(), table.out_counts.begin(), table.out_counts.end());
  }
  const size_t row_bytes = ranks * sizeof(int64_t);
  std::vector<int64_t> sizes;
  for (const auto& of_node : topology_.ranks_of) {
    sizes.push_back(static_cast<int64_t>(of_node.size() * 2 * row_bytes));
  }
  const auto rows = tell_all(std::as_bytes(std::span(mine)), sizes);
  std::vector<SliceTable> tables(ranks);
  for (size_t j = 0; j < rows.size(); ++j) {
    const std::byte* next = rows[j].data();
    for (const int r : topology_.ranks_of[j]) {
      SliceTable& table = tables[static_cast<size_t>(r)];
      for (std::vector<int64_t>* row : {&table.in_counts, &table.out_counts}) {
        row->resize(ranks);
        std::memcpy(row->data(), next, row_bytes);
        next += row_bytes;
      }
    }
  }
  channel_.fail(cat("group '", channel_.options().group_name, "': ranks disagree: ",
                    pair_disagreement(tables, topology_.world_ranks), " in ", describe(current_)));
}

// ---- Staging areas ----
//
// All-reduce and broadcast: the chunk. Others: a chunk of every rank's slice, by rank. A lane
// writes its results over its own part of what was staged, which no other lane reads.

std::byte* InterNode::staged(int local, const Chunk& chunk, int64_t element, DType dtype) const {
  return channel_.staging(local, chunk.half) + element * dtype_size(dtype);
}

void InterNode::fill(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.in.dtype;
  const int64_t size = dtype_size(dtype);
  const int64_t bytes = chunk.count * size;
  const auto* in = static_cast<const std::byte*>(call.in.data) + chunk.offset * size;
  const int me = topology_.local_ranks()[static_cast<size_t>(topology_.local)];
  switch (call.op) {
    case CollectiveOp::kReduceScatterSum:
      for (int64_t r = 0; r < static_cast<int64_t>(topology_.world_ranks.size()); ++r) {
        copy_bytes(in + r * call.out.bytes(),
                   staged(topology_.local, chunk, r * chunk.count, dtype), bytes);
      }
      return;
    case CollectiveOp::kAllGather:
    case CollectiveOp::kGather:
      return copy_bytes(in, staged(topology_.local, chunk, me * chunk.count, dtype), bytes);
    case CollectiveOp::kBroadcast:
      if (me != call.root) return;
      break;
    default: break;
  }
  copy_bytes(in, staged(topology_.local, chunk, 0, dtype), bytes);
}

// Sum (or maximum) over this node of `count` staged elements, as accumulators.
void InterNode::combine_staged(const CollectiveCall& call, const Chunk& chunk, int64_t element,
                               int64_t count, void* output) {
  std::vector<const void*> inputs;
  for (int local = 0; local < channel_.ranks(); ++local) {
    inputs.push_back(staged(local, chunk, element, call.out.dtype));
  }
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = std::span(&output, 1),
                  .count = count,
                  .in_dtype = call.out.dtype,
                  .out_dtype = accumulator(call.out.dtype)});
}

void InterNode::combine_nodes(const CollectiveCall& call, std::span<const void* const> inputs,
                              int64_t count, void* output) {
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = std::span(&output, 1),
                  .count = count,
                  .in_dtype = accumulator(call.out.dtype),
                  .out_dtype = call.out.dtype});
}

void InterNode::exchange_all_reduce(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype, acc = accumulator(dtype);
  const int64_t size = dtype_size(acc);
  const int nodes = topology_.nodes(), node = topology_.node;
  const auto part = [&](int j) { return part_of(chunk.part.count(), nodes, j, acc); };
  const int64_t own_bytes = part(node).count() * size;

  send_buffer_.resize(static_cast<size_t>(chunk.part.count() * size));
  receive_buffer_.resize(static_cast<size_t>(own_bytes * nodes));
  combine_staged(call, chunk, chunk.part.begin, chunk.part.count(), send_buffer_.data());
  std::vector<Transfer> sends, receives;
  std::vector<const void*> inputs;
  for (int j = 0; j < nodes; ++j) {
    std::byte* const mine = send_buffer_.data() + part(j).begin * size;
    std::byte* const theirs = receive_buffer_.data() + own_bytes * j;
    inputs.push_back(j == node ? mine : theirs);
    if (j == node) continue;
    sends.push_back({j, mine, part(j).count() * size});
    receives.push_back({j, theirs, own_bytes});
  }
  exchange(sends, receives);

  const auto result = [&](int j) {
    return staged(topology_.local, chunk, chunk.part.begin + part(j).begin, dtype);
  };
  combine_nodes(call, inputs, part(node).count(), result(node));
  const bool everywhere = call.op != CollectiveOp::kReduceSum;
  const int root_node = everywhere ? -1 : topology_.node_of(call.root);
  sends.clear(), receives.clear();
  for (int j = 0; j < nodes; ++j) {
    if (j == node) continue;
    if (everywhere || j == root_node) {
      sends.push_back({j, result(node), part(node).count() * dtype_size(dtype)});
    }
    if (!everywhere && node != root_node) continue;
    receives.push_back({j, result(j), part(j).count() * dtype_size(dtype)});
  }
  exchange(sends, receives);
}

void InterNode::exchange_reduce_scatter(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype, acc = accumulator(dtype);
  const int nodes = topology_.nodes(), node = topology_.node;
  const int64_t count = chunk.part.count(), bytes = count * dtype_size(acc);
  const auto& locals = topology_.local_ranks();
  const auto own_bytes = bytes * static_cast<int64_t>(locals.size());
  send_buffer_.resize(static_cast<size_t>(bytes) * topology_.world_ranks.size());
  receive_buffer_.resize(static_cast<size_t>(own_bytes * nodes));

  // By destination: this node's sums of the slices of the ranks there.
  std::vector<Transfer> sends, receives;
  std::vector<std::byte*> from_node;
  std::byte* next = send_buffer_.data();
  for (int j = 0; j < nodes; ++j) {
    std::byte* const begin = next;
    for (const int rank : topology_.ranks_of[static_cast<size_t>(j)]) {
      combine_staged(call, chunk, rank * chunk.count + chunk.part.begin, count, next);
      next += bytes;
    }
    std::byte* const theirs = receive_buffer_.data() + own_bytes * j;
    from_node.push_back(j == node ? begin : theirs);
    if (j == node) continue;
    sends.push_back({j, begin, next - begin});
    receives.push_back({j, theirs, own_bytes});
  }
  exchange(sends, receives);

  for (size_t i = 0; i < locals.size(); ++i) {
    std::vector<const void*> inputs;
    for (std::byte* sums : from_node) inputs.push_back(sums + static_cast<int64_t>(i) * bytes);
    combine_nodes(
        call, inputs, count,
        staged(static_cast<int>(i), chunk, locals[i] * chunk.count + chunk.part.begin, dtype));
  }
}

void InterNode::exchange_all_gather(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype;
  const int64_t bytes = chunk.part.count() * dtype_size(dtype);
  const auto& locals = topology_.local_ranks();
  send_buffer_.resize(static_cast<size_t>(bytes) * locals.size());
  receive_buffer_.resize(static_cast<size_t>(bytes) * topology_.world_ranks.size());
  const auto slice = [&](int local, int rank) {
    return staged(local, chunk, rank * chunk.count + chunk.part.begin, dtype);
  };

  for (size_t i = 0; i < locals.size(); ++i) {
    copy_bytes(slice(static_cast<int>(i), locals[i]),
               send_buffer_.data() + static_cast<int64_t>(i) * bytes, bytes);
  }
  const bool everywhere = call.op == CollectiveOp::kAllGather;
  const int root_node = everywhere ? -1 : topology_.node_of(call.root);
  std::vector<Transfer> sends, receives;
  std::byte* next = receive_buffer_.data();
  for (int j = 0; j < topology_.nodes(); ++j) {
    if (j == topology_.node) continue;
    const auto theirs =
        bytes * static_cast<int64_t>(topology_.ranks_of[static_cast<size_t>(j)].size());
    if (everywhere || j == root_node) {
      sends.push_back({j, send_buffer_.data(), static_cast<int64_t>(send_buffer_.size())});
    }
    if (!everywhere && topology_.node != root_node) continue;
    receives.push_back({j, next, theirs});
    next += theirs;
  }
  exchange(sends, receives);

  for (const Transfer& receive : receives) {
    auto* from = static_cast<std::byte*>(receive.data);
    for (const int rank : topology_.ranks_of[static_cast<size_t>(receive.node)]) {
      copy_bytes(from, slice(topology_.local, rank), bytes);
      from += bytes;
    }
  }
}

void InterNode::exchange_broadcast(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype;
  const int64_t bytes = chunk.part.count() * dtype_size(dtype);
  std::vector<Transfer> sends, receives;
  for (int j = 0; j < topology_.nodes(); ++j) {
    const auto& ranks = topology_.ranks_of[static_cast<size_t>(j)];
    const auto root = std::find(ranks.begin(), ranks.end(), call.root);
    if (root == ranks.end()) continue;
    if (j != topology_.node) {
      receives.push_back({j, staged(topology_.local, chunk, chunk.part.begin, dtype), bytes});
      continue;
    }
    const int local = static_cast<int>(root - ranks.begin());
    for (int other = 0; other < topology_.nodes(); ++other) {
      if (other == j) continue;
      sends.push_back({other, staged(local, chunk, chunk.part.begin, dtype), bytes});
    }
  }
  exchange(sends, receives);
}

// A chunk of a slice, each part from the lane that made it.
void InterNode::drain_lanes(const Chunk& chunk, int64_t slice, void* to, DType dtype) {
  for (int lane = 0; lane < topology_.lanes(); ++lane) {
    const Range part = part_of(chunk.count, topology_.lanes(), lane, dtype);
    copy_bytes(staged(lane, chunk, slice * chunk.count + part.begin, dtype),
               static_cast<std::byte*>(to) + part.begin * dtype_size(dtype),
               part.count() * dtype_size(dtype));
  }
}

void InterNode::drain(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype;
  const int64_t size = dtype_size(dtype), bytes = chunk.count * size;
  auto* const out = static_cast<std::byte*>(call.out.data) + chunk.offset * size;
  const auto& locals = topology_.local_ranks();
  const int me = locals[static_cast<size_t>(topology_.local)];
  const auto local_of = [&](int rank) {
    const auto found = std::find(locals.begin(), locals.end(), rank);
    return found == locals.end() ? -1 : static_cast<int>(found - locals.begin());
  };
  switch (call.op) {
    case CollectiveOp::kReduceScatterSum:
      return copy_bytes(staged(topology_.local, chunk, me * chunk.count, dtype), out, bytes);
    case CollectiveOp::kGather:
      if (me != call.root) return;
      [[fallthrough]];
    case CollectiveOp::kAllGather:
      for (int rank = 0; rank < static_cast<int>(topology_.world_ranks.size()); ++rank) {
        std::byte* const to = out + rank * call.in.bytes();
        if (local_of(rank) < 0) {
          drain_lanes(chunk, rank, to, dtype);
        } else {
          copy_bytes(staged(local_of(rank), chunk, rank * chunk.count, dtype), to, bytes);
        }
      }
      return;
    case CollectiveOp::kReduceSum:
      if (me != call.root) return;
      break;
    case CollectiveOp::kBroadcast:
      if (me == call.root) return;
      if (local_of(call.root) >= 0) {
        return copy_bytes(staged(local_of(call.root), chunk, 0, dtype), out, bytes);
      }
      break;
    default: break;
  }
  drain_lanes(chunk, 0, out, dtype);
}

// ---- MPI ----

void InterNode::exchange(const std::vector<Transfer>& sends,
                         const std::vector<Transfer>& receives) {
  if (sends.empty() && receives.empty()) return;
  requests_.assign(receives.size() + sends.size(), MPI_REQUEST_NULL);
  const auto comm = [&](const Transfer& t) { return t.rank < 0 ? lane_.get() : all_; };
  const auto peer = [](const Transfer& t) { return t.rank < 0 ? t.node : t.rank; };
  for (size_t i = 0; i < receives.size(); ++i) {
    check_mpi(MPI_Irecv(receives[i].data, static_cast<int>(receives[i].bytes), MPI_BYTE,
                        peer(receives[i]), kTag, comm(receives[i]), &requests_[i]),
              "MPI_Irecv");
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    check_mpi(MPI_Isend(sends[i].data, static_cast<int>(sends[i].bytes), MPI_BYTE, peer(sends[i]),
                        kTag, comm(sends[i]), &requests_[receives.size() + i]),
              "MPI_Isend");
  }
  const auto start = std::chrono::steady_clock::now();
  for (int tries = 0;; ++tries) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (done != 0) break;
    if (tries < 100) {
      sched_yield();
      continue;
    }
    channel_.check();
    if (channel_.options().poll) channel_.options().poll(/*finishing=*/false);
    if (channel_.past_deadline(start)) {
      std::vector<int> missing;
      for (size_t i = 0; i < receives.size(); ++i) {
        int received = 0;
        MPI_Request_get_status(requests_[i], &received, MPI_STATUS_IGNORE);
        if (received != 0) continue;
        for (const int r : topology_.ranks_of[static_cast<size_t>(receives[i].node)]) {
          missing.push_back(topology_.world_ranks[static_cast<size_t>(r)]);
        }
      }
      channel_.fail(cat("group '", channel_.options().group_name, "': no sign of the node of ",
                        rank_list(missing), " for ", channel_.options().timeout_s, " s in ",
                        describe(current_)));
    }
    // MPI makes progress only while it is called, so the sleep is short.
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  requests_.clear();
}

}  // namespace shale::comm
