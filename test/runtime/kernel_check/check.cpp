#include "shale/runtime/kernel_check/check.h"

#include <set>

#include "shale/base/error.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/slots.h"
#include "shale/runtime/kernel_check/kernel_parts.h"
#include "shale/runtime/tensor/context.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/wrong_kernels.h"

namespace shale::kernel_check {
namespace {

using test::contains;

constexpr Device kHopper = {.type = DeviceType::kEmu, .arch = 90};
constexpr Device kAmpere = {.type = DeviceType::kEmu, .arch = 80};

std::span<const std::byte> bytes_of(const View& view) {
  return {static_cast<const std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}

CheckReport check(const CheckOptions& options, const Device& device = kHopper) {
  Context context({.device = device, .threads = 2});
  return check_kernels(context.backend(), context.exec(), options);
}

CheckReport check(const std::vector<std::string>& slots, const Device& device = kHopper) {
  return check({.limit_s = 600, .real_sizes = false, .slots = slots}, device);
}

}  // namespace

TEST_CASE("a check names the first element that differs by more than rounding") {
  std::vector<float> want = {1, -2, 3, 0}, got = want;
  const View view = make_view(want.data(), {4});
  const View other = make_view(got.data(), {4});
  const auto text = [&] { return difference(view, bytes_of(other), 0x1p-12); };
  CHECK(text().empty());
  got[3] = 1e-4f;  // negligible, because the root mean square of the values is about 1.9
  CHECK(text().empty());
  got[1] = -2.002f;
  CHECK(text() == "element 1 is -2.002, expected -2");
  got = want, got[2] = std::nanf("");
  CHECK(contains(text(), "element 2 is nan, expected 3"));
  want[2] = std::nanf("");
  CHECK(text().empty());
  want[2] = INFINITY;
  CHECK(contains(text(), "element 2 is nan, expected inf"));
  for (const float wrong : {3.0f, -INFINITY}) {
    got[2] = wrong;
    CHECK(contains(text(), ", expected inf"));
  }
  got[2] = INFINITY;
  CHECK(text().empty());

  std::vector<int32_t> numbers = {1, 2, 3}, others = {1, 2, 259};
  CHECK(difference(make_view(numbers.data(), {3}), bytes_of(make_view(others.data(), {3})), 1) ==
        "byte 9 is 1, expected 0");
  std::vector<uint8_t> codes(200, 7), coded = codes;
  const auto codes_text = [&] {
    return difference(make_view(codes.data(), {200}), bytes_of(make_view(coded.data(), {200})), 1);
  };
  coded[20] = coded[40] = 8;
  CHECK(codes_text().empty());
  coded[10] = 8;
  CHECK(codes_text() == "byte 10 is 8, expected 7");
}

TEST_CASE("kernels are replaced if they need one and a half times the time of others") {
  using Times = std::vector<double>;
  CHECK(is_much_slower(Times{3, 1}, Times{1, 1}));
  CHECK_FALSE(is_much_slower(Times{1.4, 1}, Times{1, 1}));
  CHECK_FALSE(is_much_slower(Times{1, 1}, Times{3, 1}));
  // One case is twice as slow. Long cases that take the same time with both kernels do not hide it.
  CHECK(is_much_slower(Times{2, 100, 100}, Times{1, 100, 101}));
  // A case that is 10 faster outweighs a case that is 1 slower.
  CHECK_FALSE(is_much_slower(Times{2, 10}, Times{1, 20}));
  // A case that one of the two kernels does not support is ignored.
  CHECK_FALSE(is_much_slower(Times{INFINITY, 1}, Times{1, 1}));
  CHECK_FALSE(is_much_slower(Times{}, Times{}));
}

TEST_CASE("every kernel of a GPU has a case in its check, at small and at real sizes") {
  std::set<std::string> small, real;
  for (const KernelCase& one : check_cases(90, /*real_sizes=*/false)) small.insert(one.slot);
  for (const KernelCase& one : check_cases(90, /*real_sizes=*/true)) real.insert(one.slot);
  // These kernels compute a single number, or exist only in f32, so they have no cases at real
  // sizes.
  const std::set<std::string> only_small = {"sum",           "clip_factor",   "inverse_norm",
                                            "moe_route_fwd", "moe_route_bwd", "moe_sort",
                                            "moe_balance",   "skip_outliers", "update_loss_scale"};
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    CAPTURE(slot->name());
    if (!slot->filled(DeviceType::kEmu)) continue;
    CHECK(small.contains(slot->name()));
    CHECK(real.contains(slot->name()) != only_small.contains(slot->name()));
  }
}

TEST_CASE("the check finds nothing wrong with the kernels of an H100") {
  const CheckReport report = check(std::vector<std::string>{});
  for (const LeftOut& one : report.left_out) FAIL_CHECK(one.kernel << ": " << one.reason);
  CHECK(report.cases > 300);
  CHECK(report.not_run == 0);
}

TEST_CASE("a check that has no time says so") {
  Context context({.device = kHopper, .threads = 2});
  const CheckReport report =
      check_kernels(context.backend(), context.exec(), {.limit_s = 0, .real_sizes = false});
  CHECK(report.cases == 0);
  CHECK(report.not_run == std::ssize(check_cases(90, false)));
}

TEST_CASE("wrong kernels are found, named and replaced, as few as possible") {
  using enum test::WrongKernels::Which;
  const test::WrongKernels wrong(kHopperGemm | kHopperAttention | kMul);
  const CheckReport report = check({"gemm", "attention_fwd", "attention_bwd", "mul", "gelu_fwd"});
  std::vector<std::string> names;
  for (const LeftOut& one : report.left_out) names.push_back(one.kernel);
  REQUIRE(names == std::vector<std::string>{"gemm/hopper", "mul/all", "attention_fwd/hopper"});
  CHECK(contains(report.left_out[0].reason,
                 "wrong: gemm/tile_kHopper128x64_nt_bias_residual/72/fp16: operand"));
  CHECK(contains(report.left_out[2].reason, "wrong: attention_fwd/"));

  // The kernels that replace those left out are correct.
  Context context({.device = kHopper, .threads = 2});
  CHECK(check({"gemm", "attention_fwd"}).left_out.empty());
  std::vector<float> one(1);
  const View view = make_view(one.data(), {1});
  const std::string refusal = test::message_of<UnavailableError>(
      [&] { kernels::mul(context.exec(), {.a = view, .b = view, .y = view}); });
  CHECK(contains(refusal, "mul: its kernel gave wrong results"));
  CHECK(contains(refusal, "shale doctor"));
}

TEST_CASE("kernels that others beat by far are replaced, if those are right") {
  CheckOptions options{.limit_s = 600, .real_sizes = false, .slots = {"grouped_gemm", "rope"}};
  options.seconds = [](const KernelCase& one, kernels::KernelParts out) {
    if (one.slot == "rope") return 1.0;  // rope has no other kernel to compare with
    return (out & kernels::kHopperKernels) != 0 ? 1.0 : 1.4;
  };
  CHECK(check(options).left_out.empty());
  options.seconds = [](const KernelCase&, kernels::KernelParts out) {
    return (out & kernels::kHopperKernels) != 0 ? 1.0 : 1.6;
  };
  const CheckReport report = check(options);
  leave_out(kHopper, "grouped_gemm", 0);
  REQUIRE(report.left_out.size() == 1);
  CHECK(report.left_out[0].kernel == "grouped_gemm/hopper");
  CHECK(report.left_out[0].reason == "slower than its substitute");
}

TEST_CASE("kernels that ended an earlier check are not run again") {
  const CheckReport report = check({.limit_s = 600,
                                    .real_sizes = false,
                                    .slots = {"grouped_gemm", "rope"},
                                    .failed = {{"grouped_gemm", 0}, {"rope", 0}}});
  for (const char* slot : {"grouped_gemm", "rope"}) leave_out(kHopper, slot, 0);
  REQUIRE(report.left_out.size() == 2);
  CHECK(report.left_out[0].kernel == "rope/all");
  CHECK(report.left_out[1].kernel == "grouped_gemm/hopper");
  CHECK(report.left_out[1].reason == "wrong: made the GPU fail or hang in an earlier check");
}

TEST_CASE(
    "fp8 GEMMs with scales of tensors are checked, and a run that needs wrong ones ends early") {
  for (const bool real_sizes : {false, true}) {
    std::set<std::string> names;
    for (const KernelCase& one : check_cases(89, real_sizes)) {
      if (one.slot == "fp8_gemm") names.insert(one.name.substr(0, one.name.find('/', 9)));
    }
    for (const char* name : {"forward_tensor", "dx_tensor", "dw_tensor"}) {
      CHECK(names.contains(cat("fp8_gemm/", name)));
    }
  }
  const Context context({.device = kHopper, .threads = 2});
  const auto begin = [&] { kernels::check_fp8_gemm(context.exec(), kernels::Fp8Blocks::kTensor); };
  CHECK_NOTHROW(begin());
  leave_out(kHopper, "fp8_gemm", kernels::kEveryKernel);
  CHECK(contains(test::message_of<UnavailableError>(begin),
                 "fp8_gemm: its kernel gave wrong results"));
  leave_out(kHopper, "fp8_gemm", 0);
}

TEST_CASE("a wrong epilogue is replaced by plain GEMMs and elementwise kernels") {
  const test::WrongKernels wrong(test::WrongKernels::kEpilogues);
  const CheckReport report = check({"gemm"}, kAmpere);
  REQUIRE(report.left_out.size() == 1);
  CHECK(report.left_out[0].kernel == "gemm/fused");
  CHECK(check({"gemm"}, kAmpere).left_out.empty());
}

TEST_CASE("parts of kernels have names, which other builds may not know") {
  CHECK(names_of("gemm", kernels::kHopperKernels | kernels::kFusedKernels) ==
        std::vector<std::string>{"gemm/hopper", "gemm/fused"});
  CHECK(parts_of(kHopper, "gemm") == (kernels::kHopperKernels | kernels::kFusedKernels));
  CHECK(parts_of(kAmpere, "attention_fwd") == 0);
  CHECK(parts_of({}, "gemm") == 0);
  const std::vector<std::string> unknown = {"gemm/magic"};
  CHECK(contains(test::message_of<DataError>([&] { leave_out(kHopper, unknown); }), "gemm/magic"));
}

}  // namespace shale::kernel_check
