#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shale/kernels/attention.h"
#include "shale/kernels/slot.h"
#include "shale/runtime/kernel_check/operands.h"

// Test cases of every kernel slot, for the check of a GPU's kernels and for bench_kernels. Each
// cases_*.cpp adds the cases of some slots. T is the number of tokens of a batch of B sequences of
// S tokens, C the width, H the number of heads, D = C / H, V the size of the vocabulary.
namespace shale::kernel_check {

// Sizes of a model and its batch.
struct Size {
  std::string label;
  int64_t batch, seq, width, heads, vocab, padded_vocab;
  int64_t tokens() const { return batch * seq; }
};

// Variant of attention. The defaults are plain causal attention.
struct AttentionVariant {
  std::string name;
  bool causal = true;
  int64_t queries_of_key = 1;  // number of query heads per head of k and v
  bool ragged = false;         // true: sequence lengths vary from S / 2 to S
  int64_t window = 0;          // number of keys that a query attends to; 0: all
  int64_t documents = 1;       // number of documents, of equal length, per sequence
  float softcap = 0;           // 0: no softcap
  // Pattern of block-sparse attention, with blocks of kAttentionBlock tokens. every > 0: a query
  // block attends to itself and to every `every`-th block before it. local > 0: it attends to the
  // last `local` blocks. Both 0: dense.
  int64_t every = 0, local = 0;
  bool backward_only = false;
  bool deterministic = false;
  kernels::AttentionTile tile = kernels::AttentionTile::kOfHeadSize;  // tile of forward kernels
  bool forward_only = false;
  KernelFamily family = KernelFamily::kOfDevice;
};

// Collects cases of one size and dtype.
class Cases {
 public:
  Cases(const Size& size, DType dtype, std::vector<KernelCase>& out)
      : s_(size), dtype_(dtype), out_(out) {}

  void add_gemms();
  void add_swiglu();                // Llama's feed-forward block of width C
  void add_fp8(DeviceType device);  // fp8 GEMMs and quantization of one layer
  void add_attention();             // causal attention, as in the model
  void add_attention_families();    // causal attention by the portable and by the Hopper kernels
  void add_long_attention();   // attention that is causal, block-sparse, or limited to documents
  void add_attention_tiles();  // attention with every forward tile for heads of size 128
  // Adds attention without mask, with grouped queries, with ragged lengths, and deterministic.
  void add_attention_variants(DeviceType device);
  void add_norms();
  void add_tokens();
  void add_elementwise();
  void add_pointwise();                // broadcasting ops, and a chain of five ops
  void add_dimension_ops();            // sums, softmax, gathers along rows and columns
  void add_experts();                  // MoE experts and router
  void add_images(DeviceType device);  // layers of ResNets; tiny ones on the emulator

 private:
  template <typename Args>
  void add(const std::string& variant, const kernels::Slot<Args>& slot,
           std::function<Args(Operands&)> make, const CaseOptions& options = {}) {
    out_.push_back(
        make_case<Args>(named(variant), slot, dtype_, std::move(make), nullptr, options));
  }
  std::string named(const std::string& variant) const {
    return (variant.empty() ? "" : variant + "/") + s_.label + "/" +
           std::string(dtype_name(dtype_));
  }
  void add_linear(const std::string& name, int64_t in, int64_t out, bool bias, bool residual,
                  bool gelu);
  void add_attention_case(const AttentionVariant& variant);
  void add_routers();
  void add_pooling(int64_t edge);
  void add_batch_norm(int64_t edge);

  Size s_;
  DType dtype_;
  std::vector<KernelCase>& out_;
};

// Cases of slots that work on flat parameter buffers. A buffer has the parameters of one
// transformer block.
class FlatCases {
 public:
  FlatCases(int64_t elements, DType dtype, std::vector<KernelCase>& out)
      : elements_(elements), dtype_(dtype), out_(out) {}
  void add_optimizers();
  void add_adafactor();
  void add_reductions();
  void add_rest();

 private:
  template <typename Args>
  void add(const std::string& variant, const kernels::Slot<Args>& slot,
           std::function<Args(Operands&)> make, MakeVendorCall<Args> vendor = nullptr) {
    const std::string prefix = variant.empty() ? "" : variant + "/";
    out_.push_back(make_case<Args>(prefix + "flat/" + std::string(dtype_name(dtype_)), slot, dtype_,
                                   std::move(make), std::move(vendor)));
  }
  int64_t elements_;
  DType dtype_;
  std::vector<KernelCase>& out_;
};

// Adds cases that do not depend on the model's dtype. flat: number of elements of a flat buffer.
void add_single_cases(int64_t flat, std::vector<KernelCase>& out);

// Adds GEMMs of about [n, n] for every tile, memory order and epilogue of any kernel. If a device
// has no kernel for one, running its case throws UnavailableError.
void add_gemm_tiles(int64_t n, DType dtype, std::vector<KernelCase>& out);

// Adds GEMMs of [n, n]: one case per kernel family and memory order of a and b, and one case with
// the kernel that the slot chooses.
void add_square_gemms(int64_t n, DType dtype, std::vector<KernelCase>& out);

}  // namespace shale::kernel_check
