// Differentiable collectives: their values, and the gradients of the sum of all ranks' losses.
#include "shale/comm/collective_ops.h"

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

constexpr int64_t kRows = 4, kCols = 3;

// Small integers, so that all sums are exact. `what` distinguishes inputs from weights of losses.
float value(int what, int rank, int64_t i) {
  return static_cast<float>((what * 31 + rank * 7 + i * 5) % 11 - 5);
}

std::vector<float> values(int what, int rank, int64_t count) {
  std::vector<float> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(value(what, rank, i));
  return result;
}

// Result and gradient of the loss sum(w * op(x * x)); every rank has its own x and w. Because of
// the square, the gradient depends on x.
struct Result {
  std::vector<float> y;
  std::vector<float> gradient;
};

Result run(Context& context, const Shape& shape,
           const std::function<Tensor(const Tensor&)>& collective) {
  const int rank = world().rank();
  Tensor x = from_host<float>(context, values(0, rank, shape.numel()), shape);
  x.set_requires_grad(true);
  const Tensor y = collective(mul(x, x));
  const Tensor w = from_host<float>(context, values(1, rank, y.numel()), y.shape());
  backward(sum(mul(y, w)));
  return {to_host<float>(y), to_host<float>(x.grad())};
}

float square(int rank, int64_t i) {
  return value(0, rank, i) * value(0, rank, i);
}

}  // namespace

TEST_CASE("gradients go back through all_gather") {
  Context context({.threads = 1});
  const auto group = world().group({.timeout_s = 60}, context.backend());
  const int ranks = group->size(), me = group->rank();
  const int64_t count = kRows * kCols;
  const Result got =
      run(context, {kRows, kCols}, [&](const Tensor& x) { return comm::all_gather(*group, x); });
  REQUIRE(got.y.size() == static_cast<size_t>(count * ranks));
  for (int64_t i = 0; i < count * ranks; ++i) {
    CHECK(got.y[static_cast<size_t>(i)] == square(static_cast<int>(i / count), i % count));
  }
  for (int64_t i = 0; i < count; ++i) {
    // The losses of all ranks include this rank's slice, each with its own weight.
    float weight = 0;
    for (int r = 0; r < ranks; ++r) weight += value(1, r, me * count + i);
    CHECK(got.gradient[static_cast<size_t>(i)] == 2 * value(0, me, i) * weight);
  }
}

TEST_CASE("gradients go back through reduce_scatter_sum") {
  Context context({.threads = 1});
  const auto group = world().group({.timeout_s = 60}, context.backend());
  const int ranks = group->size(), me = group->rank();
  const int64_t count = kRows * kCols;
  const Result got = run(context, {kRows * ranks, kCols},
                         [&](const Tensor& x) { return comm::reduce_scatter_sum(*group, x); });
  REQUIRE(got.y.size() == static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += square(r, me * count + i);
    CHECK(got.y[static_cast<size_t>(i)] == sum);
  }
  for (int64_t i = 0; i < count * ranks; ++i) {
    const float weight = value(1, static_cast<int>(i / count), i % count);
    CHECK(got.gradient[static_cast<size_t>(i)] == 2 * value(0, me, i) * weight);
  }
}

TEST_CASE("gradients go back through all_reduce_sum, whose input stays as it is") {
  Context context({.threads = 1});
  const auto group = world().group({.timeout_s = 60}, context.backend());
  const int ranks = group->size(), me = group->rank();
  const int64_t count = kRows * kCols;
  const Result got = run(context, {kRows, kCols},
                         [&](const Tensor& x) { return comm::all_reduce_sum(*group, x); });
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0, weight = 0;
    for (int r = 0; r < ranks; ++r) {
      sum += square(r, i);
      weight += value(1, r, i);
    }
    CHECK(got.y[static_cast<size_t>(i)] == sum);
    CHECK(got.gradient[static_cast<size_t>(i)] == 2 * value(0, me, i) * weight);
  }
}

// Each rank's loss depends on the rows of all ranks, like a contrastive loss.
TEST_CASE("a loss over the rows of all ranks has the gradient that central differences have") {
  Context context({.threads = 1});
  const auto group = world().group({.timeout_s = 60}, context.backend());
  const int rank = group->rank();
  std::vector<float> x = values(0, rank, kCols);
  const auto loss_of = [&](const std::vector<float>& mine, bool differentiate) {
    Tensor leaf = from_host<float>(context, mine, {1, kCols});
    leaf.set_requires_grad(differentiate);
    const Tensor all = comm::all_gather(*group, leaf);
    const Tensor loss = sum(mul(mul(all, all), all));
    if (differentiate) backward(loss);
    double total = to_host<float>(loss)[0];
    group->host().all_reduce_sum(make_view(&total, {1}));
    return std::pair(total, differentiate ? to_host<float>(leaf.grad()) : std::vector<float>());
  };
  const std::vector<float> gradient = loss_of(x, true).second;
  for (int changed = 0; changed < group->size(); ++changed) {
    for (size_t i = 0; i < x.size(); ++i) {
      std::vector<float> above = x, below = x;
      if (rank == changed) above[i] += 0.5f, below[i] -= 0.5f;
      const double difference = loss_of(above, false).first - loss_of(below, false).first;
      // The loss is cubic in x. With h = 1/2, its central difference is exactly the gradient plus
      // h^2 n, for n ranks.
      if (rank == changed) CHECK(gradient[i] == difference - 0.25 * group->size());
    }
  }
}

TEST_CASE("collectives with gradients name the shape that is wrong") {
  Context context({.threads = 1});
  const auto group = world().group({.timeout_s = 60}, context.backend());
  const Tensor scalar = full(context, {}, DType::kF32, 1);
  CHECK_THROWS_AS(comm::all_gather(*group, scalar), ShapeError);
  if (group->size() == 1) return;
  const Tensor odd = full(context, {group->size() + 1, 2}, DType::kF32, 1);
  CHECK(contains(message_of<ShapeError>([&] { comm::reduce_scatter_sum(*group, odd); }),
                 cat("expected a first dimension divisible by the ", group->size(), " ranks")));
}

}  // namespace shale::test
