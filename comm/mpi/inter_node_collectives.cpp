// Collectives of inter_node_internal.h except all-to-alls. Each works chunk by chunk. Staging areas
// are small, so a chunk passes through them to the rails in several rounds. The rails exchange it
// between the nodes at once. Then it passes back in several rounds.

#include <algorithm>
#include <cstring>

#include "shale/comm/mpi/inter_node_internal.h"

namespace shale::comm {
namespace {

DType accumulator(DType dtype) {
  return dtype_size(dtype) == 2 ? DType::kF32 : dtype;
}

void copy_bytes(const void* from, void* to, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

std::byte* InterNode::staged(int local, int half, int64_t element, DType dtype) const {
  return channel_.staging(local, half) + element * dtype_size(dtype);
}

Range InterNode::rail_part(int64_t count, DType dtype) const {
  return part_of(count, topology_.rails(), topology_.local, dtype);
}

// Number of elements of a slice in a chunk. A message has one rail's part of the slices of all
// ranks of a node. A node has at least as many ranks as rails, so the message has at least as many
// bytes as this part of one slice.
int64_t InterNode::slice_step(DType dtype) const {
  const int64_t message = kMessageBytes / dtype_size(dtype);
  return std::min(message, node_.chunk_elements(dtype, 1));
}

// Adds (or takes the maximum of) `count` staged elements over this node, in the accumulator dtype.
void InterNode::combine_staged(const CollectiveCall& call, int half, int64_t element, int64_t count,
                               void* output) {
  std::vector<const void*> inputs;
  for (int local = 0; local < channel_.ranks(); ++local) {
    inputs.push_back(staged(local, half, element, call.out.dtype));
  }
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = std::span(&output, 1),
                  .count = count,
                  .in_dtype = call.out.dtype,
                  .out_dtype = accumulator(call.out.dtype)});
}

void InterNode::combine_nodes(const CollectiveCall& call, std::span<const void* const> inputs,
                              int64_t count, DType out_dtype, void* output) {
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = std::span(&output, 1),
                  .count = count,
                  .in_dtype = accumulator(call.out.dtype),
                  .out_dtype = out_dtype});
}

// Copies `count` elements from `element` on to `to`, each rail's part from its staging area.
void InterNode::drain_rails(int half, int64_t element, int64_t count, std::byte* to,
                            DType dtype) const {
  for (int rail = 0; rail < topology_.rails(); ++rail) {
    const Range part = part_of(count, topology_.rails(), rail, dtype);
    copy_bytes(staged(rail, half, element + part.begin, dtype), to + part.begin * dtype_size(dtype),
               part.count() * dtype_size(dtype));
  }
}

// ---- Reduce-scatter ----

void InterNode::reduce_scatter(const CollectiveCall& call, bool blocking) {
  const DType dtype = call.out.dtype;
  const int64_t total = call.out.numel(), step = slice_step(dtype);
  for (int64_t first = 0; first < total; first += step) {
    const int64_t count = std::min(step, total - first);
    collect_sums(call, first, count, blocking);
    const int half = channel_.next_half();
    if (on_rail()) exchange_sums(call, count, half);
    channel_.sync(current_, blocking);
    copy_bytes(staged(topology_.local, half, 0, dtype), at(call.out, first),
               count * dtype_size(dtype));
  }
}

// Adds this rail's part of all slices over this node. Writes the sums to the send buffer by node.
void InterNode::collect_sums(const CollectiveCall& call, int64_t first, int64_t count,
                             bool blocking) {
  const DType dtype = call.out.dtype;
  const Range part = rail_part(count, dtype);
  const int64_t sum_bytes = part.count() * dtype_size(accumulator(dtype));
  const size_t ranks = by_node_.size();
  const auto pass =
      static_cast<size_t>(std::max<int64_t>(1, node_.chunk_elements(dtype, 1) / count));
  if (on_rail()) send_buffer_.resize(static_cast<size_t>(sum_bytes) * ranks);
  for (size_t begin = 0; begin < ranks; begin += pass) {
    const size_t end = std::min(ranks, begin + pass);
    const int half = channel_.next_half();
    for (size_t i = begin; i < end; ++i) {
      copy_bytes(at(call.in, by_node_[i] * call.out.numel() + first),
                 staged(topology_.local, half, static_cast<int64_t>(i - begin) * count, dtype),
                 count * dtype_size(dtype));
    }
    channel_.sync(current_, blocking);
    for (size_t i = begin; on_rail() && i < end; ++i) {
      combine_staged(call, half, static_cast<int64_t>(i - begin) * count + part.begin, part.count(),
                     send_buffer_.data() + static_cast<int64_t>(i) * sum_bytes);
    }
  }
}

// Adds this rail's part over the nodes, and writes the results to the staging areas of the ranks
// whose slices they are.
void InterNode::exchange_sums(const CollectiveCall& call, int64_t count, int half) {
  const DType dtype = call.out.dtype;
  const Range part = rail_part(count, dtype);
  const int64_t sum_bytes = part.count() * dtype_size(accumulator(dtype));
  const auto locals = static_cast<int64_t>(topology_.local_ranks().size());
  receive_buffer_.resize(static_cast<size_t>(sum_bytes * locals * topology_.nodes()));
  std::vector<Transfer> sends, receives;
  std::vector<const std::byte*> from_node;
  std::byte* next = send_buffer_.data();
  for (int j = 0; j < topology_.nodes(); ++j) {
    std::byte* const theirs = receive_buffer_.data() + sum_bytes * locals * j;
    const int64_t bytes =
        sum_bytes * static_cast<int64_t>(topology_.ranks_of[static_cast<size_t>(j)].size());
    from_node.push_back(j == topology_.node ? next : theirs);
    if (j != topology_.node) {
      sends.push_back({j, next, bytes});
      receives.push_back({j, theirs, sum_bytes * locals});
    }
    next += bytes;
  }
  exchange(sends, receives);
  for (int64_t i = 0; i < locals; ++i) {
    std::vector<const void*> inputs;
    for (const std::byte* sums : from_node) inputs.push_back(sums + i * sum_bytes);
    combine_nodes(call, inputs, part.count(), dtype,
                  staged(static_cast<int>(i), half, part.begin, dtype));
  }
}

// ---- All-gather and gather ----

void InterNode::all_gather(const CollectiveCall& call, bool blocking) {
  const DType dtype = call.in.dtype;
  const int64_t total = call.in.numel(), step = slice_step(dtype), size = dtype_size(dtype);
  for (int64_t first = 0; first < total; first += step) {
    const int64_t count = std::min(step, total - first);
    const int half = channel_.next_half();
    copy_bytes(at(call.in, first), staged(topology_.local, half, 0, dtype), count * size);
    channel_.sync(current_, blocking);
    const auto& locals = topology_.local_ranks();
    for (size_t i = 0; receives(call) && i < locals.size(); ++i) {
      copy_bytes(staged(static_cast<int>(i), half, 0, dtype),
                 at(call.out, locals[i] * total + first), count * size);
    }
    if (on_rail()) exchange_slices(call, count, half);
    if (node_receives(call)) distribute_slices(call, first, count, blocking);
  }
}

// Sends this rail's part of this node's slices to the other nodes. Receives their parts, in the
// order of the nodes.
void InterNode::exchange_slices(const CollectiveCall& call, int64_t count, int half) {
  const DType dtype = call.in.dtype;
  const Range part = rail_part(count, dtype);
  const int64_t bytes = part.count() * dtype_size(dtype);
  const size_t locals = topology_.local_ranks().size();
  send_buffer_.resize(static_cast<size_t>(bytes) * locals);
  receive_buffer_.resize(static_cast<size_t>(bytes) * by_node_.size());
  for (size_t i = 0; i < locals; ++i) {
    copy_bytes(staged(static_cast<int>(i), half, part.begin, dtype),
               send_buffer_.data() + static_cast<int64_t>(i) * bytes, bytes);
  }
  // Average message size. It is equal on all nodes, so all choose the same algorithm.
  const int64_t message = bytes * static_cast<int64_t>(by_node_.size()) / topology_.nodes();
  if (!is_to_root(call.op) && message < kMessageBytes) return exchange_short_slices(bytes);
  std::vector<Transfer> sends, receives;
  std::byte* next = receive_buffer_.data();
  for (int j = 0; j < topology_.nodes(); ++j) {
    if (j == topology_.node) continue;
    const auto theirs =
        bytes * static_cast<int64_t>(topology_.ranks_of[static_cast<size_t>(j)].size());
    if (!is_to_root(call.op) || j == topology_.node_of(call.root)) {
      sends.push_back({j, send_buffer_.data(), static_cast<int64_t>(send_buffer_.size())});
    }
    if (node_receives(call)) receives.push_back({j, next, theirs});
    next += theirs;
  }
  exchange(sends, receives);
}

// Does what exchange_slices() does in log2(nodes) rounds, which is faster for short slices.
void InterNode::exchange_short_slices(int64_t bytes) {
  const int nodes = topology_.nodes(), node = topology_.node;
  const auto own = send_buffer_.size(), others = receive_buffer_.size() - own;
  std::vector<int64_t> begin = {0};  // begin[i]: where slices of the i-th node after this one begin
  for (int i = 0; i < nodes; ++i) {
    const auto& ranks = topology_.ranks_of[static_cast<size_t>((node + i) % nodes)];
    begin.push_back(begin.back() + bytes * static_cast<int64_t>(ranks.size()));
  }
  const auto offset = [&](int i) { return begin[static_cast<size_t>(i)]; };
  send_buffer_.resize(own + others);
  for (int held = 1; held < nodes; held *= 2) {
    const GatherRound round(node, nodes, held);
    exchange({{round.to, send_buffer_.data(), offset(round.count)}},
             {{round.from, send_buffer_.data() + offset(held),
               offset(held + round.count) - offset(held)}});
  }
  const std::byte* const first = send_buffer_.data() + offset(nodes - node);  // slices of node 0
  const int64_t before = offset(nodes) - offset(nodes - node);
  copy_bytes(first, receive_buffer_.data(), before);
  copy_bytes(send_buffer_.data() + own, receive_buffer_.data() + before,
             static_cast<int64_t>(others) - before);
}

// Copies slices of other nodes from the rails' receive buffers to the ranks that need them.
void InterNode::distribute_slices(const CollectiveCall& call, int64_t first, int64_t count,
                                  bool blocking) {
  const DType dtype = call.in.dtype;
  const Range part = rail_part(count, dtype);
  const int64_t bytes = part.count() * dtype_size(dtype);
  std::vector<int> remote;
  for (const int rank : by_node_) {
    if (topology_.node_of(rank) != topology_.node) remote.push_back(rank);
  }
  const auto pass =
      static_cast<size_t>(std::max<int64_t>(1, node_.chunk_elements(dtype, 1) / count));
  for (size_t begin = 0; begin < remote.size(); begin += pass) {
    const size_t end = std::min(remote.size(), begin + pass);
    const int half = channel_.next_half();
    const auto place = [&](size_t i) { return static_cast<int64_t>(i - begin) * count; };
    for (size_t i = begin; on_rail() && i < end; ++i) {
      copy_bytes(receive_buffer_.data() + static_cast<int64_t>(i) * bytes,
                 staged(topology_.local, half, place(i) + part.begin, dtype), bytes);
    }
    channel_.sync(current_, blocking);
    for (size_t i = begin; receives(call) && i < end; ++i) {
      drain_rails(half, place(i), count, at(call.out, remote[i] * call.in.numel() + first), dtype);
    }
  }
}

// ---- All-reduce and reduce ----

void InterNode::all_reduce(const CollectiveCall& call, bool blocking) {
  const DType dtype = call.out.dtype;
  const int64_t total = call.out.numel(), size = dtype_size(dtype);
  const int64_t pass = node_.chunk_elements(dtype, 1);
  const int64_t message = kMessageBytes / dtype_size(accumulator(dtype));
  const int64_t step = std::max(pass, message * topology_.nodes() * topology_.rails());
  for (int64_t first = 0; first < total; first += step) {
    const int64_t end = std::min(first + step, total);
    int64_t summed = 0;  // elements whose sums are in this rank's send buffer
    for (int64_t begin = first; begin < end; begin += pass) {
      const int64_t count = std::min(pass, end - begin);
      const Range part = rail_part(count, dtype);
      const int half = channel_.next_half();
      copy_bytes(at(call.in, begin), staged(topology_.local, half, 0, dtype), count * size);
      channel_.sync(current_, blocking);
      if (!on_rail()) continue;
      const int64_t sum_bytes = dtype_size(accumulator(dtype));
      send_buffer_.resize(static_cast<size_t>((summed + part.count()) * sum_bytes));
      combine_staged(call, half, part.begin, part.count(),
                     send_buffer_.data() + summed * sum_bytes);
      summed += part.count();
    }
    if (on_rail()) sum_over_nodes(call, summed);
    if (!node_receives(call)) continue;
    int64_t given = 0;
    for (int64_t begin = first; begin < end; begin += pass) {
      const int64_t count = std::min(pass, end - begin);
      const int half = channel_.next_half();
      if (on_rail()) {
        const Range part = rail_part(count, dtype);
        copy_bytes(result_.data() + given * size, staged(topology_.local, half, part.begin, dtype),
                   part.count() * size);
        given += part.count();
      }
      channel_.sync(current_, blocking);
      if (receives(call)) drain_rails(half, 0, count, at(call.out, begin), dtype);
    }
  }
}

// Adds the `count` sums in the send buffer over the nodes. Uses a reduce-scatter and an all-gather:
// a node adds at least a full message of kMessageBytes, so only some nodes may add. Uses a tree if
// fewer than two nodes would add.
void InterNode::sum_over_nodes(const CollectiveCall& call, int64_t count) {
  const DType dtype = call.out.dtype, acc = accumulator(dtype);
  const int64_t size = dtype_size(acc);
  const int nodes = topology_.nodes(), node = topology_.node;
  result_.resize(static_cast<size_t>(count * dtype_size(dtype)));
  const auto adders = static_cast<int>(std::min<int64_t>(count * size / kMessageBytes, nodes));
  if (adders < 2) return sum_by_tree(call, count);
  const auto part = [&](int j) {
    return j < adders ? part_of(count, adders, j, acc) : Range{.begin = count, .end = count};
  };
  const int64_t own_bytes = part(node).count() * size;
  receive_buffer_.resize(static_cast<size_t>(own_bytes * nodes));
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

  const auto result = [&](int j) { return result_.data() + part(j).begin * dtype_size(dtype); };
  combine_nodes(call, inputs, part(node).count(), dtype, result(node));
  sends.clear(), receives.clear();
  for (int j = 0; j < nodes; ++j) {
    if (j == node) continue;
    if (!is_to_root(call.op) || j == topology_.node_of(call.root)) {
      sends.push_back({j, result(node), part(node).count() * dtype_size(dtype)});
    }
    if (!node_receives(call)) continue;
    receives.push_back({j, result(j), part(j).count() * dtype_size(dtype)});
  }
  exchange(sends, receives);
}

// Adds the nodes' sums up a binomial tree, in the order that inter_node_internal.h documents, and
// sends the result down the tree. Takes 2 log2(nodes) rounds.
void InterNode::sum_by_tree(const CollectiveCall& call, int64_t count) {
  const DType dtype = call.out.dtype, acc = accumulator(dtype);
  const int nodes = topology_.nodes(), node = topology_.node;
  const int64_t sum_bytes = count * dtype_size(acc), bytes = count * dtype_size(dtype);
  receive_buffer_.resize(static_cast<size_t>(sum_bytes));
  int distance = 1;
  for (; distance < nodes; distance *= 2) {
    if (node % (2 * distance) != 0) {
      exchange({{node - distance, send_buffer_.data(), sum_bytes}}, {});
      break;
    }
    if (node + distance >= nodes) continue;
    exchange({}, {{node + distance, receive_buffer_.data(), sum_bytes}});
    const void* const inputs[] = {send_buffer_.data(), receive_buffer_.data()};
    combine_nodes(call, inputs, count, acc, send_buffer_.data());
  }
  if (node == 0) {
    const void* const sums = send_buffer_.data();
    combine_nodes(call, std::span(&sums, 1), count, dtype, result_.data());
  }
  if (is_to_root(call.op)) {
    const int root = topology_.node_of(call.root);
    if (root == 0) return;
    if (node == 0) exchange({{root, result_.data(), bytes}}, {});
    if (node == root) exchange({}, {{0, result_.data(), bytes}});
    return;
  }
  if (node != 0) exchange({}, {{node - distance, result_.data(), bytes}});
  for (distance /= 2; distance > 0; distance /= 2) {
    if (node + distance < nodes) exchange({{node + distance, result_.data(), bytes}}, {});
  }
}

// ---- Broadcast ----

// Sends `bytes` at `data` from the root's node to `data` on all other nodes, down a binomial tree
// in log2(nodes) rounds.
void InterNode::broadcast_to_nodes(int root_node, std::byte* data, int64_t bytes) {
  const int nodes = topology_.nodes();
  const auto real = [&](int place) { return (place + root_node) % nodes; };
  // number of this node, counted from the root's node
  const int place = (topology_.node - root_node + nodes) % nodes;
  int distance = 1;
  while (distance < nodes && place % (2 * distance) == 0) distance *= 2;
  if (place != 0) exchange({}, {{real(place - distance), data, bytes}});
  for (distance /= 2; distance > 0; distance /= 2) {
    if (place + distance < nodes) exchange({{real(place + distance), data, bytes}}, {});
  }
}

void InterNode::broadcast(const CollectiveCall& call, bool blocking) {
  const DType dtype = call.out.dtype;
  const int64_t total = call.out.numel(), step = node_.chunk_elements(dtype, 1);
  const int me = topology_.local_ranks()[static_cast<size_t>(topology_.local)];
  const int root_node = topology_.node_of(call.root);
  const auto& beside = topology_.ranks_of[static_cast<size_t>(root_node)];
  const auto root_local =
      static_cast<int>(std::find(beside.begin(), beside.end(), call.root) - beside.begin());
  for (int64_t first = 0; first < total; first += step) {
    const int64_t count = std::min(step, total - first);
    const int half = channel_.next_half();
    if (me == call.root) {
      copy_bytes(at(call.in, first), staged(root_local, half, 0, dtype), count * dtype_size(dtype));
    }
    channel_.sync(current_, blocking);
    const Range part = on_rail() ? rail_part(count, dtype) : Range{};
    std::byte* const data =
        staged(topology_.node == root_node ? root_local : topology_.local, half, part.begin, dtype);
    if (on_rail()) broadcast_to_nodes(root_node, data, part.count() * dtype_size(dtype));
    channel_.sync(current_, blocking);
    if (me == call.root) continue;
    if (topology_.node != root_node) {
      drain_rails(half, 0, count, at(call.out, first), dtype);
    } else {
      copy_bytes(staged(root_local, half, 0, dtype), at(call.out, first),
                 count * dtype_size(dtype));
    }
  }
}

}  // namespace shale::comm
