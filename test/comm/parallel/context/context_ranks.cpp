// Compares context parallelism with whole sequences on one rank.
#include <cmath>

#include "shale/base/error.h"
#include "shale/comm/parallel/context/cut_attention.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/test/comm/parallel/context/cut_case.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/watched_exchange.h"

namespace shale::test {

TEST_CASE("attention over ranks is attention of whole sequences, of any length",
          "[context][many_ranks]") {
  const auto group = world().group();
  Context context(small_context(1));
  constexpr int64_t B = 2, H = 4, G = 2, D = 8;
  for (const int64_t T : {int64_t{37}, int64_t{16} * group->size()}) {
    for (const int64_t window : {0, 5}) {
      CAPTURE(T, window, group->size());
      comm::CutSequence cut = cut_over(*group, T);
      const auto values = [&](int64_t heads, uint64_t seed) {
        return randn<float>(B * T * heads * D, seed);
      };
      const std::vector<float> q = values(H, 1), k = values(G, 2), v = values(G, 3);
      const std::vector<float> dy = values(H, 4);
      // Tests windowed attention with a softcap as well.
      const AttentionOptions options{.window = window, .softcap = window > 0 ? 2.f : 0.f};
      const Tensor whole[] = {leaf(context, {B, T, H, D}, q), leaf(context, {B, T, G, D}, k),
                              leaf(context, {B, T, G, D}, v)};
      const Tensor want = attention(whole[0], whole[1], whole[2], options);
      backward(want, from_host<float>(context, dy, want.shape()));

      const int64_t own = cut.parts().own_tokens(T);
      const auto mine = [&](const std::vector<float>& x, int64_t heads) {
        return leaf(context, {B, own, heads, D}, own_of(x, B, T, cut));
      };
      const Tensor parts[] = {mine(q, H), mine(k, G), mine(v, G)};
      const Tensor got = comm::attention(cut, parts[0], parts[1], parts[2], options);
      backward(got, from_host<float>(context, own_of(dy, B, T, cut), got.shape()));
      // Context parallelism tiles the softmax over the same keys differently, which gives a few
      // roundings of values near 1.
      const auto compare = [&](const Tensor& a, const Tensor& b) {
        return largest_difference(to_host<float>(a), own_of(to_host<float>(b), B, T, cut));
      };
      for (int i = 0; i < 3; ++i) CHECK(compare(parts[i].grad(), whole[i].grad()) < 1e-5);
      const std::vector<float> out = to_host<float>(got);
      std::vector<float> reference = own_of(to_host<float>(want), B, T, cut);
      for (size_t i = 0; i < out.size(); ++i) {
        // The reference is 0 for padding, whose results are ignored.
        if (reference[i] == 0) reference[i] = out[i];
      }
      CHECK(largest_difference(out, reference) < 1e-5);
    }
  }
}

TEST_CASE("keys of some heads travel behind the attention of others, and change no bit",
          "[context]") {
  const auto group = world().group();
  if (group->size() == 1) return;
  constexpr int64_t B = 2, H = 8, G = 4, D = 16, T = 512;
  std::vector<std::vector<float>> before;
  for (const bool overlap : {false, true}) {
    Context context(small_context(1));
    auto exchange = std::make_unique<WatchedExchange>(
        line_over(*group, "context", nullptr, overlap), 0,
        std::vector<std::string>{"attention_fwd", "attention_bwd"});
    WatchedExchange& watched = *exchange;
    context.set_tracer(&watched.tracer);
    comm::CutSequence cut(std::move(exchange), T);
    const int64_t own = cut.parts().own_tokens(T);
    const auto mine = [&](int64_t heads, uint64_t seed) {
      return leaf(context, {B, own, heads, D},
                  own_of(randn<float>(B * T * heads * D, seed), B, T, cut));
    };
    const Tensor q = mine(H, 1), k = mine(G, 2), v = mine(G, 3);
    const Tensor y = comm::attention(cut, q, k, v, {});
    backward(y, mine(H, 4).detach());
    // Expected numbers of attention calls during each transfer: four head groups in forward, then
    // four in backward. Each rank has two chunks of queries.
    CHECK(watched.gathers == std::vector<int64_t>{0, 2, 2, 2, 0, 2, 2, 2});
    CHECK(watched.sums == std::vector<int64_t>{2, 2, 2, 0});
    const std::vector<std::vector<float>> now = {to_host<float>(y), to_host<float>(q.grad()),
                                                 to_host<float>(k.grad()),
                                                 to_host<float>(v.grad())};
    if (overlap) CHECK(now == before);
    before = now;
  }
}

TEST_CASE("sequences that are cut train as whole ones do", "[context]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4) return;
  for (const std::string family : {"gpt2", "llama", "mistral"}) {
    for (const int64_t length : {24, 22}) {  // 22 tokens are padded to 24
      TrainOptions options{.micro_batch = 2, .steps = 3};
      options.length = length;
      options.dropout = family == "gpt2" ? 0.1f : 0;
      const models::LanguageModelConfig model = long_model(family);
      const Trained want = train_pipeline(alone(), model, {.micro_batches = 4}, options);
      const bool every = family == "llama" && length == 24;
      for (const int stage : every ? std::vector{0, 1, 2, 3} : std::vector{1}) {
        for (int context = 2; context <= ranks; context *= 2) {
          CAPTURE(family, length, stage, context);
          options.parallel.stage = stage;
          const Trained got = train_pipeline(
              *all, model, {.context = context, .micro_batches = 4 * context / ranks}, options);
          REQUIRE(got.losses.size() == want.losses.size());
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
}

TEST_CASE("four shards of sequences make the same bits on one, two and four ranks",
          "[context][gate][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 1 && ranks != 2 && ranks != 4 && ranks != 8) return;
  constexpr int64_t kMicroBatches = 4;
  for (const std::string family : {"gpt2", "qwen3"}) {
    models::LanguageModelConfig model = long_model(family);
    TrainOptions options{.micro_batch = 2, .steps = 3};
    options.length = 22;  // 22 tokens are padded to 24
    options.context_shards = 4;
    options.dropout = family == "gpt2" ? 0.1f : 0;
    for (const bool reproducible : {false, true}) {
      options.parallel = {.reproducible = reproducible};
      const Trained want =
          train_pipeline(alone(), model, {.micro_batches = kMicroBatches}, options);
      REQUIRE(std::isfinite(want.losses.back()));
      for (int context = 1; context <= std::min(ranks, 4); context *= 2) {
        // With data parallelism, the order of sums is fixed only in reproducible runs.
        if (!reproducible && context != ranks) continue;
        if (ranks / context > kMicroBatches) continue;
        for (const int stage : {0, 1, 2, 3}) {
          if (!reproducible && stage > 1) continue;  // these stages reduce each micro-batch
          CAPTURE(family, reproducible, context, stage);
          options.parallel.stage = stage;
          const PipelineRun run{.context = context,
                                .micro_batches = kMicroBatches * context / ranks};
          CHECK(same(train_pipeline(*all, model, run, options), want));
        }
      }
      for (int context = 1; reproducible && 2 * context <= ranks; context *= 2) {
        if (ranks / (2 * context) > kMicroBatches) continue;
        CAPTURE(family, context);
        options.parallel.stage = 1;
        const PipelineRun run{
            .ranks = 2, .context = context, .micro_batches = kMicroBatches * 2 * context / ranks};
        CHECK(same(train_pipeline(*all, model, run, options), want));
      }
    }
  }
}

TEST_CASE("shards of layers and of sequences together make the bits of one rank",
          "[context][tensor][gate][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4 && ranks != 8) return;
  for (const std::string family : {"gpt2", "qwen3"}) {
    models::LanguageModelConfig model = long_model(family);
    model.heads = 4;
    if (family != "gpt2") model.kv_heads = 4;
    TrainOptions options{.micro_batch = 2, .steps = 3};
    options.length = 22;  // 22 tokens are padded to 24
    options.context_shards = options.tensor_shards = 2;
    options.dropout = family == "gpt2" ? 0.1f : 0;
    options.parallel.reproducible = true;
    const Trained want = train_pipeline(alone(), model, {.micro_batches = 4}, options);
    for (const auto& [pipeline, context, tensor] :
         {std::tuple(1, 1, 2), std::tuple(1, 2, 1), std::tuple(2, 1, 1), std::tuple(1, 2, 2),
          std::tuple(2, 2, 1), std::tuple(2, 1, 2), std::tuple(2, 2, 2)}) {
      const int model_ranks = pipeline * context * tensor;
      if (ranks % model_ranks != 0) continue;
      for (const int stage : {0, pipeline > 1 ? 1 : 3}) {
        CAPTURE(family, pipeline, context, tensor, stage);
        options.parallel.stage = stage;
        const PipelineRun run{.ranks = pipeline,
                              .tensor = tensor,
                              .context = context,
                              .micro_batches = 4 * model_ranks / ranks};
        if (run.micro_batches == 0) continue;
        CHECK(same(train_pipeline(*all, model, run, options), want));
      }
    }
  }
}

TEST_CASE("low precision and recomputation change no bit of sequences that are cut", "[context]") {
  const auto all = world().group();
  if (all->size() != 2) return;
  const models::LanguageModelConfig model = long_model("llama");
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    TrainOptions options{.micro_batch = 2, .steps = 3, .loss_scale = 1024};
    options.length = 24;
    options.context_shards = 2;
    options.parallel = {.compute = compute, .stage = 1};
    const Trained want = train_pipeline(alone(), model, {.micro_batches = 2}, options);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      CAPTURE(dtype_name(compute), static_cast<int>(recompute));
      options.recompute = recompute;
      CHECK(same(train_pipeline(*all, model, {.context = 2, .micro_batches = 2}, options), want));
    }
  }
}

TEST_CASE("sequences that do not fit say what does", "[context]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  CHECK(contains(refusal_of<ConfigError>(*group, {.context = 4, .context_here = 2}, {.tokens = 7}),
                 "context 4 with sequences of 7 tokens, expected at least 8"));
  CHECK(contains(refusal_of<ConfigError>(*group, {.context = 2}, {.tokens = 0}),
                 "the model does not support context parallelism"));
  CHECK(contains(refusal_of<CommError>(*group, {.context = 2}, {.tokens = 20 + group->rank()}),
                 "context parallelism"));
}

TEST_CASE("sequences are cut in stages whose layers ranks share", "[context][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 4 && ranks != 8) return;
  models::LanguageModelConfig model = long_model("llama");
  TrainOptions options{.micro_batch = 2, .steps = 3, .recompute = Recompute::kFull};
  options.length = 24;
  const Trained want = train_pipeline(alone(), model, {.micro_batches = 4}, options);
  options.parallel.stage = 1;
  for (const PipelineRun& run :
       {PipelineRun{.ranks = 2, .context = 2, .micro_batches = 4},
        PipelineRun{.tensor = 2, .context = 2, .micro_batches = 4},
        PipelineRun{.ranks = 2, .tensor = 2, .context = 2, .micro_batches = 4}}) {
    if (run.ranks * run.tensor * run.context != ranks) continue;
    CAPTURE(run.ranks, run.tensor, run.context);
    const Trained got = train_pipeline(*all, model, run, options);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      CHECK(std::abs(got.losses[i] - want.losses[i]) < 2e-5f * want.losses[i]);
      CHECK(std::abs(got.norms[i] - want.norms[i]) < 1e-4f * want.norms[i]);
    }
  }
}

TEST_CASE("a rank sends its keys and values forward, and theirs twice backward",
          "[context][many_ranks]") {
  const auto group = world().group();
  const int ranks = group->size();
  Context context(small_context(1));
  const int64_t B = 2, T = 8 * ranks, H = 4, G = 2, D = 8;
  comm::CutSequence cut = cut_over(*group, T);
  const int64_t own = cut.parts().own_tokens(T);
  const Tensor q = random_leaf(context, {B, own, H, D}, 1);
  const Tensor k = random_leaf(context, {B, own, G, D}, 2);
  const Tensor v = random_leaf(context, {B, own, G, D}, 3);
  const auto sent = [&] { return group->traffic().totals(comm::Traffic::kActivations).sent_bytes; };
  const double before = sent();
  const Tensor y = comm::attention(cut, q, k, v);
  const double share = double(ranks - 1) / ranks, bytes = share * double(2 * B * T * G * D * 4);
  CHECK(sent() - before == Approx(bytes));
  backward(y, full(context, y.shape(), DType::kF32, 1));
  CHECK(sent() - before == Approx(3 * bytes));
}

}  // namespace shale::test
