#include "shale/comm/fingerprint.h"

#include <algorithm>
#include <cstring>

#include "shale/base/error.h"
#include "shale/base/rng.h"

namespace shale::comm {

Fingerprint fingerprint(const CollectiveCall& call, uint64_t sequence) {
  Fingerprint print{.sequence = sequence,
                    .tag_hash = hash_name(call.tag),
                    .count = call.count(),
                    .balance = call.balance,
                    .step = call.step,
                    .root = call.root,
                    .op = call.op,
                    .dtype = call.out.dtype};
  const size_t room = sizeof print.tag - 1;
  const size_t skip = call.tag.size() > room ? call.tag.size() - room : 0;
  std::memcpy(print.tag, call.tag.data() + skip, call.tag.size() - skip);
  return print;
}

std::string describe(const Fingerprint& print) {
  if (print.role != LinkRole::kNone) {
    return cat("link ", print.root, " -> ", print.peer, ": ",
               print.role == LinkRole::kSends ? "sends " : "waits for ", print.tag, ", ",
               dtype_name(print.dtype), "[", print.count, "]");
  }
  std::string text = cat(op_name(print.op), " ", print.sequence);
  if (print.op == CollectiveOp::kAllToAllV) {
    text += cat(" of ", dtype_name(print.dtype));
  } else if (print.op != CollectiveOp::kBarrier) {
    text += cat(" of ", dtype_name(print.dtype), "[", print.count, "]");
  }
  if (print.op == CollectiveOp::kBroadcast) text += cat(" from ", print.root);
  if (is_to_root(print.op)) text += cat(" to ", print.root);
  if (print.tag[0] != '\0') text += cat(" for '", print.tag, "'");
  if (print.step >= 0) text += cat(" of step ", print.step);
  return text;
}

uint64_t hash_of(const Fingerprint& print) {
  struct {
    uint64_t sequence, tag_hash, count, step, rest;
  } const fields{print.sequence, print.tag_hash, static_cast<uint64_t>(print.count),
                 static_cast<uint64_t>(print.step),
                 static_cast<uint64_t>(static_cast<uint32_t>(print.root)) << 16 |
                     static_cast<uint64_t>(print.op) << 8 | static_cast<uint64_t>(print.dtype)};
  return hash_name({reinterpret_cast<const char*>(&fields), sizeof fields});
}

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ",";
    text += cat(ranks[i]);
    if (last > i) text += cat(last == i + 1 ? "," : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string disagreement(const std::vector<Fingerprint>& calls, const std::vector<int>& ranks) {
  std::vector<size_t> kinds;  // index of the first caller of each kind
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto same = [&](size_t k) { return calls[k] == calls[i]; };
    if (std::none_of(kinds.begin(), kinds.end(), same)) kinds.push_back(i);
  }
  if (kinds.size() < 2) return {};
  std::string text = "ranks disagree: ";
  for (const size_t kind : kinds) {
    std::vector<int> callers;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i] == calls[kind]) callers.push_back(ranks[i]);
    }
    if (kind != kinds.front()) text += "; ";
    text +=
        cat(rank_list(callers), callers.size() == 1 ? " calls " : " call ", describe(calls[kind]));
  }
  return text;
}

}  // namespace shale::comm
