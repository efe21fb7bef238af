#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "shale/kernels/attention_blocks.h"
#include "shale/test/support/gpus.h"
#include "shale/test/support/ref_attention.h"

namespace shale::test {

template <typename T>
struct AttentionInputs {
  AttentionShape shape;
  std::vector<T> q, k, v, dout;  // dense arrays

  AttentionInputs(const AttentionShape& s, uint64_t seed, double std = 1)
      : shape(s),
        q(randn<T>(s.q_count(), seed, 0, std)),
        k(randn<T>(s.kv_count(), seed + 1, 0, std)),
        v(randn<T>(s.kv_count(), seed + 2)),
        dout(randn<T>(s.q_count(), seed + 3)) {}

  // Returns the reference, with the error bounds of `device`: GPUs multiply on tensor cores.
  RefAttention reference(const Device& device = {}) const {
    // A result is rounded by half an ulp; f16 results may be subnormal.
    const StorageRounding storage{.relative = ulp<T>() / 2,
                                  .absolute = std::is_same_v<T, f16> ? 0x1p-25 : 0,
                                  .operands = sizeof(T) == 2 && device.type != DeviceType::kCpu};
    return ref_attention(shape, to_f64(q), to_f64(k), to_f64(v), to_f64(dout), storage);
  }
  RefAttention rounded() const {
    return rounded_attention(shape, to_f64(q), to_f64(k), to_f64(v), to_f64(dout),
                             [](double x) { return RoundTo<T>()(x); });
  }
};

template <typename T>
struct AttentionResults {
  std::vector<T> out, dq, dk, dv;
  std::vector<float> lse;

  // Returns all values in one array, to compare bits.
  std::vector<float> all() const {
    std::vector<float> values = lse;
    for (const auto* array : {&out, &dq, &dk, &dv}) {
      for (const T& value : *array) values.push_back(to_f32(value));
    }
    return values;
  }
};

inline std::vector<Exec> attention_devices() {
  return devices_with({&kernels::attention_fwd, &kernels::attention_bwd});
}
// Returns the devices in the mode in which results are bit-reproducible: on GPUs, backward without
// atomics.
inline std::vector<Exec> reproducible_devices() {
  std::vector<Exec> all = attention_devices();
  for (Exec& exec : all) exec.deterministic = true;
  return all;
}
// Returns the devices in both modes, with and without atomics. The CPU has only one mode.
inline std::vector<Exec> attention_variants() {
  std::vector<Exec> all = attention_devices();
  for (const Exec& exec : reproducible_devices()) {
    if (is_gpu(exec)) all.push_back(exec);
  }
  return all;
}
inline std::string describe(const Exec& exec) {
  return to_string(exec.device) + (exec.deterministic ? ", deterministic" : "");
}

inline Shape q_shape(const AttentionShape& s) {
  return {s.batch, s.queries, s.heads, s.head_size};
}
inline Shape kv_shape(const AttentionShape& s) {
  return {s.batch, s.keys, s.kv_heads, s.head_size};
}

// Lengths of each sequence of a batch; if empty, all sequences have full length.
struct SequenceLengths {
  std::vector<int32_t> queries{}, keys{};
};

// Positions of the tokens of queries and keys. If a `run` is 0, no positions are given.
struct SequencePlaces {
  kernels::TokenPlaces queries{}, keys{};
};

// Returns the block lists of a shape: one list per head, or a single list if all heads see the same
// blocks.
inline kernels::HostBlockLists block_lists_of(const AttentionShape& s) {
  const int64_t query_blocks = kernels::attention_blocks(s.queries);
  const int64_t key_blocks = kernels::attention_blocks(s.keys);
  const auto keys_of = [&](int64_t head, int64_t query) {
    std::vector<int32_t> keys;
    for (int32_t key = 0; key < key_blocks; ++key) {
      if (s.sees_block(head, query, key)) keys.push_back(key);
    }
    return keys;
  };
  const auto patterns = [&](int64_t heads) {
    return kernels::make_block_lists(heads, query_blocks, key_blocks, keys_of);
  };
  const kernels::HostBlockLists all = patterns(s.heads);
  for (int64_t head = 1; head < s.heads; ++head) {
    for (int64_t query = 0; query < query_blocks; ++query) {
      if (keys_of(head, query) != keys_of(0, query)) return all;
    }
  }
  return patterns(1);
}

// Block lists in device memory.
struct DeviceBlockLists {
  DeviceArray<int32_t> key_begins, keys, query_begins, queries;
  int64_t patterns;

  DeviceBlockLists(const Exec& exec, const kernels::HostBlockLists& lists)
      : key_begins(exec, lists.key_begins),
        keys(exec, lists.keys),
        query_begins(exec, lists.query_begins),
        queries(exec, lists.queries),
        patterns(lists.patterns) {}
  kernels::BlockLists views() const {
    const auto table = [this](const DeviceArray<int32_t>& begins) {
      return begins.view({patterns, begins.size() / patterns});
    };
    return {table(key_begins), keys.view(), table(query_begins), queries.view()};
  }
};

// Runs forward and backward on dense arrays. Outputs are filled with NaN first.
template <typename T>
AttentionResults<T> run_attention(const Exec& exec, const AttentionInputs<T>& in,
                                  const SequenceLengths& lengths = {},
                                  kernels::AttentionTile tile = kernels::AttentionTile::kOfHeadSize,
                                  const SequencePlaces& places = {}) {
  const AttentionShape& s = in.shape;
  const DeviceArray<T> q(exec, in.q), k(exec, in.k), v(exec, in.v), dout(exec, in.dout);
  const DeviceArray<T> out(exec, s.q_count()), dq(exec, s.q_count());
  const DeviceArray<T> dk(exec, s.kv_count()), dv(exec, s.kv_count());
  const DeviceArray<float> lse(exec, s.lse_count());
  const DeviceArray<int32_t> q_lengths(exec, lengths.queries), k_lengths(exec, lengths.keys);
  const DeviceArray<int32_t> first_keys(exec, s.first_keys);
  const auto optional = [](const DeviceArray<int32_t>& a) { return a.size() ? a.view() : View{}; };
  std::optional<DeviceBlockLists> lists;
  if (s.sees_block) lists.emplace(exec, block_lists_of(s));
  const Shape qs = q_shape(s), kvs = kv_shape(s);
  const kernels::AttentionFwdArgs fwd{
      .q = q.view(qs),
      .k = k.view(kvs),
      .v = v.view(kvs),
      .out = out.view(qs),
      .lse = lse.view({s.batch, s.heads, s.queries}),
      .scale = static_cast<float>(s.scale),
      .causal = s.causal,
      .q_lengths = optional(q_lengths),
      .k_lengths = optional(k_lengths),
      .window = s.window,
      .first_keys = s.first_keys.empty() ? View{} : first_keys.view({s.batch, s.queries}),
      .softcap = static_cast<float>(s.softcap),
      .blocks = lists ? lists->views() : kernels::BlockLists{},
      .query_places = places.queries,
      .key_places = places.keys,
      .tile = tile};
  kernels::attention_fwd(exec, fwd);
  kernels::attention_bwd(exec, {.q = fwd.q,
                                .k = fwd.k,
                                .v = fwd.v,
                                .out = fwd.out,
                                .lse = fwd.lse,
                                .dout = dout.view(qs),
                                .dq = dq.view(qs),
                                .dk = dk.view(kvs),
                                .dv = dv.view(kvs),
                                .scale = fwd.scale,
                                .causal = fwd.causal,
                                .q_lengths = fwd.q_lengths,
                                .k_lengths = fwd.k_lengths,
                                .window = fwd.window,
                                .first_keys = fwd.first_keys,
                                .softcap = fwd.softcap,
                                .blocks = fwd.blocks,
                                .query_places = fwd.query_places,
                                .key_places = fwd.key_places});
  for (const auto* array : {&out, &dq, &dk, &dv}) {
    if (!array->margins_intact()) throw InternalError("attention wrote outside its results");
  }
  return {out.download(), dq.download(), dk.download(), dv.download(), lse.download()};
}

// Returns the first `rows` rows of sequence b.
template <typename T>
std::vector<T> rows_of(const std::vector<T>& from, int64_t sequences, int64_t b, int64_t length,
                       int64_t rows) {
  const int64_t size = static_cast<int64_t>(from.size()) / sequences;
  const int64_t row = length == 0 ? 0 : size / length;
  return {from.begin() + b * size, from.begin() + b * size + rows * row};
}

template <typename T>
AttentionInputs<T> sequence_of(const AttentionInputs<T>& all, int64_t b, int64_t queries,
                               int64_t keys) {
  AttentionInputs<T> one = all;
  const AttentionShape& s = all.shape;
  one.shape.batch = 1, one.shape.queries = queries, one.shape.keys = keys;
  one.q = rows_of(all.q, s.batch, b, s.queries, queries);
  one.dout = rows_of(all.dout, s.batch, b, s.queries, queries);
  one.k = rows_of(all.k, s.batch, b, s.keys, keys);
  one.v = rows_of(all.v, s.batch, b, s.keys, keys);
  if (!s.first_keys.empty()) {
    one.shape.first_keys = rows_of(s.first_keys, s.batch, b, s.queries, queries);
  }
  return one;
}

template <typename T>
AttentionResults<T> sequence_of(const AttentionResults<T>& all, const AttentionShape& s,
                                int64_t b) {
  AttentionResults<T> one;
  one.out = rows_of(all.out, s.batch, b, s.queries, s.queries);
  one.dq = rows_of(all.dq, s.batch, b, s.queries, s.queries);
  one.dk = rows_of(all.dk, s.batch, b, s.keys, s.keys);
  one.dv = rows_of(all.dv, s.batch, b, s.keys, s.keys);
  one.lse = rows_of(all.lse, s.batch, b, 1, 1);
  return one;
}

inline std::string describe(const AttentionShape& s) {
  return cat("B ", s.batch, ", Tq ", s.queries, ", Tk ", s.keys, ", H ", s.heads, "/", s.kv_heads,
             ", D ", s.head_size, s.causal ? ", causal" : ", full", ", window ", s.window,
             s.first_keys.empty() ? "" : ", first keys", ", softcap ", s.softcap,
             s.sees_block ? ", blocks" : "");
}

}  // namespace shale::test
