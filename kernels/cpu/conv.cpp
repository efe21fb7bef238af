#include "shale/kernels/conv.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/onednn_conv.h"
#include "shale/kernels/cpu/onednn_matmul.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"

// Convolutions process images in blocks, each with one single-threaded oneDNN call. The number of
// blocks depends only on shapes and dtypes. Dtypes that oneDNN does not support on this CPU (f16;
// bf16 on older ones) are widened to f32, block by block.

namespace shale::kernels {
namespace {

using cpu::ConvPass;
using cpu::OnednnConv;

constexpr int64_t kBlockWork = int64_t{1} << 23;  // minimum multiply-adds per oneDNN call

// Limits for the weight gradient:
constexpr int64_t kMostBlocks = 16;  // maximum blocks of images or channels
// Minimum pixels of y per partial sum: with fewer, writing and adding the sum takes longer.
constexpr int64_t kSumPixels = 1024;
constexpr int64_t kSumElements = int64_t{1} << 24;  // total of all partial sums, in elements
constexpr int64_t kSliceChannels = 128;             // minimum channels of y per block

size_t aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// A convolution or one of its gradients. In a gradient pass, dx, dweight and dy take the places of
// x, weight and y.
struct Problem {
  ConvPass pass;
  View x, weight, y;
  Windows windows;
  bool bias = false;

  bool is_native() const {
    return x.dtype == DType::kF32 ||
           (x.dtype == DType::kBF16 && cpu::OnednnMatmul::has_fast_bf16());
  }
  DType product_dtype() const { return is_native() ? x.dtype : DType::kF32; }
  int64_t image_work() const {
    return y.numel() / std::max<int64_t>(y.size(0), 1) * (weight.numel() / weight.size(0));
  }
  // Returns the number of images per block.
  int64_t images_at_once() const {
    const int64_t work = std::max<int64_t>(image_work(), 1);
    int64_t images = std::max<int64_t>((kBlockWork + work - 1) / work, 1);
    if (pass == ConvPass::kWeightGrad) {
      const int64_t pixels = x.size(0) * y.size(1) * y.size(2);
      const int64_t most = std::min(pixels / kSumPixels, kSumElements / weight.numel());
      const int64_t blocks = std::clamp<int64_t>(most, 1, kMostBlocks);
      images = std::max(images, (x.size(0) + blocks - 1) / blocks);
    }
    return std::min(images, x.size(0));
  }
  // Returns the number of y's channels that one block of the weight gradient computes. If there are
  // few blocks of images, blocks divide the channels too.
  int64_t channels_at_once() const {
    const int64_t images = images_at_once(), channels = y.size(3);
    const int64_t slices = kMostBlocks * images / x.size(0);
    const int64_t work = std::max<int64_t>(image_work() * images / channels, 1);
    int64_t slice = std::max(kSliceChannels, (kBlockWork + work - 1) / work);
    slice = std::max(slice, channels / std::max<int64_t>(slices, 1));
    for (slice = (slice + 15) / 16 * 16; slice < channels; slice += 16) {
      if (channels % slice == 0) return slice;
    }
    return channels;
  }
  // Returns whether some position in the kernel meets only padding, in all windows.
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

// Returns the whole view in the dtype of the matmuls: in place, or as a copy in `room`.
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

// How a problem is divided into blocks, and which oneDNN objects compute them. Workspace: first the
// packed weights and other shared data, then the memory of each block or thread.
struct Plan {
  explicit Plan(const Problem& p) : Plan(p, p.images_at_once()) {}
  Plan(const Problem& p, int64_t images)
      : step(images),
        whole(OnednnConv::get(p.spec(step))),
        last(last_block(p, step)),
        is_native(p.is_native()),
        scratch_bytes(aligned(
            std::max(whole->scratch_bytes(), last != nullptr ? last->scratch_bytes() : 0))) {}

  const OnednnConv& of(int64_t images) const { return images == step ? *whole : *last; }

  // Returns the object for the last block if it has fewer images. It uses the packed weights of the
  // other blocks.
  static std::shared_ptr<const OnednnConv> last_block(const Problem& p, int64_t step) {
    if (p.x.size(0) % step == 0) return nullptr;
    OnednnConv::Spec spec = p.spec(p.x.size(0) % step);
    spec.packed_like = step;
    return OnednnConv::get(spec);
  }

  int64_t step;                                   // images per block
  std::shared_ptr<const OnednnConv> whole, last;  // `last` is null if all blocks are whole
  bool is_native;
  size_t scratch_bytes;  // scratch memory of one oneDNN call
};

int thread_number() {
  return omp_in_parallel() ? omp_get_thread_num() : 0;
}

// Returns whether `packed` holds the weights in this plan's layout. If not, allocates memory for
// them.
bool is_packed(const Plan& plan, PackedWeight& packed) {
  const auto* order = static_cast<const OnednnConv*>(packed.order.get());
  if (packed.data != nullptr && order->packs_like(*plan.whole)) return true;
  packed.data = packed.allocate(plan.whole->packed_bytes());
  packed.order = plan.whole;
  return false;
}

// Runs forward, or the gradient of the input: computes `out` from `in`, block by block of images.
void run_images(const Exec& exec, const Problem& p, const View& in, const View& out,
                const View& bias, PackedWeight* kept) {
  if (in.numel() == 0 || out.numel() == 0) return;
  const Plan plan(p);
  const size_t wide = plan.is_native ? 0 : sizeof(float);
  const bool is_kept = kept != nullptr && is_packed(plan, *kept);
  const size_t packed = kept != nullptr ? 0 : aligned(plan.whole->packed_bytes());
  const size_t plain = is_kept ? 0 : aligned(size_t(p.weight.numel()) * wide);
  const size_t biases = bias.defined() ? aligned(size_t(bias.numel()) * wide) : 0;
  const size_t in_bytes = aligned(size_t(plan.step * image_elements(in)) * wide);
  const size_t out_bytes = aligned(size_t(plan.step * image_elements(out)) * wide);
  const size_t thread_bytes = plan.scratch_bytes + in_bytes + out_bytes;
  const int64_t images = in.size(0);
  const size_t threads = size_t(std::max(exec.threads, 1));
  char* memory =
      static_cast<char*>(exec.workspace->reserve(packed + plain + biases + threads * thread_bytes));
  const auto take = [&memory](size_t bytes) { return std::exchange(memory, memory + bytes); };
  char* const own = take(packed);
  void* const weights = kept != nullptr ? kept->data : own;
  if (!is_kept) {
    plan.whole->pack(as_product(p.weight, plan.is_native, reinterpret_cast<float*>(take(plain))),
                     weights, int(threads));
  }
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

// Writes dweight = sum or, with accumulate, dweight += sum.
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

// Adds the packed partial sums over blocks of images, in order, into the first partial sum.
void add_sums(const Exec& exec, float* sums, int64_t count, int64_t elements) {
  constexpr int64_t kGrain = 1 << 14;
  if (count == 1) return;
  parallel_for(exec, elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t sum = 1; sum < count; ++sum) {
      const float* more = sums + sum * elements;
      for (int64_t i = begin; i < end; ++i) sums[i] += more[i];
    }
  });
}

// Copies channels [first, first + count) of pixels [begin, end) of `y` densely, in dtype T.
template <typename T>
void gather_channels(const View& y, int64_t begin, int64_t end, int64_t first, int64_t count,
                     T* to) {
  dispatch_float(y.dtype, [&]<typename From>() {
    const int64_t channels = y.size(3);
    for (int64_t pixel = begin; pixel < end; ++pixel, to += count) {
      const From* from = y.as<From>() + pixel * channels + first;
      if constexpr (std::is_same_v<From, T>) {
        std::memcpy(to, from, size_t(count) * sizeof(T));
      } else if constexpr (std::is_same_v<T, float>) {
        for (int64_t i = 0; i < count; ++i) to[i] = to_f32(from[i]);
      }
    }
  });
}

// The weight gradient. It adds partial sums over blocks of images. If this would give many sums
// over few pixels each, it divides the channels of y into slices instead.
class WeightGrad {
 public:
  WeightGrad(const Exec& exec, const Problem& whole)
      : exec_(exec),
        whole_(whole),
        channels_(whole.channels_at_once()),
        slice_(sliced(whole, channels_)),
        plan_(slice_, whole.images_at_once()),
        images_(whole.x.size(0)),
        sums_((images_ + plan_.step - 1) / plan_.step),
        slices_(whole.y.size(3) / channels_) {}

  void run(bool accumulate) {
    reserve();
    parallel_for(
        exec_, slices_ * sums_, 1, [&](int64_t block, int64_t) { run_block(block); },
        Schedule::kDynamic);
    const View& dweight = whole_.weight;
    const bool in_place = dweight.dtype == DType::kF32 && !accumulate;
    float* const dense = in_place ? dweight.as<float>() : dense_;
    for (int64_t slice = 0; slice < slices_; ++slice) {
      float* const first = reinterpret_cast<float*>(block_sum(slice * sums_));
      add_sums(exec_, first, sums_, int64_t(packed_ / sizeof(float)));
      plan_.whole->unpack(first, dense + slice * slice_.weight.numel(), std::max(exec_.threads, 1));
    }
    if (!in_place) write_sum(exec_, dense, dweight, accumulate);
  }

 private:
  static Problem sliced(Problem p, int64_t channels) {
    p.weight.shape[0] = channels;
    p.y.shape[3] = channels;
    return p;
  }

  char* block_sum(int64_t block) const { return sums_memory_ + size_t(block) * packed_; }

  void reserve() {
    const size_t element = dtype_size(whole_.product_dtype());
    const bool copies_y = slices_ > 1 || !plan_.is_native;
    packed_ = aligned(plan_.whole->packed_bytes());
    x_bytes_ =
        plan_.is_native ? 0 : aligned(size_t(plan_.step * image_elements(whole_.x)) * element);
    const size_t y_bytes =
        copies_y ? aligned(size_t(plan_.step * image_elements(slice_.y)) * element) : 0;
    thread_bytes_ = plan_.scratch_bytes + x_bytes_ + y_bytes;
    const size_t all_sums = size_t(slices_ * sums_) * packed_;
    const size_t dense = aligned(size_t(whole_.weight.numel()) * sizeof(float));
    sums_memory_ = static_cast<char*>(exec_.workspace->reserve(
        all_sums + dense + size_t(std::max(exec_.threads, 1)) * thread_bytes_));
    dense_ = reinterpret_cast<float*>(sums_memory_ + all_sums);
    threads_memory_ = sums_memory_ + all_sums + dense;
  }

  // Computes the contribution of one block of images to one slice of the weight gradient. Block
  // number `block` is partial sum block % sums_ of slice block / sums_.
  void run_block(int64_t block) const {
    char* const mine = threads_memory_ + size_t(thread_number()) * thread_bytes_;
    char* const sum = block_sum(block);
    // oneDNN does not write kernel positions that meet only padding
    if (slice_.has_blind_places()) {
      std::fill_n(sum, packed_, char{0});
      std::fill_n(mine, plan_.scratch_bytes, char{0});
    }
    char* const wide_x = mine + plan_.scratch_bytes;
    char* const own_y = wide_x + x_bytes_;
    const int64_t begin = block % sums_ * plan_.step;
    const int64_t count = std::min(plan_.step, images_ - begin);
    if (!plan_.is_native) {
      const int64_t elements = image_elements(whole_.x);
      widen(whole_.x, begin * elements, count * elements, reinterpret_cast<float*>(wide_x));
    }
    const void* const dy = slices_ == 1 && plan_.is_native
                               ? image_at(whole_.y, begin)
                               : gather_y(begin, count, block / sums_, own_y);
    plan_.of(count).run({.in = plan_.is_native ? image_at(whole_.x, begin) : wide_x,
                         .dy = dy,
                         .out = sum,
                         .scratch = mine});
  }

  const void* gather_y(int64_t image, int64_t count, int64_t slice, char* to) const {
    const int64_t pixels = whole_.y.size(1) * whole_.y.size(2);
    const auto gather = [&]<typename T>(T* values) {
      gather_channels(whole_.y, image * pixels, (image + count) * pixels, slice * channels_,
                      channels_, values);
    };
    if (whole_.product_dtype() == DType::kBF16) {
      gather(reinterpret_cast<bf16*>(to));
    } else {
      gather(reinterpret_cast<float*>(to));
    }
    return to;
  }

  const Exec& exec_;
  Problem whole_;
  int64_t channels_;  // channels of y per slice
  Problem slice_;
  Plan plan_;  // plan of one slice
  int64_t images_, sums_, slices_;
  size_t packed_ = 0, x_bytes_ = 0, thread_bytes_ = 0;
  char* sums_memory_ = nullptr;
  float* dense_ = nullptr;
  char* threads_memory_ = nullptr;
};

void run_weight_grad(const Exec& exec, const Problem& p, bool accumulate) {
  if (p.x.size(0) > 0) {
    WeightGrad(exec, p).run(accumulate);
  } else if (!accumulate) {
    std::fill_n(static_cast<char*>(p.weight.data), p.weight.bytes(), char{0});
  }
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
  run_images(exec, problem, a.x, a.y, a.bias, a.packed);
}

template <>
void cpu::run(const Exec& exec, const ConvInputGradArgs& a) {
  const Problem problem{
      .pass = ConvPass::kInputGrad, .x = a.dx, .weight = a.weight, .y = a.dy, .windows = a.windows};
  run_images(exec, problem, a.dy, a.dx, {}, a.packed);
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
