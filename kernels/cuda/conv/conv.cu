#include "shale/kernels/conv.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/conv/conv_cudnn.h"
#include "shale/kernels/cuda/conv/conv_layout.h"
#include "shale/kernels/cuda/conv/conv_problem.h"
#include "shale/kernels/cuda/gemm/gemm_lines.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/kernels/simt/simt.h"

// Host side of convolutions. Windows of one pixel with stride 1 and no padding are plain GEMMs;
// others use the kernels of conv_kernel.cuh, with packed weights, and with copies of images whose
// pixels are not aligned.

namespace shale::kernels::SHALE_BACKEND {
namespace {

// On a GPU, cuDNN is tried first, unless a test chooses a tile. The emulator cannot run cuDNN.
#ifdef __CUDACC__
constexpr bool kHasCudnn = true;
#else
constexpr bool kHasCudnn = false;
#endif

template <typename Args>
bool by_cudnn(const Exec& exec, const Args& a) {
  return kHasCudnn && a.tile == nullptr && conv_by_cudnn(exec, a);
}

constexpr int64_t kMostIndex = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostEdge = 16383;  // maximum size of a padded image and of a window, in pixels

struct Problem {
  const char* op;
  View x, weight, y;  // operands of the convolution, or their gradients
  Windows windows;
  const GemmTile* tile;  // requested tile, or null

  // Returns whether the convolution is a plain GEMM of [pixels, channels] and [O, C].
  bool is_plain() const {
    return weight.size(2) * weight.size(3) == 1 && windows.stride == 1 && windows.padding == 0 &&
           tile == nullptr;
  }
};

void check_sizes(const Problem& p) {
  const auto check = [&](const char* what, int64_t value, int64_t most) {
    if (value <= most) return;
    throw ShapeError(
        cat(p.op, ": ", what, " is ", value, ", expected at most ", most, " on a GPU"));
  };
  for (const View* image : {&p.x, &p.y}) {
    check("the number of pixels", image->numel() / std::max<int64_t>(image->size(3), 1),
          kMostIndex / 2);
    for (const int axis : {1, 2}) {
      check("an image's edge with its padding", image->size(axis) + 2 * p.windows.padding,
            kMostEdge);
    }
  }
  for (const int axis : {2, 3}) check("a window's edge", p.weight.size(axis), kMostEdge);
  check("the stride", p.windows.stride, kMostEdge);
  // Packed weights have zeros that pad the channels, so they can be larger than the weights.
  const int64_t taps = p.weight.size(2) * p.weight.size(3);
  check("the number of weights of a channel",
        taps * (std::max(p.weight.size(0), p.weight.size(1)) + kAlignment), kMostIndex);
}

WindowShape window_shape(const Problem& p) {
  return {.kernel_rows = int(p.weight.size(2)),
          .kernel_cols = int(p.weight.size(3)),
          .stride = int(p.windows.stride),
          .padding = int(p.windows.padding)};
}

Divisor divisor(int64_t value) {
  const auto shift = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(value - 1)));
  const uint64_t factor = (((uint64_t{1} << shift) - uint64_t(value)) << 32) / uint64_t(value) + 1;
  return {.factor = static_cast<uint32_t>(factor), .shift = shift, .value = int(value)};
}

// Returns the number of channels of a pixel, padded to whole packs.
int64_t whole_channels(const View& image) {
  return round_up(image.size(3), kAlignment / dtype_size(image.dtype));
}
// Returns whether all pixels begin at multiples of a pack's size.
bool has_aligned_pixels(const View& image) {
  return reinterpret_cast<uintptr_t>(image.data) % kAlignment == 0 &&
         whole_channels(image) == image.size(3);
}
// Returns the pixels of an image as the lines of a matrix.
Lines pixel_lines(const View& image) {
  const int64_t channels = image.size(3);
  return {{.data = image.data, .dtype = image.dtype, .ld = channels},
          image.numel() / channels,
          channels};
}
int64_t copy_bytes(const View& image) {
  return has_aligned_pixels(image) ? 0 : pixel_lines(image).aligned_bytes();
}
Pixels pixels_of(const View& image) {
  return {.data = image.data,
          .images = int(image.size(0)),
          .rows = int(image.size(1)),
          .cols = int(image.size(2)),
          .channels = int(image.size(3))};
}
// Returns the image's pixels, or those of an aligned copy at `memory`, which needs copy_bytes().
Pixels aligned_pixels(const Exec& exec, const View& image, char* memory) {
  Pixels pixels = pixels_of(image);
  if (has_aligned_pixels(image)) return pixels;
  pixels.data = align_lines(exec, pixel_lines(image), memory).data;
  pixels.channels = int(whole_channels(image));
  return pixels;
}

// Returns the tile for a GEMM that runs `groups` times.
GemmTile tile_for(const Exec& exec, const Problem& p, int64_t m, int64_t n, int64_t k,
                  int64_t groups) {
  GemmMeans means = gemm_means(exec);
  means.hopper = false;
  if (p.tile != nullptr) {
    const bool is_built = *p.tile == GemmTile::k64x64 || *p.tile == GemmTile::k128x128;
    if (is_built && can_run(*p.tile, means)) return *p.tile;
    throw UnavailableError(
        cat(p.op, ": no kernel with tile ", name_of(*p.tile), " on ", exec.device));
  }
  GemmProblem problem;
  problem.m = m, problem.n = n, problem.k = k;
  problem.a.dtype = problem.b.dtype = problem.c.dtype = p.x.dtype;
  return grouped_gemm_tile(problem, groups, means);
}

template <typename P>
using Launch = void (*)(const Exec&, const P&);

template <typename P>
void launch_for(DType dtype, const Exec& exec, const P& p, Launch<P> f32, Launch<P> bf16,
                Launch<P> f16) {
  (dtype == DType::kBF16 ? bf16 : dtype == DType::kF16 ? f16 : f32)(exec, p);
}

View matrix(const View& view, int64_t rows, int64_t cols) {
  return make_view(view.data, view.dtype, {rows, cols});
}
View pixel_matrix(const View& image) {
  return matrix(image, image.numel() / image.size(3), image.size(3));
}
View transposed(View view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}
View weight_matrix(const View& weight) {
  return matrix(weight, weight.size(0), weight.size(1));
}

// ---- Forward, and the gradient of the input ----

// Computes `to` from the windows of `from`. `by`: the axis of the weight that belongs to the
// channels of `to`.
void run_windows(const Exec& exec, const Problem& p, const View& from, const View& to,
                 const View& bias, PackedBy by) {
  check_sizes(p);
  const DType dtype = to.dtype;
  const int64_t channels = whole_channels(from);
  const int64_t depth = p.weight.size(2) * p.weight.size(3) * channels;
  const int64_t weight_bytes = to.size(3) * depth * dtype_size(dtype);
  const int64_t pixel_bytes = copy_bytes(from);
  char* memory = static_cast<char*>(scratch_bytes(p.op, exec, weight_bytes + pixel_bytes));
  pack_weights(exec, p.weight, by, channels, memory);

  WindowProduct product;
  product.from = aligned_pixels(exec, from, memory + weight_bytes);
  product.to = pixels_of(to);
  product.weights = memory;
  product.bias = bias.data;
  product.windows = window_shape(p);
  product.packs =
      has_aligned_pixels(to) && reinterpret_cast<uintptr_t>(bias.data) % kAlignment == 0;
  // In the input gradient each class of pixels (see conv_kernel) reads only a part of each window.
  const int64_t stride = by == PackedBy::kIn ? p.windows.stride : 1;
  const int64_t classes = stride * stride, pixels = to.numel() / to.size(3);
  product.tile =
      tile_for(exec, p, ceil_div(pixels, classes), to.size(3), ceil_div(depth, classes), classes);
  if (by == PackedBy::kOut) {
    launch_for(dtype, exec, product, launch_conv_f32, launch_conv_bf16, launch_conv_f16);
  } else {
    launch_for(dtype, exec, product, launch_conv_input_grad_f32, launch_conv_input_grad_bf16,
               launch_conv_input_grad_f16);
  }
}

// ---- Weight gradient: sums over parts of the pixels, added in order ----

// Returns the number of parts into which the pixels are divided: enough to keep a large GPU busy,
// but few enough that each part is long. It depends only on the sizes, because the bits of the
// result depend on it.
int64_t splits_for(int64_t tiles, int64_t pixels, int64_t part_bytes) {
  constexpr int64_t kBlocks = 264;  // two blocks per multiprocessor of an H100
  constexpr int64_t kLeastPixels = 512, kMostBytes = int64_t{32} << 20;
  const int64_t most =
      std::min(pixels / kLeastPixels, kMostBytes / std::max<int64_t>(part_bytes, 1));
  return std::clamp<int64_t>(ceil_div(kBlocks, tiles), 1, std::max<int64_t>(most, 1));
}

void run_weight_grad(const Exec& exec, const Problem& p, bool accumulate) {
  check_sizes(p);
  constexpr int64_t kStage = 64;  // pixels; a multiple of every tile's depth
  const DType dtype = p.x.dtype;
  const int64_t outs = p.weight.size(0), channels = whole_channels(p.x);
  const int64_t depth = p.weight.size(2) * p.weight.size(3) * channels;
  const int64_t pixels = p.y.numel() / p.y.size(3);
  const int64_t part_bytes = outs * depth * int64_t{sizeof(float)};
  const auto splits_of = [&](GemmTile tile) {
    const int64_t tiles = ceil_div(outs, rows_of(tile)) * ceil_div(depth, cols_of(tile));
    return splits_for(tiles, pixels, part_bytes);
  };
  const int64_t about = splits_of(GemmTile::k128x128);
  WeightProduct product;
  product.windows = window_shape(p);
  product.by_image = divisor(p.y.size(1) * p.y.size(2));
  product.by_row = divisor(p.y.size(2));
  product.outs = int(outs);
  product.depth = int(depth);
  product.tile = tile_for(exec, p, outs, depth, ceil_div(pixels, about), about);
  product.split_pixels = int(round_up(ceil_div(pixels, splits_of(product.tile)), kStage));
  product.splits = int(ceil_div(pixels, product.split_pixels));

  const int64_t x_bytes = copy_bytes(p.x), dy_bytes = copy_bytes(p.y);
  const int64_t parts_bytes = product.splits * part_bytes;
  char* memory = static_cast<char*>(scratch_bytes(p.op, exec, parts_bytes + x_bytes + dy_bytes));
  product.parts = reinterpret_cast<float*>(memory);
  product.x = aligned_pixels(exec, p.x, memory + parts_bytes);
  product.dy = aligned_pixels(exec, p.y, memory + parts_bytes + x_bytes);
  launch_for(dtype, exec, product, launch_conv_weight_grad_f32, launch_conv_weight_grad_bf16,
             launch_conv_weight_grad_f16);
  add_weight_parts(exec, product.parts, product.splits, channels, p.weight, accumulate);
}

}  // namespace

template <>
void run(const Exec& exec, const ConvArgs& a) {
  if (a.y.numel() == 0 || by_cudnn(exec, a)) return;
  const Problem p = {"conv", a.x, a.weight, a.y, a.windows, a.tile};
  if (!p.is_plain()) return run_windows(exec, p, a.x, a.y, a.bias, PackedBy::kOut);
  gemm(exec, {.a = pixel_matrix(a.x),
              .b = transposed(weight_matrix(a.weight)),
              .c = pixel_matrix(a.y),
              .bias = a.bias});
}

template <>
void run(const Exec& exec, const ConvInputGradArgs& a) {
  if (a.dx.numel() == 0 || by_cudnn(exec, a)) return;
  const Problem p = {"conv_input_grad", a.dx, a.weight, a.dy, a.windows, a.tile};
  if (!p.is_plain()) return run_windows(exec, p, a.dy, a.dx, {}, PackedBy::kIn);
  gemm(exec, {.a = pixel_matrix(a.dy), .b = weight_matrix(a.weight), .c = pixel_matrix(a.dx)});
}

template <>
void run(const Exec& exec, const ConvWeightGradArgs& a) {
  const Problem p = {"conv_weight_grad", a.x, a.dweight, a.dy, a.windows, a.tile};
  if (a.x.size(0) == 0) {
    if (!a.accumulate) fill(exec, {.y = a.dweight, .value = 0});
  } else if (by_cudnn(exec, a)) {
    return;
  } else if (p.is_plain() && (a.dweight.dtype == DType::kF32 || a.dweight.dtype == a.x.dtype)) {
    gemm(exec, {.a = transposed(pixel_matrix(a.dy)),
                .b = pixel_matrix(a.x),
                .c = weight_matrix(a.dweight),
                .accumulate = a.accumulate});
  } else {
    run_weight_grad(exec, p, a.accumulate);
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
