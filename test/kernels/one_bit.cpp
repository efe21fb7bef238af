// Tests sign quantization in blocks, compared with f64, including its quantization error.
#include "shale/kernels/one_bit.h"

#include <bit>
#include <cmath>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::kSignBlock;
using kernels::kSignWords;
using kernels::sign_blocks;
using test::DeviceArray;

// Sizes: empty, one, around a word, around a block, ragged, several blocks.
const std::vector<int64_t> kSizes = {0, 1, 31, 33, 1023, 1024, 1025, 5000, 40960};

StepState step_state(uint32_t non_finite = 0) {
  return {.clip_factor = 0.7f, .non_finite = non_finite};
}

// Returns a mask of zeros for a third of the elements, and for all of the second block.
std::vector<float> mask_of(int64_t n) {
  std::vector<float> mask;
  for (int64_t i = 0; i < n; ++i) {
    mask.push_back(i % 3 == 1 || i / kSignBlock == 1 ? 0.f : 1e-30f * float(i + 1));
  }
  return mask;
}

struct Packed {
  std::vector<int32_t> words;
  std::vector<float> owed;
};

float scale_of(const Packed& packed, int64_t i) {
  return std::bit_cast<float>(packed.words[size_t(i / kSignBlock * kSignWords)]);
}

// Returns scale * sign, decoded as kernels/one_bit.h describes.
float unpacked(const Packed& packed, const std::vector<float>& mask, int64_t i) {
  const int64_t in_block = i % kSignBlock;
  const auto word = uint32_t(packed.words[size_t(i / kSignBlock * kSignWords + 1 + in_block / 32)]);
  if (mask[size_t(i)] == 0) return 0;
  return (word >> (in_block % 32) & 1) != 0 ? scale_of(packed, i) : -scale_of(packed, i);
}

struct Operands {
  std::vector<float> value, mask, owed;
};

Operands operands_of(int64_t n) {
  return {test::randn<float>(n, 1), mask_of(n), test::randn<float>(n, 2, 0, 0.3)};
}

template <typename Grad>
Packed pack(const Exec& exec, const Operands& o, const std::vector<Grad>& grad,
            uint32_t non_finite = 0) {
  const test::DeviceStep step(exec, step_state(non_finite));
  const auto n = int64_t(o.value.size());
  const DeviceArray<float> value(exec, o.value), mask(exec, o.mask), owed(exec, o.owed);
  const DeviceArray<Grad> gradient(exec, grad);
  const DeviceArray<int32_t> packed(exec, sign_blocks(n) * kSignWords);
  kernels::sign_pack(step.exec(), {.value = value.view(),
                                   .grad = grad.empty() && n > 0 ? View{} : gradient.view(),
                                   .mask = mask.view(),
                                   .owed = owed.view(),
                                   .packed = packed.view({sign_blocks(n), kSignWords}),
                                   .value_factor = 0.9f,
                                   .grad_factor = 0.2f});
  CHECK(packed.margins_intact());
  CHECK(owed.margins_intact());
  return {packed.download(), owed.download()};
}

// Returns the mean magnitude of a block's unmasked elements, in f64.
double mean_magnitude(const std::vector<double>& u, const std::vector<float>& mask, int64_t block) {
  double sum = 0, count = 0;
  for (int64_t i = block * kSignBlock; i < std::min((block + 1) * kSignBlock, int64_t(u.size()));
       ++i) {
    if (mask[size_t(i)] == 0) continue;
    sum += std::abs(u[size_t(i)]), ++count;
  }
  return count > 0 ? sum / count : 0;
}

// Checks that the packed values plus the error feedback give u. Signs and error feedback must be
// exact. A scale has rounding errors of 32 sequential additions, 5 additions across lanes, a
// division, and u itself.
void check_packed(const Packed& got, const std::vector<double>& u, const std::vector<float>& mask) {
  for (int64_t i = 0; i < int64_t(u.size()); ++i) {
    if (i % kSignBlock == 0) {
      const double want = mean_magnitude(u, mask, i / kSignBlock);
      REQUIRE(std::abs(double(scale_of(got, i)) - want) <= 40 * 0x1p-24 * want);
    }
    const float sent = unpacked(got, mask, i);
    if (mask[size_t(i)] == 0) {
      REQUIRE(got.owed[size_t(i)] == 0);
      continue;
    }
    if (std::abs(u[size_t(i)]) > 1e-5) REQUIRE((sent >= 0) == (u[size_t(i)] >= 0));
    // u is the packed value plus the error feedback, with three roundings.
    const double want = u[size_t(i)] - double(sent);
    REQUIRE(std::abs(double(got.owed[size_t(i)]) - want) <= 3 * 0x1p-24 * (std::abs(want) + 4));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("sign_pack sends signs and a scale, and owes the rest", "[kernels][one_bit]",
                   float, bf16) {
  for (const Exec& exec : test::devices_with({&kernels::sign_pack})) {
    for (const int64_t n : kSizes) {
      CAPTURE(int(exec.device.type), n);
      const Operands o = operands_of(n);
      for (const bool with_grad : {false, true}) {
        const auto grad = with_grad ? test::randn<TestType>(n, 3) : std::vector<TestType>();
        std::vector<double> u;
        for (size_t i = 0; i < size_t(n); ++i) {
          u.push_back(double{0.9f} * double(o.value[i]) + double(o.owed[i]));
          if (with_grad) u.back() += double{0.2f} * double{0.7f} * test::to_f64(grad[i]);
        }
        check_packed(pack(exec, o, grad), u, o.mask);
      }
    }
  }
}

TEST_CASE("all devices pack the same bits, with any number of threads", "[kernels][one_bit]") {
  const Operands o = operands_of(5000);
  const auto grad = test::randn<float>(5000, 3);
  const auto devices = test::devices_with({&kernels::sign_pack});
  const Packed want = pack(devices[0], o, grad);
  for (const Exec& exec : devices) {
    const Packed got = pack(exec, o, grad);
    CHECK(got.words == want.words);
    CHECK(test::same_bits(got.owed, want.owed));
  }
  CHECK(test::same_bits_for_any_threads(
      devices[0], [&](const Exec& exec) { return pack(exec, o, grad).owed; }));
}

TEST_CASE("sign_mean packs the mean of parts and what was owed", "[kernels][one_bit]") {
  constexpr int64_t kParts = 3;
  for (const Exec& exec : test::devices_with({&kernels::sign_pack, &kernels::sign_mean})) {
    for (const int64_t n : kSizes) {
      CAPTURE(int(exec.device.type), n);
      const int64_t blocks = sign_blocks(n), stride = (blocks + 1) * kSignWords;
      const std::vector<float> mask = mask_of(n), owed = test::randn<float>(n, 9, 0, 0.1);
      std::vector<int32_t> words(size_t(kParts * stride), -1);
      std::vector<double> u(owed.begin(), owed.end());
      for (int64_t p = 0; p < kParts; ++p) {
        Operands o = operands_of(n);
        o.value = test::randn<float>(n, uint64_t(10 + p));
        const Packed part = pack(exec, o, std::vector<float>());
        std::copy(part.words.begin(), part.words.end(), words.begin() + p * stride);
        for (int64_t i = 0; i < n; ++i) {
          u[size_t(i)] += double(unpacked(part, mask, i)) / double(kParts);
        }
      }
      const test::DeviceStep step(exec, step_state());
      const DeviceArray<int32_t> parts(exec, words), packed(exec, blocks * kSignWords);
      const DeviceArray<float> on_device(exec, mask), error(exec, owed);
      kernels::sign_mean(
          step.exec(), {.parts = parts.view({kParts, blocks, kSignWords}, {stride, kSignWords, 1}),
                        .mask = on_device.view(),
                        .owed = error.view(),
                        .packed = packed.view({blocks, kSignWords})});
      check_packed({packed.download(), error.download()}, u, mask);
    }
  }
}

TEST_CASE("sign_unpack reads what sign_pack wrote, exactly", "[kernels][one_bit]") {
  for (const Exec& exec : test::devices_with({&kernels::sign_pack, &kernels::sign_unpack})) {
    for (const int64_t n : kSizes) {
      CAPTURE(int(exec.device.type), n);
      const Operands o = operands_of(n);
      const Packed packed = pack(exec, o, std::vector<float>());
      const test::DeviceStep step(exec, step_state());
      const DeviceArray<int32_t> words(exec, packed.words);
      const DeviceArray<float> mask(exec, o.mask), value(exec, n);
      kernels::sign_unpack(step.exec(), {.packed = words.view({sign_blocks(n), kSignWords}),
                                         .mask = mask.view(),
                                         .value = value.view()});
      std::vector<float> want;
      for (int64_t i = 0; i < n; ++i) want.push_back(unpacked(packed, o.mask, i));
      CHECK(value.download() == want);
      CHECK(value.margins_intact());
    }
  }
}

TEST_CASE("a step that is skipped moves no error", "[kernels][one_bit]") {
  const int64_t n = 2000;
  const Operands o = operands_of(n);
  for (const Exec& exec : test::devices_with({&kernels::sign_pack})) {
    const Packed got = pack(exec, o, test::randn<float>(n, 3), /*non_finite=*/1);
    CHECK(test::same_bits(got.owed, o.owed));
    CHECK(got.words == test::poison<int32_t>(sign_blocks(n) * kSignWords));
  }
}

TEST_CASE("sign kernels name the argument that is wrong", "[kernels][one_bit]") {
  const test::DeviceStep step(test::devices()[0], step_state());
  const DeviceArray<float> x(step.exec(), 2000);
  const DeviceArray<int32_t> words(step.exec(), 3 * kSignWords);
  const auto packed = words.view({2, kSignWords}), one = words.view({1, kSignWords});
  const auto refused = [](const auto& call, std::string_view want) {
    const std::string message = test::message_of<ShapeError>(call);
    CAPTURE(message);
    CHECK(test::contains(message, want));
  };
  refused(
      [&] {
        kernels::sign_pack(step.exec(),
                           {.value = x.view(), .mask = x.view(), .owed = x.view(), .packed = one});
      },
      "sign_pack: packed");
  refused(
      [&] {
        kernels::sign_unpack(step.exec(),
                             {.packed = packed, .mask = x.view({7}), .value = x.view()});
      },
      "sign_unpack: mask");
  refused(
      [&] {
        kernels::sign_mean(step.exec(),
                           {.parts = packed, .mask = x.view(), .owed = x.view(), .packed = packed});
      },
      "sign_mean: parts");
}

}  // namespace shale
