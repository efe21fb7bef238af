#include "shale/runtime/data/tokens/samples.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/data/tokens/packing.h"
#include "shale/test/support/catch.h"

using namespace shale;

namespace {

class VectorStream final : public TokenStream {
 public:
  explicit VectorStream(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  int64_t size() const override { return std::ssize(tokens_); }
  int64_t vocab_bound() const override { return 1000; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<int32_t> tokens_;
};

std::shared_ptr<const TokenStream> stream(std::vector<int32_t> tokens) {
  return std::make_shared<const VectorStream>(std::move(tokens));
}

// A row that owns its memory.
struct Row {
  std::vector<int32_t> inputs, targets, positions, first_keys;
  explicit Row(size_t length)
      : inputs(length, -7), targets(length, -7), positions(length, -7), first_keys(length, -7) {}
  TokenRow view() { return {inputs, targets, positions, first_keys}; }
};

Row read(const EvalRows& rows, int64_t index, size_t length) {
  Row row(length);
  rows.read(index, row.view());
  return row;
}

using Ints = std::vector<int32_t>;

}  // namespace

TEST_CASE("documents of a window are told by the token between them", "[data]") {
  // A stream in which token 0 ends documents.
  const auto behind = stream({5, 6, 0, 7, 8, 9, 0, 4, 3});
  CHECK_FALSE(DocumentToken::of(*behind, 0).leads);
  const auto rows = window_rows(behind, 8, DocumentToken::of(*behind, 0));
  REQUIRE(rows->size() == 1);
  const Row row = read(*rows, 0, 8);
  CHECK(row.inputs == Ints{5, 6, 0, 7, 8, 9, 0, 4});
  CHECK(row.targets == Ints{6, 0, 7, 8, 9, 0, 4, 3});
  CHECK(row.positions == Ints{0, 1, 2, 0, 1, 2, 3, 0});
  CHECK(row.first_keys == Ints{0, 0, 0, 3, 3, 3, 3, 7});
  // A stream in which token 0 begins documents.
  const auto before = stream({0, 5, 6, 0, 0, 8, 9});
  CHECK(DocumentToken::of(*before, 0).leads);
  const Row led = read(*window_rows(before, 6, DocumentToken::of(*before, 0)), 0, 6);
  CHECK(led.positions == Ints{0, 1, 2, 0, 0, 1});
  CHECK(led.first_keys == Ints{0, 0, 0, 3, 4, 4});
  // This row is read without document boundaries.
  Row plain(6);
  window_rows(before, 6)->read(0, {plain.inputs, plain.targets});
  CHECK(plain.positions == Ints(6, -7));
}

TEST_CASE("mixed samples are those of their sources, in the order of the mixture", "[data]") {
  std::vector<std::shared_ptr<const TrainSamples>> sources;
  std::vector<TrainSampler> samplers;
  for (const int32_t source : {0, 1}) {
    Ints tokens(100);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = 100 * source + int32_t(i);
    samplers.emplace_back(100, 4, uint64_t(source));
    sources.push_back(window_samples(stream(tokens), samplers.back()));
  }
  const Mixture mixture(std::vector<double>{3, 1});
  const auto mixed = mixed_samples(sources, mixture);
  CHECK(mixed->samples_per_epoch() == samplers[0].samples_per_epoch() * 4 / 3);
  for (int64_t position = 0; position < 200; ++position) {
    const Mixture::Draw draw = mixture.draw(position);
    Row row(4);
    mixed->read(position, row.view());
    const int64_t begin = samplers[size_t(draw.source)].window(draw.index).begin;
    REQUIRE(row.inputs[0] == 100 * draw.source + begin);
    REQUIRE(mixed->targets(position) == 4);
  }
  CHECK_THROWS_AS(mixed_samples({sources[0]}, mixture), InternalError);
}

TEST_CASE("a short evaluation has rows of every source, in its share", "[data]") {
  const auto make = [](int64_t rows) { return window_rows(stream(Ints(size_t(rows * 2 + 1))), 2); };
  const auto counts = [&](std::vector<double> shares, int64_t most) {
    return mixed_rows({make(10), make(100), make(3)}, shares, most)->size();
  };
  CHECK(counts({1, 1, 1}, 0) == 113);
  CHECK(counts({1, 1, 1}, 1000) == 113);
  // The three sources have 10, 100 and 3 rows and give 10, 17 and 3.
  CHECK(counts({1, 1, 1}, 30) == 30);
  CHECK(counts({0.98, 0.01, 0.01}, 50) == 50);
  Ints low(21), high(21, 9);
  const auto mixed = mixed_rows({window_rows(stream(low), 2), window_rows(stream(high), 2)},
                                std::vector<double>{1, 3}, 8);
  REQUIRE(mixed->size() == 8);
  int64_t of_second = 0;
  for (int64_t i = 0; i < 8; ++i) of_second += read(*mixed, i, 2).inputs[0] == 9 ? 1 : 0;
  CHECK(of_second == 6);
}

TEST_CASE("documents are packed whole, by best fit, and split only if they are too long",
          "[data]") {
  // Documents of 3, 9, 1, 2, 4 and 2 inputs, each with an end token.
  Ints tokens;
  int32_t value = 1;
  const std::vector<int64_t> lengths = {3, 9, 1, 2, 4, 2};
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) tokens.push_back(value++);
    tokens.push_back(0);
  }
  const auto documents = stream_documents(stream(tokens), {.token = 0, .leads = false});
  REQUIRE(documents->size() == 6);
  for (int64_t i = 0; i < 6; ++i) CHECK(documents->length(i) == lengths[size_t(i)]);
  const Packing packing = pack(*documents, 6, PackingRule::kBestFit, Overlong::kSplit);
  // Expected rows: 6 inputs of the long document; 4 + 2; its other 3 and 3; 2 + 1.
  REQUIRE(packing.rows() == 4);
  const auto rows = std::make_shared<const PackedRows>(documents, packing);
  std::vector<int32_t> seen;
  for (int64_t r = 0; r < rows->size(); ++r) {
    const Row row = read(*rows, r, 6);
    int64_t targets = 0;
    for (size_t t = 0; t < 6; ++t) {
      const bool counts = row.targets[t] != kernels::kIgnoreTarget;
      targets += counts ? 1 : 0;
      if (counts) seen.push_back(row.inputs[t]);
      // Each target follows its input in the stream, so no pair crosses documents.
      if (counts) CHECK((row.targets[t] == row.inputs[t] + 1 || row.targets[t] == 0));
      CHECK(row.positions[t] == int32_t(t) - row.first_keys[t]);
    }
    CHECK(rows->targets(r) == targets);
  }
  std::sort(seen.begin(), seen.end());
  Ints all(21);
  for (size_t i = 0; i < all.size(); ++i) all[i] = int32_t(i) + 1;
  CHECK(seen == all);
  // The long document is truncated; each row contains one document.
  CHECK(pack(*documents, 6, PackingRule::kNone, Overlong::kTruncate).rows() == 6);
  CHECK(pack(*documents, 6, PackingRule::kBestFit, Overlong::kTruncate).rows() == 3);
  CHECK_THROWS_AS(pack(*documents, 0, PackingRule::kNone, Overlong::kSplit), ConfigError);
}

TEST_CASE("packed samples are every row once an epoch", "[data]") {
  Ints tokens;
  for (int32_t i = 1; i <= 40; ++i) {
    tokens.push_back(i);
    tokens.push_back(0);
  }
  const auto documents = stream_documents(stream(tokens), {.token = 0, .leads = false});
  const auto rows = std::make_shared<const PackedRows>(
      documents, pack(*documents, 4, PackingRule::kBestFit, Overlong::kSplit));
  const auto samples = packed_samples(rows, 3);
  REQUIRE(samples->samples_per_epoch() == 10);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    Ints seen;
    for (int64_t i = 0; i < 10; ++i) {
      Row row(4);
      samples->read(epoch * 10 + i, row.view());
      CHECK(samples->targets(epoch * 10 + i) == 4);
      seen.insert(seen.end(), row.inputs.begin(), row.inputs.end());
    }
    std::sort(seen.begin(), seen.end());
    for (int32_t i = 0; i < 40; ++i) REQUIRE(seen[size_t(i)] == i + 1);
  }
}
