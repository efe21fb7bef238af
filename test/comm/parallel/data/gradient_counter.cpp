#include "shale/comm/parallel/data/gradient_counter.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

// Returns the sum of values[begin, begin + count) over a binary tree; count is a power of two.
float tree(const std::vector<float>& values, size_t begin, size_t count) {
  if (count == 1) return values[begin];
  return tree(values, begin, count / 2) + tree(values, begin + count / 2, count / 2);
}

}  // namespace

TEST_CASE("a gradient counter adds in the order of a binary tree, and holds a sum per level") {
  Context context(small_context());
  for (const size_t count : {1, 2, 4, 16}) {
    CAPTURE(count);
    const auto values = randn<float>(int64_t(count), 1);
    comm::GradientCounter counter;
    for (size_t i = 0; i < count; ++i) {
      counter.add(full(context, {3}, DType::kF32, values[i]));
      const auto live = context.allocator().stats().current[size_t(MemoryTag::kGradient)];
      // After i + 1 additions, at most one tensor per binary digit of i + 1.
      CHECK(live <= 512 * 5);
    }
    CHECK(to_host<float>(counter.take("test"))[2] == tree(values, 0, count));
  }
}

TEST_CASE("a gradient counter refuses other numbers than powers of two") {
  Context context(small_context());
  comm::GradientCounter counter;
  CHECK_FALSE(message_of<InternalError>([&] { counter.take("h.0"); }).empty());
  for (int i = 0; i < 3; ++i) counter.add(zeros(context, {3}, DType::kF32));
  CHECK(contains(message_of<InternalError>([&] { counter.take("h.0"); }), "h.0: 3 micro-batches"));
}

}  // namespace shale::test
