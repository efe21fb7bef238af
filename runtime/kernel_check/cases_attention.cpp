#include <algorithm>
#include <cmath>

#include "shale/kernels/attention_blocks.h"
#include "shale/runtime/kernel_check/cases.h"

namespace shale::kernel_check {
namespace {

// Makes q, k and v as slices of one [B, S, (H + 2 Hkv) D] tensor, as in the model.
struct PackedHeads {
  int64_t B, S, H, Hkv, D;
  DType dtype;

  Shape shape() const { return {B, S, (H + 2 * Hkv) * D}; }
  View q(const View& whole) const { return slice(whole, 0, H); }
  View k(const View& whole) const { return slice(whole, H, Hkv); }
  View v(const View& whole) const { return slice(whole, H + Hkv, Hkv); }

 private:
  View slice(const View& whole, int64_t first, int64_t heads) const {
    View view = whole;
    view.data = static_cast<char*>(whole.data) + first * D * dtype_size(dtype);
    view.shape = {B, S, heads, D};
    view.strides = {S * whole.size(2), whole.size(2), D, 1};
    return view;
  }
};

// Returns the length of sequence b of B: from S down to slightly more than S / 2.
int64_t length_of(int64_t b, int64_t B, int64_t S) {
  return S - b * S / (2 * B);
}

// Returns the number of (query, key) pairs of all sequences, relative to that of full-length
// sequences.
double share_of_pairs(int64_t B, int64_t S, bool causal) {
  double pairs = 0;
  for (int64_t b = 0; b < B; ++b) {
    const auto n = double(length_of(b, B, S));
    pairs += causal ? n * (n + 1) / 2 : n * n;
  }
  const auto full = double(S);
  return pairs / (double(B) * (causal ? full * (full + 1) / 2 : full * full));
}

// Returns the first keys of `documents` documents of S / documents tokens each.
View first_keys(Operands& o, int64_t B, int64_t S, int64_t documents) {
  const int64_t length = S / documents;
  return o.integers({B, S}, [=](int64_t i) { return int32_t(i % S / length * length); });
}

kernels::BlockLists block_lists(Operands& o, int64_t S, const AttentionVariant& variant) {
  const int64_t blocks = kernels::attention_blocks(S);
  const kernels::HostBlockLists host =
      kernels::make_block_lists(1, blocks, blocks, [&](int64_t, int64_t query) {
        std::vector<int32_t> keys;
        for (int64_t key = 0; key <= query; ++key) {
          const bool sees =
              variant.every > 0 ? (query - key) % variant.every == 0 : query - key < variant.local;
          if (sees) keys.push_back(static_cast<int32_t>(key));
        }
        return keys;
      });
  const auto array = [&](const std::vector<int32_t>& values, const Shape& shape) {
    return o.integers(shape, [&](int64_t i) { return values[static_cast<size_t>(i)]; });
  };
  const Shape begins = {1, blocks + 1};
  return {array(host.key_begins, begins), array(host.keys, {std::ssize(host.keys)}),
          array(host.query_begins, begins), array(host.queries, {std::ssize(host.queries)})};
}

View lengths(Operands& o, int64_t B, int64_t S) {
  return o.integers({B}, [=](int64_t b) { return int32_t(length_of(b, B, S)); });
}

}  // namespace

void Cases::add_attention_case(const AttentionVariant& variant) {
  const int64_t B = s_.batch, S = s_.seq, H = s_.heads, D = s_.width / s_.heads;
  const int64_t share = std::min(variant.queries_of_key, H);
  const DType dtype = dtype_;
  const PackedHeads heads{.B = B, .S = S, .H = H, .Hkv = H / share, .D = D, .dtype = dtype};
  const float scale = 1.0f / std::sqrt(float(D));
  const bool causal = variant.causal, ragged = variant.ragged;
  const int64_t window = variant.window, documents = variant.documents;
  const float softcap = variant.softcap;
  const kernels::AttentionTile tile = variant.tile;
  const CaseOptions options{.deterministic = variant.deterministic,
                            .flops_share = ragged ? share_of_pairs(B, S, causal)
                                           : documents > 1
                                               ? double(S / documents + 1) / double(S + 1)
                                               : 1,
                            .family = variant.family};
  const auto forward = [=](Operands& o) {
    const View qkv = o.floats(dtype, heads.shape(), 2);
    kernels::AttentionFwdArgs args{.q = heads.q(qkv),
                                   .k = heads.k(qkv),
                                   .v = heads.v(qkv),
                                   .out = o.zeros(dtype, {B, S, H, D}),
                                   .lse = o.zeros(DType::kF32, {B, H, S}),
                                   .scale = scale,
                                   .causal = causal};
    if (ragged) args.q_lengths = args.k_lengths = lengths(o, B, S);
    if (documents > 1) args.first_keys = first_keys(o, B, S, documents);
    args.window = window, args.softcap = softcap;
    if (variant.every > 0 || variant.local > 0) args.blocks = block_lists(o, S, variant);
    args.tile = tile;
    return args;
  };
  const auto backward = [=](Operands& o) {
    const View qkv = o.floats(dtype, heads.shape(), 2), grad = o.zeros(dtype, heads.shape());
    // With these values the probabilities of each row add up to about one, as after a real forward.
    const View lse =
        o.values({B, H, S}, [=](int64_t i) { return std::log(float(causal ? i % S + 1 : S)); });
    kernels::AttentionBwdArgs args{.q = heads.q(qkv),
                                   .k = heads.k(qkv),
                                   .v = heads.v(qkv),
                                   .out = o.floats(dtype, {B, S, H, D}),
                                   .lse = lse,
                                   .dout = o.floats(dtype, {B, S, H, D}),
                                   .dq = heads.q(grad),
                                   .dk = heads.k(grad),
                                   .dv = heads.v(grad),
                                   .scale = scale,
                                   .causal = causal};
    if (ragged) args.q_lengths = args.k_lengths = lengths(o, B, S);
    if (documents > 1) args.first_keys = first_keys(o, B, S, documents);
    args.window = window, args.softcap = softcap;
    if (variant.every > 0 || variant.local > 0) args.blocks = block_lists(o, S, variant);
    return args;
  };
  if (!variant.backward_only) {
    add<kernels::AttentionFwdArgs>(variant.name, kernels::attention_fwd, forward, options);
  }
  if (variant.forward_only) return;
  add<kernels::AttentionBwdArgs>(variant.name, kernels::attention_bwd, backward, options);
}

void Cases::add_attention() {
  add_attention_case({.name = "causal"});
  const int64_t B = s_.batch, S = s_.seq, H = s_.heads, D = s_.width / s_.heads;
  const DType dtype = dtype_;
  add<kernels::AttentionMergeArgs>("halves", kernels::attention_merge, [=](Operands& o) {
    return kernels::AttentionMergeArgs{.sum = o.floats(DType::kF32, {B, S, H, D}),
                                       .lse = o.zeros(DType::kF32, {B, H, S}),
                                       .part = o.floats(dtype, {B, S, H, D}),
                                       .part_lse = o.zeros(DType::kF32, {B, H, S})};
  });
}

// Adds attention for long sequences: plain causal attention, and three cases with fewer (query,
// key) pairs because of block masks or documents.
void Cases::add_long_attention() {
  add_attention_case({.name = "causal"});
  add_attention_case({.name = "every_8th_block", .every = 8});
  add_attention_case({.name = "local_4_blocks", .local = 4});
  add_attention_case({.name = "documents", .documents = 8});
}

void Cases::add_attention_families() {
  for (const KernelFamily family : {KernelFamily::kPortable, KernelFamily::kHopper}) {
    add_attention_case({.name = cat(family_name(family), "_causal"), .family = family});
  }
}

void Cases::add_attention_tiles() {
  using kernels::AttentionTile;
  for (const auto& [name, tile] :
       {std::pair{"64x64", AttentionTile::k64x64}, {"128x32", AttentionTile::k128x32}}) {
    add_attention_case({.name = cat("tile_", name), .tile = tile, .forward_only = true});
    add_attention_case(
        {.name = cat("tile_", name, "_full"), .causal = false, .tile = tile, .forward_only = true});
  }
}

void Cases::add_attention_variants(DeviceType device) {
  add_attention_case({.name = "full", .causal = false});
  add_attention_case({.name = "grouped", .queries_of_key = 4});
  add_attention_case({.name = "ragged", .ragged = true});
  // Each query attends to an eighth of the tokens.
  add_attention_case({.name = "window", .window = std::max<int64_t>(s_.seq / 8, 1)});
  if (s_.seq % 8 == 0) add_attention_case({.name = "documents", .documents = 8});
  add_attention_case({.name = "softcap", .softcap = 50});
  // dQ is always deterministic on the CPU, but uses atomics on GPUs by default.
  if (device == DeviceType::kCpu) return;
  add_attention_case({.name = "deterministic", .backward_only = true, .deterministic = true});
}

}  // namespace shale::kernel_check
