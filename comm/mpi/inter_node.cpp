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

}  // namespace

void InterNode::run(const CollectiveCall& call, uint64_t sequence, bool blocking) {
  current_ = fingerprint(call, sequence);
  agree(node_.announce(call, sequence, blocking));
  sent_bytes_ = 0;
  if (is_all_to_all(call.op)) return run_all_to_all(call, sequence, blocking);

  // This sync tells the ranks that are on no rail whether all nodes agree.
  if (call.count() == 0) return channel_.sync(current_, blocking);
  switch (call.op) {
    case CollectiveOp::kReduceScatterSum: return reduce_scatter(call, blocking);
    case CollectiveOp::kAllGather:
    case CollectiveOp::kGather: return all_gather(call, blocking);
    case CollectiveOp::kBroadcast: return broadcast(call, blocking);
    default: return all_reduce(call, blocking);
  }
}

// Checks that all nodes make the same call. Nodes compare 16 bytes in log2(nodes) rounds, and
// exchange details only if they disagree. A node takes part even if its own ranks disagree, because
// the other nodes would wait for it.
void InterNode::agree(const std::vector<Fingerprint>& calls) {
  // Ranks that are on no rail learn the result at the next sync. If they failed now, the rails
  // would stop before they have informed the other nodes.
  if (!on_rail()) return;
  Verdict verdict{.call = hash_of(current_) | 1};
  for (const Fingerprint& print : calls) {
    if (print != current_) verdict.call = Verdict::kDisagree;
    verdict.balance += print.balance;
  }
  verdict = merged(verdict);
  if (verdict.call == Verdict::kDisagree) report_disagreement(calls);
  if (verdict.balance != 0) report_pairs();
}

// Merges the verdicts of all nodes by recursive doubling among a power of two of nodes, the largest
// possible. Each remaining node sends its verdict to one of them and receives the result.
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

// Sends `mine` to every other node. Returns the data of all nodes.
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

// Reports that counts of an all_to_all_v do not match, although the ranks agree on everything else.
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

// ---- MPI ----

void InterNode::exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) {
  const auto nothing = [](const Transfer& t) { return t.bytes == 0; };
  std::erase_if(sends, nothing);
  std::erase_if(receives, nothing);
  if (sends.empty() && receives.empty()) return;
  requests_.assign(receives.size() + sends.size(), MPI_REQUEST_NULL);
  const auto comm = [&](const Transfer& t) { return t.rank < 0 ? rail_.get() : all_; };
  const auto peer = [](const Transfer& t) { return t.rank < 0 ? t.node : t.rank; };
  for (size_t i = 0; i < receives.size(); ++i) {
    check_mpi(MPI_Irecv(receives[i].data, static_cast<int>(receives[i].bytes), MPI_BYTE,
                        peer(receives[i]), kTag, comm(receives[i]), &requests_[i]),
              "MPI_Irecv");
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    sent_bytes_ += sends[i].bytes;
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
      channel_.ask_who_lives(/*finishing=*/false);
      std::vector<int> missing;
      for (size_t i = 0; i < requests_.size(); ++i) {
        int ended = 0;
        MPI_Request_get_status(requests_[i], &ended, MPI_STATUS_IGNORE);
        if (ended != 0) continue;
        const int node = i < receives.size() ? receives[i].node : sends[i - receives.size()].node;
        for (const int r : topology_.ranks_of[static_cast<size_t>(node)]) {
          missing.push_back(topology_.world_ranks[static_cast<size_t>(r)]);
        }
      }
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      // With more than two nodes, the named node may be alive, but wait for the missing node.
      const char* const relayed =
          topology_.nodes() > 2 ? ", or from a node that it waits for," : "";
      channel_.fail(cat("group '", channel_.options().group_name, "': no message from the node of ",
                        channel_.named(missing), relayed, " for ", channel_.limit_s(), " s in ",
                        describe(current_)));
    }
    // MPI makes progress only inside its calls, so the sleep is short.
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  requests_.clear();
}

}  // namespace shale::comm
