// Compares the kinds of context parallelism with attention over whole sequences, and the traffic
// and memory of each kind with the formulas of docs/explanation/parallelism.md.
#include <cmath>

#include "shale/base/error.h"
#include "shale/comm/parallel/context/cut_attention.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/block_mask.h"
#include "shale/test/comm/parallel/context/cut_case.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/watched_exchange.h"

namespace shale::test {
namespace {

using comm::ContextKind;

constexpr ContextKind kKinds[] = {ContextKind::kGather, ContextKind::kRing, ContextKind::kUlysses,
                                  ContextKind::kUlyssesRing};
constexpr ContextKind kOthers[] = {ContextKind::kRing, ContextKind::kUlysses,
                                   ContextKind::kUlyssesRing};

// Sizes of an attention call.
struct Sizes {
  int64_t B = 2, T = 64, H = 4, G = 4, D = 8;
};

// Results of attention forward and backward on one rank's part of inputs made from `seed`.
struct Run {
  std::vector<float> out, dq, dk, dv;

  std::vector<std::vector<float>> all() const { return {out, dq, dk, dv}; }
};

// First key that each query attends to, as i32. Each document has 11 tokens.
std::vector<float> first_keys(const Sizes& s) {
  std::vector<float> keys;
  for (int64_t i = 0; i < s.B * s.T; ++i) keys.push_back(float(i % s.T / 11 * 11));
  return keys;
}

Tensor as_integers(Context& context, const std::vector<float>& values, const Shape& shape) {
  return from_host<int32_t>(context, std::vector<int32_t>(values.begin(), values.end()), shape);
}

std::vector<float> f32_values(const Tensor& x) {
  std::vector<float> values(size_t(x.numel()));
  if (x.dtype() == DType::kF32) return to_host<float>(x);
  const std::vector<bf16> stored = to_host<bf16>(x);
  std::transform(stored.begin(), stored.end(), values.begin(), [](bf16 v) { return to_f32(v); });
  return values;
}

// `cut` is null for whole sequences. `has_documents` says whether to set
// AttentionOptions::first_keys.
Run attend(Context& context, comm::CutSequence* cut, const Sizes& s, DType dtype,
           AttentionOptions options, bool has_documents) {
  const int64_t n = cut != nullptr ? cut->parts().count : 1;
  const int64_t T = cut != nullptr ? 2 * cut->chunk_tokens() : s.T;
  const auto own = [&](const std::vector<float>& x) {
    return cut != nullptr ? own_of(x, s.B, s.T, *cut) : x;
  };
  const auto tensor = [&](int64_t heads, uint64_t seed) {
    const Shape shape = {n * s.B, T, heads, s.D};
    const std::vector<float> values = own(randn<float>(s.B * s.T * heads * s.D, seed));
    if (dtype == DType::kF32) return leaf(context, shape, values);
    return from_host<bf16>(context, std::vector<bf16>(values.begin(), values.end()), shape)
        .set_requires_grad(true);
  };
  if (has_documents) {
    options.first_keys = as_integers(context, own(first_keys(s)), {n * s.B, T});
  }
  const Tensor q = tensor(s.H, 1), k = tensor(s.G, 2), v = tensor(s.G, 3);
  const Tensor y =
      cut != nullptr ? comm::attention(*cut, q, k, v, options) : shale::attention(q, k, v, options);
  backward(y, tensor(s.H, 4).detach());
  return {f32_values(y), f32_values(q.grad()), f32_values(k.grad()), f32_values(v.grad())};
}

bool deals_out(ContextKind kind, int64_t heads, int ranks) {
  return kind != ContextKind::kUlysses || heads % ranks == 0;
}

}  // namespace

TEST_CASE("all kinds see what whole sequences see", "[context][many_ranks]") {
  const auto group = world().group();
  Context context(small_context(1));
  for (const int64_t T : {int64_t{37}, int64_t{16} * group->size()}) {
    for (const auto& [window, has_documents] :
         {std::pair(0, false), {5, false}, {0, true}, {30, true}}) {
      const Sizes sizes{.T = T, .H = 8};
      // Padding would need a document of its own.
      if (has_documents && T % (2 * group->size()) != 0) continue;
      const AttentionOptions options{.window = window, .softcap = window == 5 ? 2.f : 0.f};
      const Run whole = attend(context, nullptr, sizes, DType::kF32, options, has_documents);
      for (const ContextKind kind : kKinds) {
        if (!deals_out(kind, sizes.G, group->size())) continue;
        CAPTURE(T, window, has_documents, int(kind), group->size());
        comm::CutSequence cut = cut_over(*group, T, kind);
        const Run run = attend(context, &cut, sizes, DType::kF32, options, has_documents);
        // Context parallelism tiles and merges the softmax over the same keys differently, which
        // gives a few roundings of values near 1. Results for padding are ignored.
        for (size_t i = 0; i < 4; ++i) {
          const std::vector<float> all = whole.all()[i];
          std::vector<float> got = run.all()[i], want = own_of(all, sizes.B, T, cut);
          const std::vector<float> real =
              own_of(std::vector<float>(all.size(), 1), sizes.B, T, cut);
          for (size_t j = 0; j < got.size(); ++j) got[j] *= real[j];
          CHECK(largest_difference(got, want) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("attention has the same bits for mesh ranks of one process and of several",
          "[context][gate]") {
  const auto group = world().group();
  if (group->size() != 1 && group->size() != 2 && group->size() != 4) return;
  // Runs eight mesh ranks, either all in one process or distributed evenly over the processes.
  // Element r of the result is that of mesh rank r.
  const auto over = [&](comm::ProcessGroup& processes, ContextKind kind, DType dtype) {
    Context context(small_context(1));
    comm::HostedRanks ranks(context, 8 / processes.size());
    const auto line = line_over(processes, "context", &ranks);
    std::vector<Run> runs(8);
    ranks.run([&](int rank) {
      const Sizes sizes{.T = 75, .H = 8, .G = 8};
      comm::CutSequence cut(std::make_unique<comm::HostedExchange>(line, rank), sizes.T, kind);
      runs[size_t(line->rank_of(rank))] =
          attend(context, &cut, sizes, dtype, {.window = 30}, /*has_documents=*/false);
    });
    return runs;
  };
  for (const ContextKind kind : {ContextKind::kGather, ContextKind::kRing, ContextKind::kUlysses}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      CAPTURE(int(kind), dtype_name(dtype));
      const std::vector<Run> want = over(alone(), kind, dtype), got = over(*group, kind, dtype);
      for (size_t rank = 0; rank < want.size(); ++rank) {
        // This mesh rank belongs to another process.
        if (int(rank) * group->size() / 8 != group->rank()) continue;
        CHECK(got[rank].all() == want[rank].all());
      }
    }
  }
}

TEST_CASE("in bf16 a ring's sums are in f32", "[context][many_ranks]") {
  const auto group = world().group();
  Context context(small_context(1));
  const Sizes sizes{.T = 32 * group->size(), .H = 8};
  const Run whole = attend(context, nullptr, sizes, DType::kBF16, {}, false);
  comm::CutSequence cut = cut_over(*group, sizes.T, ContextKind::kRing);
  const Run run = attend(context, &cut, sizes, DType::kBF16, {}, false);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<float> want = own_of(whole.all()[i], sizes.B, sizes.T, cut);
    float largest = 0;
    for (const float x : want) largest = std::max(largest, std::abs(x));
    // Whole and ring attention both round their results to bf16, by 2^-8 of the largest value. The
    // ring also rounds the result for each rank's keys. Forward adds one rounding for the weighted
    // sum; backward adds one per rank for the sum of gradients.
    const double roundings = i == 0 ? 3 : 2 + 2 * group->size();
    CHECK(largest_difference(run.all()[i], want) < roundings * 0x1p-8 * double(largest));
  }
}

TEST_CASE("keys go around behind the attention of those before, and change no bit",
          "[context][many_ranks]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks == 1) return;
  const Sizes sizes{.T = 32 * ranks};
  std::vector<std::vector<float>> before;
  for (const bool overlap : {false, true}) {
    Context context(small_context(1));
    auto exchange = std::make_unique<WatchedExchange>(
        line_over(*group, "context", nullptr, overlap), 0,
        std::vector<std::string>{"attention_fwd", "attention_bwd"});
    WatchedExchange& watched = *exchange;
    context.set_tracer(&watched.tracer);
    comm::CutSequence cut(std::move(exchange), sizes.T, ContextKind::kRing);
    const Run run = attend(context, &cut, sizes, DType::kF32, {}, false);
    // One attention call overlaps each transfer of keys, and each transfer of the previous rank's
    // gradient sums. Only the last transfer, which returns the sums, overlaps no call.
    std::vector<int64_t> calls(size_t(3 * (ranks - 1)), 1);
    calls.push_back(0);
    CHECK(watched.passes == calls);
    if (overlap) CHECK(run.all() == before);
    before = run.all();
  }
}

TEST_CASE("a ring computes the pairs of ranks of which a window shows something", "[context]") {
  if (world().size() != 1) return;
  Context context(small_context(1));
  comm::HostedRanks ranks(context, 4);
  Tracer tracer;
  context.set_tracer(&tracer);
  const Sizes sizes{.T = 64};
  for (const auto& [window, pairs] : {std::pair(0, 16), {3, 10}, {9, 10}, {10, 14}}) {
    // Each of four ranks has two chunks of 8 tokens. With a window of 3 or 9 tokens, a rank needs
    // its own keys, the previous rank's for its first chunk of queries, and the next rank's for its
    // last chunk. With 10 tokens it also needs the keys of the ranks two before and two after it.
    const auto line = line_over(alone(), "context", &ranks);
    tracer.reset();
    ranks.run([&](int rank) {
      comm::CutSequence cut(std::make_unique<comm::HostedExchange>(line, rank), sizes.T,
                            ContextKind::kRing);
      attend(context, &cut, sizes, DType::kF32, {.window = window}, false);
    });
    CAPTURE(window);
    CHECK(tracer.totals()["attention_fwd"].calls == pairs);
    CHECK(tracer.totals()["attention_bwd"].calls == pairs);
  }
}

TEST_CASE("a ring has keys of two ranks in memory at a time", "[context][many_ranks]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks == 1) return;
  // The allocator does not round up these sizes.
  const Sizes sizes{.B = 1, .T = 512 * ranks, .H = 2, .G = 2, .D = 64};
  const int64_t of_rank = 2 * sizes.T / ranks * sizes.G * sizes.D * 4, queries = of_rank / 2;
  const auto peak = [&](ContextKind kind) {
    Context context(small_context(1));
    comm::CutSequence cut = cut_over(*group, sizes.T, kind);
    const Tensor x = random_leaf(context, {1, cut.parts().own_tokens(sizes.T), 2, 64}, 1);
    const NoGrad no_grad(context);
    comm::attention(cut, x, x, x);  // the first call allocates the kernel's scratch memory
    const int64_t before = context.allocator().stats().allocated;
    context.allocator().reset_peak();
    const Tensor y = comm::attention(cut, x, x, x);
    return context.allocator().stats().peak_allocated - before;
  };
  // Memory besides keys: the result, one partial result, and softmax sums per query and head.
  const int64_t lse = queries / sizes.D, others = 2 * queries + 2 * lse;
  CHECK(peak(ContextKind::kRing) <= 2 * of_rank + others);
  CHECK(peak(ContextKind::kRing) > 2 * of_rank);
  CHECK(peak(ContextKind::kGather) >= ranks * of_rank + queries);
}

TEST_CASE("a rank sends what the formula of its kind says", "[context][many_ranks]") {
  const auto group = world().group();
  const int ranks = group->size();
  Context context(small_context(1));
  const Sizes s{.T = 8 * ranks, .H = 8};
  const auto sent = [&] { return group->traffic().totals(comm::Traffic::kActivations).sent_bytes; };
  for (const ContextKind kind : kOthers) {
    if (!deals_out(kind, s.G, ranks)) continue;
    CAPTURE(int(kind), ranks);
    comm::CutSequence cut = cut_over(*group, s.T, kind);
    const int64_t own = cut.parts().own_tokens(s.T);
    const Tensor q = random_leaf(context, {s.B, own, s.H, s.D}, 1);
    const Tensor k = random_leaf(context, {s.B, own, s.G, s.D}, 2);
    const Tensor v = random_leaf(context, {s.B, own, s.G, s.D}, 3);
    const double start = sent();
    const Tensor y = comm::attention(cut, q, k, v);
    const double forward = sent() - start;
    backward(y, full(context, y.shape(), DType::kF32, 1));
    const double both = sent() - start;
    const double tokens = double(s.B * s.T);
    // `traders` is the size of the groups that exchange heads. Each ring connects these groups, and
    // has 1 / traders of the heads.
    const int traders = kind == ContextKind::kUlysses ? ranks : context_group(kind, ranks);
    const int ring = ranks / traders;
    const auto share = [](int of) { return double(of - 1) / of; };
    const double heads = share(traders) * tokens / ranks * double(2 * (s.H + s.G) * s.D * 4);
    const double keys = share(ring) * tokens * double(2 * s.G / traders * s.D * 4);
    CHECK(forward == Approx(heads + keys));
    // Gradient sums in f32 travel around the whole ring.
    const double sums = ring > 1 ? tokens * double(8 * s.G / traders * s.D) : 0;
    CHECK(both == Approx(2 * (heads + keys) + sums));
  }
}

TEST_CASE("sequences that are cut train as whole ones do, whatever the kind", "[context]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4) return;
  for (const std::string family : {"gpt2", "mistral"}) {
    models::LanguageModelConfig model = long_model(family);
    model.heads = 4;
    if (family != "gpt2") model.kv_heads = 4;
    TrainOptions options{.micro_batch = 2, .steps = 3, .recompute = Recompute::kSelective};
    options.length = 22;  // 22 tokens are padded
    options.dropout = family == "gpt2" ? 0.1f : 0;
    const Trained want = train_pipeline(alone(), model, {.micro_batches = 4}, options);
    for (const ContextKind kind : kOthers) {
      options.context_kind = kind;
      for (const int stage : {0, 2, 3}) {
        CAPTURE(family, int(kind), stage);
        options.parallel.stage = stage;
        const Trained got =
            train_pipeline(*all, model, {.context = ranks, .micro_batches = 4}, options);
        for (size_t i = 0; i < want.losses.size(); ++i) {
          // The orders of additions differ: roundings of 2^-24 for each of several hundred
          // additions.
          CHECK(std::abs(got.losses[i] - want.losses[i]) < 2e-5f * want.losses[i]);
          CHECK(std::abs(got.norms[i] - want.norms[i]) < 1e-4f * want.norms[i]);
        }
      }
    }
  }
}

TEST_CASE("four shards make the bits of one rank, whatever the kind",
          "[context][gate][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 1 && ranks != 2 && ranks != 4 && ranks != 8) return;
  constexpr int64_t kMicroBatches = 4;
  for (const std::string family : {"gpt2", "mistral"}) {
    models::LanguageModelConfig model = long_model(family);
    model.heads = 4;
    if (family != "gpt2") model.kv_heads = 4;
    TrainOptions options{.micro_batch = 2, .steps = 3};
    options.length = 22;  // 22 tokens are padded to 24
    options.context_shards = 4;
    options.dropout = family == "gpt2" ? 0.1f : 0;
    options.parallel = {.reproducible = true};
    Trained of_ring;
    for (const ContextKind kind : kOthers) {
      options.context_kind = kind;
      options.parallel.stage = 0;
      const Trained want =
          train_pipeline(alone(), model, {.micro_batches = kMicroBatches}, options);
      REQUIRE(std::isfinite(want.losses.back()));
      if (kind == ContextKind::kRing) of_ring = want;
      if (kind == ContextKind::kUlyssesRing) CHECK(same(want, of_ring));
      for (int context = 1; context <= std::min(ranks, 4); context *= 2) {
        if (ranks / context > kMicroBatches) continue;
        const int64_t micro_batches = kMicroBatches * context / ranks;
        for (const int stage : {0, 1, 2, 3}) {
          CAPTURE(family, int(kind), context, stage);
          options.parallel.stage = stage;
          const PipelineRun run{.context = context, .micro_batches = micro_batches};
          CHECK(same(train_pipeline(*all, model, run, options), want));
        }
        if (2 * context > ranks) continue;
        CAPTURE(family, int(kind), context);
        options.parallel.stage = 1;
        const PipelineRun run{.ranks = 2, .context = context, .micro_batches = 2 * micro_batches};
        CHECK(same(train_pipeline(*all, model, run, options), want));
      }
    }
  }
}

TEST_CASE("kinds with shards of layers, low precision and recomputation make the bits of one rank",
          "[context][tensor][gate][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4) return;
  models::LanguageModelConfig model = long_model("llama");
  model.heads = model.kv_heads = 4;
  TrainOptions options{.micro_batch = 2, .steps = 3, .loss_scale = 1024};
  options.length = 22;  // 22 tokens are padded to 24
  options.context_shards = options.tensor_shards = 2;
  for (const ContextKind kind : kOthers) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      options.context_kind = kind;
      options.recompute = Recompute::kNone;
      options.parallel = {.compute = compute, .stage = 1, .reproducible = true};
      const Trained want = train_pipeline(alone(), model, {.micro_batches = 2}, options);
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        CAPTURE(int(kind), dtype_name(compute), int(recompute));
        options.recompute = recompute;
        const PipelineRun run{.tensor = ranks / 2, .context = 2, .micro_batches = 2};
        CHECK(same(train_pipeline(*all, model, run, options), want));
      }
    }
  }
}

TEST_CASE("kinds that do not fit say what does", "[context]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  Context context(small_context(1));
  const auto attention_of = [&](ContextKind kind, int64_t keys, const AttentionOptions& options) {
    comm::CutSequence cut = cut_over(*group, 512, kind);
    const Tensor q = random_leaf(context, {1, 256, 3 * keys, 8}, 1);
    const Tensor k = random_leaf(context, {1, 256, keys, 8}, 2);
    return comm::attention(cut, q, k, k, options);
  };
  CHECK_THROWS_WITH(attention_of(ContextKind::kUlysses, 1, {}),
                    Catch::Matchers::Contains("1 key heads over 2 ranks, expected"));
  const auto blocks = std::make_shared<BlockMask>(
      BlockMask::Options{}, [](int64_t, int64_t, int64_t) { return true; }, 4);
  CHECK_THROWS_WITH(attention_of(ContextKind::kRing, 2, {.blocks = blocks}),
                    Catch::Matchers::Contains("use the kind gather or ulysses"));
  CHECK_NOTHROW(attention_of(ContextKind::kUlysses, 2, {.blocks = blocks}));
  CHECK(contains(
      refusal_of<ConfigError>(*group, {.context = 2}, {.tokens = 24, .key_heads = 3},
                              {.context_kind = ContextKind::kUlyssesRing, .context_group = 2}),
      "in groups of 2 ranks that exchange 3 key heads, expected a group size that divides 1"));
  const ContextKind kind = group->rank() == 0 ? ContextKind::kRing : ContextKind::kGather;
  CHECK(contains(
      refusal_of<CommError>(*group, {.context = 2}, {.tokens = 24}, {.context_kind = kind}),
      "context parallelism"));
}

}  // namespace shale::test
