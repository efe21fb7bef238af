#include "shale/kernels/conv.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/onednn_conv.h"
#include "shale/kernels/cpu/onednn_matmul.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"

// Blocks of images are a call of oneDNN's each, in one thread. Their number depends on shapes and
// dtypes alone. Elements that oneDNN has no products of on this CPU (f16, bf16 on older ones) are
// widened to f32, block by block.

namespace shale::kernels {
namespace {

using cpu::ConvPass;
using cpu::OnednnConv;

constexpr int64_t kBlockWork = int64_t{1} << 23;    // multiply-adds that are worth a call
constexpr int64_t kMostSums = 16;                   // blocks of a sum over images
constexpr int64_t kSumElements = int64_t{1} << 24;  // of all blocks' sums

size_t aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// A convolution, whatever the pass: x, weight and y are those of forward, or their gradients.
struct Problem {
  ConvPass pass;
  View x, weight, y;
  Windows windows;
  bool bias = false;

  bool is_native() const {
    return x.dtype == DType::kF32 ||
           (x.dtype == DType::kBF16 && cpu::OnednnMatmul::supports_bf16());
  }
  DType product_dtype() const { return is_native() ? x.dtype : DType::kF32; }
  int64_t image_work() const {
    return y.numel() / std::max<int64_t>(y.size(0), 1) * (weight.numel() / weight.size(0));
  }
  // Images of a block.
  int64_t images_at_once() const {
    const int64_t work = std::max<int64_t>(image_work(), 1);
    int64_t images = std::max<int64_t>((kBlockWork + work - 1) / work, 1);
    if (pass == ConvPass::kWeightGrad) {
      const int64_t blocks = std::clamp<int64_t>(kSumElements / weight.numel(), 1, kMostSums);
      images = std::max(images, (x.size(0) + blocks - 1) / blocks);
    }
    return std::min(images, x.size(0));
  }
  // Whether some place of the window is over padding wherever the window is.
  bool has_blind_places() const {
    const auto blind = [&](int64_t pixels, int64_t places, int64_t windows_of_line) {
      for (int64_t place = 0; place < places; ++place) {
        bool sees = false;
        for (int64_t i = 0; i < windows_of_line && !sees; ++i) {
          const int64_t pixel = i * windows.stride + place - windows.padding;
          sees = pixel >= 0 && pixel < pixels;
        }
        if (!sees) return true;
      }
      return false;
    };
    return blind(x.size(1), weight.size(2), y.size(1)) ||
           blind(x.size(2), weight.size(3), y.size(2));
  }
  OnednnConv::Spec spec(int64_t images) const {
    return {.pass = pass,
            .images = images,
            .rows = x.size(1),
            .cols = x.size(2),
            .channels = x.size(3),
            .out_rows = y.size(1),
            .out_cols = y.size(2),
            .out_channels = y.size(3),
            .kernel_rows = weight.size(2),
            .kernel_cols = weight.size(3),
            .stride = windows.stride,
            .padding = windows.padding,
            .dtype = product_dtype(),
            .bias = bias};
  }
};

void widen(const View& from, int64_t offset, int64_t count, float* to) {
  dispatch_float(from.dtype, [&]<typename T>() {
    const T* values = from.as<T>() + offset;
    for (int64_t i = 0; i < count; ++i) to[i] = to_f32(values[i]);
  });
}

void narrow(const float* from, int64_t count, const View& to, int64_t offset) {
  dispatch_float(to.dtype, [&]<typename T>() {
    T* values = to.as<T>() + offset;
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(from[i]);
  });
}

// The whole of a view in the dtype of products: itself, or a copy in `room`.
const void* as_product(const View& view, bool is_native, float* room) {
  if (is_native) return view.data;
  widen(view, 0, view.numel(), room);
  return room;
}

int64_t image_elements(const View& images) {
  return images.numel() / std::max<int64_t>(images.size(0), 1);
}

void* image_at(const View& images, int64_t image) {
  return static_cast<char*>(images.data) +
         image * image_elements(images) * dtype_size(images.dtype);
}

// How a problem is cut, and the memory that it takes: first the packed weights and what is there
// once, then that of each block or thread.
struct Plan {
  explicit Plan(const Problem& p)
      : step(p.images_at_once()),
        whole(OnednnConv::get(p.spec(step))),
        last(last_block(p, step)),
        is_native(p.is_native()),
        scratch_bytes(aligned(
            std::max(whole->scratch_bytes(), last != nullptr ? last->scratch_bytes() : 0))) {}

  const OnednnConv& of(int64_t images) const { return images == step ? *whole : *last; }

  // With the weights that the others take.
  static std::shared_ptr<const OnednnConv> last_block(const Problem& p, int64_t step) {
    if (p.x.size(0) % step == 0) return nullptr;
    OnednnConv::Spec spec = p.spec(p.x.size(0) % step);
    spec.packed_like = step;
    return OnednnConv::get(spec);
  }

  int64_t step;                                   // images
  std::shared_ptr<const OnednnConv> whole, last;  // last: null if all blocks are whole
  bool is_native;
  size_t scratch_bytes;  // of a call
};

int thread_number() {
  return omp_in_parallel() ? omp_get_thread_num() : 0;
}

// Forward, or the gradient of the input: `in` to `out`, each image by itself.
void run_images(const Exec& exec, const Problem& p, const View& in, const View& out,
                const View& bias) {
  if (in.numel() == 0 || out.numel() == 0) return;
  const Plan plan(p);
  const size_t wide = plan.is_native ? 0 : sizeof(float);
  const size_t packed = aligned(plan.whole->packed_bytes());
  const size_t plain = aligned(size_t(p.weight.numel()) * wide);
  const size_t biases = bias.defined() ? aligned(size_t(bias.numel()) * wide) : 0;
  const size_t in_bytes = aligned(size_t(plan.step * image_elements(in)) * wide);
  const size_t out_bytes = aligned(size_t(plan.step * image_elements(out)) * wide);
  const size_t thread_bytes = plan.scratch_bytes + in_bytes + out_bytes;
  const int64_t images = in.size(0);
  const size_t threads = size_t(std::max(exec.threads, 1));
  char* memory =
      static_cast<char*>(exec.workspace->reserve(packed + plain + biases + threads * thread_bytes));
  const auto take = [&memory](size_t bytes) { return std::exchange(memory, memory + bytes); };
  char* const weights = take(packed);
  plan.whole->pack(as_product(p.weight, plan.is_native, reinterpret_cast<float*>(take(plain))),
                   weights, int(threads));
  char* const bias_room = take(biases);
  const void* bias_data =
      bias.defined() ? as_product(bias, plan.is_native, reinterpret_cast<float*>(bias_room))
                     : nullptr;
  parallel_for(
      exec, images, plan.step,
      [&](int64_t begin, int64_t end) {
        char* mine = memory + size_t(thread_number()) * thread_bytes;
        void* const scratch = mine;
        float* const wide_in = reinterpret_cast<float*>(mine + plan.scratch_bytes);
        float* const wide_out = reinterpret_cast<float*>(mine + plan.scratch_bytes + in_bytes);
        const int64_t count = end - begin;
        if (!plan.is_native) {
          widen(in, begin * image_elements(in), count * image_elements(in), wide_in);
        }
        plan.of(count).run({.in = plan.is_native ? image_at(in, begin) : wide_in,
                            .packed = weights,
                            .bias = bias_data,
                            .out = plan.is_native ? image_at(out, begin) : wide_out,
                            .scratch = scratch});
        if (!plan.is_native) {
          narrow(wide_out, count * image_elements(out), out, begin * image_elements(out));
        }
      },
      Schedule::kDynamic);
}

// dweight = sum, or += it.
void write_sum(const Exec& exec, const float* sum, const View& dweight, bool accumulate) {
  constexpr int64_t kGrain = 1 << 14;
  dispatch_gradient(dweight.dtype, [&]<typename T>() {
    T* const out = dweight.as<T>();
    parallel_for(exec, dweight.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<T>(accumulate ? to_f32(out[i]) + sum[i] : sum[i]);
      }
    });
  });
}

// Adds the blocks' packed gradients in order, into the first.
void add_blocks(const Exec& exec, float* sums, int64_t blocks, int64_t elements) {
  constexpr int64_t kGrain = 1 << 14;
  parallel_for(exec, elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = 1; block < blocks; ++block) {
      const float* more = sums + block * elements;
      for (int64_t i = begin; i < end; ++i) sums[i] += more[i];
    }
  });
}

void run_weight_grad(const Exec& exec, const Problem& p, bool accumulate) {
  if (p.x.size(0) == 0) {
    if (!accumulate) std::fill_n(static_cast<char*>(p.weight.data), p.weight.bytes(), char{0});
    return;
  }
  const Plan plan(p);
  const int64_t images = p.x.size(0), blocks = (images + plan.step - 1) / plan.step;
  const size_t wide = plan.is_native ? 0 : sizeof(float);
  const size_t packed = aligned(plan.whole->packed_bytes());
  const size_t plain = aligned(size_t(p.weight.numel()) * sizeof(float));
  const size_t x_bytes = aligned(size_t(plan.step * image_elements(p.x)) * wide);
  const size_t y_bytes = aligned(size_t(plan.step * image_elements(p.y)) * wide);
  const size_t thread_bytes = plan.scratch_bytes + x_bytes + y_bytes;
  const size_t threads = size_t(std::max(exec.threads, 1));
  char* const sums = static_cast<char*>(
      exec.workspace->reserve(size_t(blocks) * packed + plain + threads * thread_bytes));
  float* const dense = reinterpret_cast<float*>(sums + size_t(blocks) * packed);
  char* const memory = reinterpret_cast<char*>(dense) + plain;
  const bool has_blind_places = p.has_blind_places();
  parallel_for(
      exec, images, plan.step,
      [&](int64_t begin, int64_t end) {
        char* mine = memory + size_t(thread_number()) * thread_bytes;
        char* const sum = sums + size_t(begin / plan.step) * packed;
        if (has_blind_places) {  // which oneDNN does not write
          std::fill_n(sum, packed, char{0});
          std::fill_n(mine, plan.scratch_bytes, char{0});
        }
        float* const wide_x = reinterpret_cast<float*>(mine + plan.scratch_bytes);
        float* const wide_y = reinterpret_cast<float*>(mine + plan.scratch_bytes + x_bytes);
        const int64_t count = end - begin;
        if (!plan.is_native) {
          widen(p.x, begin * image_elements(p.x), count * image_elements(p.x), wide_x);
          widen(p.y, begin * image_elements(p.y), count * image_elements(p.y), wide_y);
        }
        plan.of(count).run({.in = plan.is_native ? image_at(p.x, begin) : wide_x,
                            .dy = plan.is_native ? image_at(p.y, begin) : wide_y,
                            .out = sum,
                            .scratch = mine});
      },
      Schedule::kDynamic);
  add_blocks(exec, reinterpret_cast<float*>(sums), blocks,
             static_cast<int64_t>(packed / sizeof(float)));
  plan.whole->unpack(sums, dense, int(threads));
  write_sum(exec, dense, p.weight, accumulate);
}

}  // namespace

template <>
void cpu::run(const Exec& exec, const ConvArgs& a) {
  const Problem problem{.pass = ConvPass::kForward,
                        .x = a.x,
                        .weight = a.weight,
                        .y = a.y,
                        .windows = a.windows,
                        .bias = a.bias.defined()};
  run_images(exec, problem, a.x, a.y, a.bias);
}

template <>
void cpu::run(const Exec& exec, const ConvInputGradArgs& a) {
  const Problem problem{
      .pass = ConvPass::kInputGrad, .x = a.dx, .weight = a.weight, .y = a.dy, .windows = a.windows};
  run_images(exec, problem, a.dy, a.dx, {});
}

template <>
void cpu::run(const Exec& exec, const ConvWeightGradArgs& a) {
  const Problem problem{.pass = ConvPass::kWeightGrad,
                        .x = a.x,
                        .weight = a.dweight,
                        .y = a.dy,
                        .windows = a.windows};
  run_weight_grad(exec, problem, a.accumulate);
}

}  // namespace shale::kernels
