#include <algorithm>
#include <limits>
#include <utility>

#include "shale/kernels/check.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/cuda/conv/patches.h"
#include "shale/kernels/cuda/gemm/gemm.h"
#include "shale/kernels/cuda/gemm/gemm_lines.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/elementwise.h"

// A convolution as a product: each window's pixels become a row of patches, of some images at a
// time, and weights [O, C, kh, kw] become [O, kh, kw, C]. Windows of one pixel that leave out none
// need no patches.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int64_t kPatchBytes = int64_t{64} << 20;  // of the images that are taken at a time
constexpr int64_t kDepthUnit = 16;  // elements of which a patch has a multiple: lines are aligned

// Scratch memory of a call inside of a call: the rest of what the outer one has reserved.
class RestOfWorkspace : public Workspace {
 public:
  RestOfWorkspace(char* memory, size_t bytes) : memory_(memory), bytes_(bytes) {}
  void* reserve(size_t bytes) override {
    if (bytes <= bytes_) return memory_;
    throw InternalError(cat("conv: a product takes ", bytes, " bytes, there are ", bytes_));
  }

 private:
  char* memory_;
  size_t bytes_;
};

struct Problem {
  const char* op;
  View x, weight, y;  // or their gradients
  Windows windows;

  int64_t images() const { return x.size(0); }
  int64_t pixels() const { return y.size(1) * y.size(2); }  // windows of an image
  int64_t outs() const { return weight.size(0); }
  int64_t depth() const { return weight.size(1) * weight.size(2) * weight.size(3); }
  bool is_plain() const {
    return weight.size(2) * weight.size(3) == 1 && windows.stride == 1 && windows.padding == 0 &&
           depth() % kDepthUnit == 0;
  }
  // Elements of a patch, with what makes its lines aligned.
  int64_t padded_depth() const { return round_up(depth(), kDepthUnit); }
  PatchShape patch_shape() const {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (x.numel() / std::max<int64_t>(images(), 1) > kMost ||
        y.numel() / std::max<int64_t>(images(), 1) > kMost) {
      throw ShapeError(cat(op, ": an image of ", x, " has more than ", kMost, " elements"));
    }
    return {.rows = int(x.size(1)),
            .cols = int(x.size(2)),
            .channels = int(x.size(3)),
            .out_rows = int(y.size(1)),
            .out_cols = int(y.size(2)),
            .kernel_rows = int(weight.size(2)),
            .kernel_cols = int(weight.size(3)),
            .stride = int(windows.stride),
            .padding = int(windows.padding),
            .depth = int(depth()),
            .padded_depth = int(padded_depth())};
  }
  // Images that are taken at a time, by the bytes of an element of a patch.
  int64_t images_at_once(int64_t element_bytes) const {
    const int64_t bytes = std::max<int64_t>(pixels() * padded_depth() * element_bytes, 1);
    return std::clamp<int64_t>(kPatchBytes / bytes, 1, std::max<int64_t>(images(), 1));
  }
};

View matrix(void* data, DType dtype, int64_t rows, int64_t cols) {
  return make_view(data, dtype, {rows, cols});
}

View transposed(const View& view) {
  View other = view;
  std::swap(other.shape[0], other.shape[1]);
  std::swap(other.strides[0], other.strides[1]);
  return other;
}

// Images [first, first + count).
View part(const View& images, int64_t first, int64_t count) {
  Shape shape = images.shape;
  const int64_t elements = images.numel() / shape[0];
  shape[0] = count;
  return make_view(static_cast<char*>(images.data) + first * elements * dtype_size(images.dtype),
                   images.dtype, shape);
}

GemmPlan plan_of(const Exec& exec, const GemmProblem& problem) {
  return gemm_plan(problem, gemm_means(exec.device));
}

void product(const Exec& exec, const GemmArgs& args, char* rest, size_t rest_bytes) {
  RestOfWorkspace workspace(rest, rest_bytes);
  Exec inside = exec;
  inside.workspace = &workspace;
  const GemmProblem problem = gemm_problem(args);
  gemm_by_plan(inside, problem, plan_of(exec, problem));
}

size_t product_bytes(const Exec& exec, const GemmArgs& args) {
  const GemmProblem problem = gemm_problem(args);
  return size_t(gemm_workspace_bytes(problem, plan_of(exec, problem)));
}

int64_t aligned(int64_t bytes) {
  return round_up(bytes, 64);
}

// Weights as the products want them, and what patches need; the rest is the products' own.
struct Memory {
  char* weights = nullptr;
  char* patches = nullptr;
  char* rest = nullptr;
  size_t rest_bytes = 0;
};

Memory reserve(const Exec& exec, const Problem& p, int64_t weight_bytes, int64_t patch_bytes,
               size_t rest_bytes) {
  const int64_t bytes = aligned(weight_bytes) + aligned(patch_bytes) + int64_t(rest_bytes);
  char* memory = static_cast<char*>(scratch_bytes(p.op, exec, bytes));
  return {.weights = memory,
          .patches = memory + aligned(weight_bytes),
          .rest = memory + aligned(weight_bytes) + aligned(patch_bytes),
          .rest_bytes = rest_bytes};
}

// ---- Forward ----

void run_forward(const Exec& exec, const Problem& p, const View& bias) {
  const DType dtype = p.x.dtype;
  const int64_t size = dtype_size(dtype), depth = p.padded_depth();
  const int64_t step = p.images_at_once(size), rows = step * p.pixels();
  const int64_t weight_bytes = p.outs() * depth * size;
  const int64_t patch_bytes = p.is_plain() ? 0 : rows * depth * size;
  const auto args = [&](const Memory& memory, int64_t first, int64_t count) {
    const View y = part(p.y, first, count);
    void* patches = p.is_plain() ? part(p.x, first, count).data : memory.patches;
    const int64_t m = count * p.pixels();
    return GemmArgs{.a = matrix(patches, dtype, m, depth),
                    .b = transposed(matrix(memory.weights, dtype, p.outs(), depth)),
                    .c = matrix(y.data, dtype, m, p.outs()),
                    .bias = bias};
  };
  const int64_t last = p.images() % step == 0 ? step : p.images() % step;
  const size_t rest = std::max(product_bytes(exec, args({}, 0, step)),
                               product_bytes(exec, args({}, p.images() - last, last)));
  const Memory memory = reserve(exec, p, weight_bytes, patch_bytes, rest);
  const PatchShape shape = p.patch_shape();
  pack_weights(exec, shape, p.weight, memory.weights);
  for (int64_t first = 0; first < p.images(); first += step) {
    const int64_t count = std::min(step, p.images() - first);
    if (!p.is_plain()) gather_patches(exec, shape, part(p.x, first, count), memory.patches);
    product(exec, args(memory, first, count), memory.rest, memory.rest_bytes);
  }
}

// ---- Gradient of the input: patches of it, in f32, whose overlaps are added ----

void run_input_grad(const Exec& exec, const Problem& p) {
  const DType dtype = p.x.dtype;
  const int64_t depth = p.padded_depth();
  const bool plain = p.is_plain();
  const DType patch_dtype = plain ? dtype : DType::kF32;
  const int64_t step = p.images_at_once(sizeof(float)), rows = step * p.pixels();
  const int64_t weight_bytes = p.outs() * depth * dtype_size(dtype);
  const int64_t patch_bytes = plain ? 0 : rows * depth * int64_t{sizeof(float)};
  const auto args = [&](const Memory& memory, int64_t first, int64_t count) {
    void* patches = plain ? part(p.x, first, count).data : memory.patches;
    const int64_t m = count * p.pixels();
    return GemmArgs{.a = matrix(part(p.y, first, count).data, dtype, m, p.outs()),
                    .b = matrix(memory.weights, dtype, p.outs(), depth),
                    .c = matrix(patches, patch_dtype, m, depth)};
  };
  const int64_t last = p.images() % step == 0 ? step : p.images() % step;
  const size_t rest = std::max(product_bytes(exec, args({}, 0, step)),
                               product_bytes(exec, args({}, p.images() - last, last)));
  const Memory memory = reserve(exec, p, weight_bytes, patch_bytes, rest);
  const PatchShape shape = p.patch_shape();
  pack_weights(exec, shape, p.weight, memory.weights);
  for (int64_t first = 0; first < p.images(); first += step) {
    const int64_t count = std::min(step, p.images() - first);
    product(exec, args(memory, first, count), memory.rest, memory.rest_bytes);
    if (plain) continue;
    add_patches(exec, shape, reinterpret_cast<const float*>(memory.patches),
                part(p.x, first, count));
  }
}

// ---- Gradient of the weights: a sum over the images, in f32 ----

void run_weight_grad(const Exec& exec, const Problem& p, bool accumulate) {
  const DType dtype = p.x.dtype;
  const int64_t size = dtype_size(dtype), depth = p.padded_depth();
  const int64_t step = p.images_at_once(size), rows = step * p.pixels();
  const int64_t sum_bytes = p.outs() * depth * int64_t{sizeof(float)};
  const int64_t patch_bytes = p.is_plain() ? 0 : rows * depth * size;
  const auto args = [&](const Memory& memory, int64_t first, int64_t count) {
    void* patches = p.is_plain() ? part(p.x, first, count).data : memory.patches;
    const int64_t m = count * p.pixels();
    return GemmArgs{.a = transposed(matrix(part(p.y, first, count).data, dtype, m, p.outs())),
                    .b = matrix(patches, dtype, m, depth),
                    .c = matrix(memory.weights, DType::kF32, p.outs(), depth),
                    .accumulate = first > 0};
  };
  const int64_t last = p.images() % step == 0 ? step : p.images() % step;
  const size_t rest = std::max(product_bytes(exec, args({}, 0, step)),
                               product_bytes(exec, args({}, p.images() - last, last)));
  const Memory memory = reserve(exec, p, sum_bytes, patch_bytes, rest);
  const PatchShape shape = p.patch_shape();
  for (int64_t first = 0; first < p.images(); first += step) {
    const int64_t count = std::min(step, p.images() - first);
    if (!p.is_plain()) gather_patches(exec, shape, part(p.x, first, count), memory.patches);
    product(exec, args(memory, first, count), memory.rest, memory.rest_bytes);
  }
  unpack_weights(exec, shape, reinterpret_cast<const float*>(memory.weights), p.weight, accumulate);
}

}  // namespace

template <>
void run(const Exec& exec, const ConvArgs& a) {
  if (a.y.numel() == 0) return;
  run_forward(exec, {"conv", a.x, a.weight, a.y, a.windows}, a.bias);
}

template <>
void run(const Exec& exec, const ConvInputGradArgs& a) {
  if (a.dx.numel() == 0) return;
  run_input_grad(exec, {"conv_input_grad", a.dx, a.weight, a.dy, a.windows});
}

template <>
void run(const Exec& exec, const ConvWeightGradArgs& a) {
  if (a.x.size(0) > 0) {
    run_weight_grad(exec, {"conv_weight_grad", a.x, a.dweight, a.dy, a.windows}, a.accumulate);
  } else if (!a.accumulate) {
    fill(exec, {.y = a.dweight, .value = 0});
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
