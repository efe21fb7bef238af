/* The C interface, for training from C or from a language that can call C. Link libshale_c;
 * docs/reference/c.md is the guide, examples/c/ has a complete program.
 *
 * - Calls return a shale_status, except those that return text. shale_last_error() describes the
 *   last failure on this thread. No C++ exception leaves a call, and no call ends the process.
 * - Handles are numbers cast to pointers. A handle that is NULL, of another kind, invented or
 *   destroyed gives SHALE_ERROR_ARGUMENT. `*out` is set only when a call succeeds.
 * - Any thread may make calls; they run one at a time. All ranks must make the calls marked
 *   "collective", in the same order.
 * - Structs begin with their size, so programs compiled with an older header keep working.
 *   Initialise a struct with its SHALE_..._INIT. NULL in place of a struct means that initialiser.
 * - Strings are UTF-8 and end with NUL. Shapes and strides count elements.
 */
#ifndef SHALE_C_H
#define SHALE_C_H

#include <stddef.h>
#include <stdint.h>

/* Version of the interface in this header. A library supports it if its major number is equal and
 * its minor number is equal or higher. */
#define SHALE_API_MAJOR 1
#define SHALE_API_MINOR 3

/* SHALE_MAX_DIMS: maximum number of dimensions of a tensor. SHALE_MAX_NAME: maximum bytes of a
 * name, including its NUL. SHALE_INFER: stands for a size of a shape that shale_reshape() computes.
 */
#define SHALE_MAX_DIMS 6
#define SHALE_MAX_NAME 256
#define SHALE_INFER ((int64_t)-1)

#if defined(SHALE_C_BUILD)
#define SHALE_API __attribute__((visibility("default")))
#else
#define SHALE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Status of a call. Values from 64 on are the exit codes of Shale's programs. */
typedef int32_t shale_status;
enum {
  SHALE_OK = 0,
  SHALE_ERROR_ARGUMENT = 1,      /* invalid handle, pointer, shape or dtype */
  SHALE_ERROR_STATE = 2,         /* not possible now: no runtime, a second runtime, a forked
                                    process, a model that is not sharded, a parameter used outside
                                    its module */
  SHALE_ERROR_CALLBACK = 3,      /* a callback of the program returned an error */
  SHALE_ERROR_CONFIG = 64,       /* invalid options or an invalid combination */
  SHALE_ERROR_DATA = 65,         /* malformed data or checkpoint */
  SHALE_ERROR_MISSING = 66,      /* file not found */
  SHALE_ERROR_UNAVAILABLE = 69,  /* device or library not available */
  SHALE_ERROR_INTERNAL = 70,
  SHALE_ERROR_MEMORY = 71,       /* out of memory */
  SHALE_ERROR_DISK = 74,
  SHALE_ERROR_COMM = 76,         /* ranks disagree, a rank failed or a collective timed out */
  SHALE_ERROR_NON_FINITE = 77
};

/* Element dtypes. */
typedef int32_t shale_dtype;
enum {
  SHALE_F32 = 0, SHALE_BF16 = 1, SHALE_F16 = 2, SHALE_F64 = 3, SHALE_I32 = 4, SHALE_I64 = 5,
  SHALE_U8 = 6, SHALE_U16 = 7, SHALE_U32 = 8
};

/* Handles of the objects that calls create. */
typedef struct shale_runtime_handle* shale_runtime;
typedef struct shale_tensor_handle* shale_tensor;
typedef struct shale_module_handle* shale_module;
typedef struct shale_optimizer_handle* shale_optimizer;
typedef struct shale_metrics_handle* shale_metrics;
typedef struct shale_text_model_handle* shale_text_model;

/* ---- The library ---- */

/* SHALE_API_MAJOR * 1000 + SHALE_API_MINOR of the loaded library; its version, such as "0.2.0". */
SHALE_API int32_t shale_api_version(void);
SHALE_API const char* shale_version(void);
/* Describes the last failed call of this thread: what was expected, what was found and, with
 * several ranks, which rank. The text is valid until this thread's next failed call. Empty before
 * the first. */
SHALE_API const char* shale_last_error(void);
/* Name of a status, such as "SHALE_ERROR_DATA". */
SHALE_API const char* shale_status_name(shale_status status);

/* ---- Ranks, a device, its memory ---- */

/* Options of shale_runtime_create(). In each field zero means the default. */
typedef struct shale_runtime_options {
  size_t size;
  const char* device;     /* "auto", "cpu", "cuda", "emu", "emu:80" and others; NULL: auto, which
                             is a GPU for each rank if there are GPUs, otherwise the CPU */
  int64_t device_memory;  /* limit in bytes; 0: no limit */
  int32_t threads;        /* CPU threads of this rank; 0: 1 */
  int32_t deterministic;  /* not 0: use GPU kernels without atomics */
  uint64_t seed;          /* seed of the random numbers in forward */
  double timeout_s;       /* longest wait for another rank; 0: 600, negative: no limit */
  int32_t has_communicator; /* not 0: use the communicator in the next field */
  int32_t communicator;   /* MPI_Comm_c2f() of a communicator that the program owns */
} shale_runtime_options;
#define SHALE_RUNTIME_OPTIONS_INIT {sizeof(shale_runtime_options), 0, 0, 0, 0, 0, 0, 0, 0}

/* Joins the ranks that mpirun or srun started, or runs as a single rank without them, and opens
 * this rank's device. If the program has already initialised MPI, with MPI_THREAD_MULTIPLE, the
 * runtime uses MPI_COMM_WORLD or the given communicator: it neither initialises nor finalises MPI,
 * and does not end a process because another rank failed. A process has at most one runtime at a
 * time. Collective. */
SHALE_API shale_status shale_runtime_create(const shale_runtime_options* options,
                                            shale_runtime* out);
/* Destroys everything created from the runtime, so that all its handles are invalid, and leaves
 * MPI. Memory exported with shale_tensor_to_dlpack stays valid until its readers release it.
 * Returns SHALE_ERROR_STATE inside the body of shale_module_run(). Collective. */
SHALE_API shale_status shale_runtime_destroy(shale_runtime runtime);
/* rank, ranks: number of this rank, and number of all ranks. local_rank, local_ranks: the same
 * among the ranks on this machine. */
SHALE_API shale_status shale_runtime_rank(shale_runtime runtime, int32_t* rank, int32_t* ranks,
                                          int32_t* local_rank, int32_t* local_ranks);
/* Name of the device, such as "cpu" or "cuda:1". */
SHALE_API shale_status shale_runtime_device(shale_runtime runtime, char* text, size_t capacity);
/* 1 if the device's kernels support SHALE_BF16, otherwise 0. CPUs always do, GPUs from compute
 * capability 8.0 on. Since 1.1. */
SHALE_API shale_status shale_runtime_supports_bf16(shale_runtime runtime, int32_t* out);
/* Sets the index of the next forward's first sample among all samples of the step on all ranks.
 * Dropout masks depend on this index and not on the number of ranks and micro-batches. Until the
 * first call, each rank has its own masks, and each forward after a backward has new ones. Since
 * 1.1. */
SHALE_API shale_status shale_runtime_set_sample(shale_runtime runtime, int64_t first);
/* Waits until all ranks have called it. Collective. */
SHALE_API shale_status shale_runtime_barrier(shale_runtime runtime);
/* Sum of a value over all ranks. Collective. */
SHALE_API shale_status shale_runtime_sum(shale_runtime runtime, double value, double* out);
/* Reports that this rank cannot continue, so that other ranks do not wait for it. If Shale
 * initialised MPI, this ends the job, as in a training program that fails. It then returns only if
 * all ranks have failed; main should return `code`. */
SHALE_API shale_status shale_runtime_fail(shale_runtime runtime, shale_status why,
                                          const char* message, int32_t* code);
/* Waits until the device has finished all queued work. */
SHALE_API shale_status shale_runtime_synchronize(shale_runtime runtime);

/* Bytes of device memory that this rank uses or has used, and bytes that it has sent. */
typedef struct shale_runtime_usage_info {
  size_t size;
  int64_t allocated, peak_allocated, reserved, peak_reserved;
  int64_t sent;      /* bytes sent to other ranks */
} shale_runtime_usage_info;
#define SHALE_RUNTIME_USAGE_INIT {sizeof(shale_runtime_usage_info), 0, 0, 0, 0, 0}
SHALE_API shale_status shale_runtime_usage(shale_runtime runtime, shale_runtime_usage_info* out);

/* ---- Tensors ---- */

/* Called once, on any thread, when Shale no longer uses the memory. It may call Shale. */
typedef void (*shale_release)(void* owner);

/* Memory that the program owns. strides: NULL for dense, row-major memory. */
typedef struct shale_memory {
  size_t size;
  void* data;               /* aligned to the element size */
  shale_dtype dtype;
  int32_t ndim;
  const int64_t* shape;
  const int64_t* strides;   /* not negative */
  int32_t read_only;        /* not 0: Shale never writes to it */
  shale_release release;    /* NULL: the memory outlives the runtime */
  void* owner;              /* argument of `release` */
} shale_memory;
#define SHALE_MEMORY_INIT {sizeof(shale_memory), 0, 0, 0, 0, 0, 0, 0, 0}

/* Copies dense host memory to a tensor on the runtime's device. */
SHALE_API shale_status shale_tensor_from_host(shale_runtime runtime, const void* data,
                                              shale_dtype dtype, int32_t ndim,
                                              const int64_t* shape, shale_tensor* out);
/* Wraps host memory without a copy; the runtime's device must be the CPU. */
SHALE_API shale_status shale_tensor_from_memory(shale_runtime runtime, const shale_memory* memory,
                                                shale_tensor* out);
/* A tensor filled with one value. */
SHALE_API shale_status shale_tensor_full(shale_runtime runtime, shale_dtype dtype, int32_t ndim,
                                         const int64_t* shape, double value, shale_tensor* out);
/* Random numbers: shale_randn: normal with variance 1; shale_uniform: uniform in [low, high). Since
 * 1.3. seed: NULL for the next numbers of the runtime's seed in this step. dtype: SHALE_F32,
 * SHALE_BF16 or SHALE_F16. */
SHALE_API shale_status shale_randn(shale_runtime runtime, shale_dtype dtype, int32_t ndim,
                                   const int64_t* shape, const uint64_t* seed, shale_tensor* out);
SHALE_API shale_status shale_uniform(shale_runtime runtime, shale_dtype dtype, int32_t ndim,
                                     const int64_t* shape, float low, float high,
                                     const uint64_t* seed, shale_tensor* out);
/* arange: begin, begin + step, ..., without end. linspace: `count` evenly spaced numbers from first
 * to last. Since 1.3. */
SHALE_API shale_status shale_arange(shale_runtime runtime, shale_dtype dtype, double begin,
                                    double end, double step, shale_tensor* out);
SHALE_API shale_status shale_linspace(shale_runtime runtime, shale_dtype dtype, double first,
                                      double last, int64_t count, shale_tensor* out);
/* Releases a handle. The memory is freed when no other handle, view, graph or reader needs it. */
SHALE_API shale_status shale_tensor_destroy(shale_tensor x);
/* Another handle to the same tensor. */
SHALE_API shale_status shale_tensor_share(shale_tensor x, shale_tensor* out);

/* Properties of a tensor. `data` is in memory of its device, and stays valid as long as the handle
 * and the runtime. It is NULL if the tensor has no memory (a sharded parameter outside its
 * module). */
typedef struct shale_tensor_info {
  size_t size;
  shale_dtype dtype;
  int32_t ndim;
  int64_t shape[SHALE_MAX_DIMS];
  int64_t strides[SHALE_MAX_DIMS];
  void* data;
  int32_t requires_grad;
  int32_t read_only;
  int32_t on_host; /* since 1.3: 1 for a copy that shale_tensor_to() made on the host */
} shale_tensor_info;
#define SHALE_TENSOR_INFO_INIT \
  { sizeof(shale_tensor_info), 0, 0, {0}, {0}, 0, 0, 0, 0 }
SHALE_API shale_status shale_tensor_describe(shale_tensor x, shale_tensor_info* out);

/* Copy the elements, in row-major order, to and from host memory of exactly `bytes` bytes.
 * shale_tensor_write does not accept read-only memory. */
SHALE_API shale_status shale_tensor_read(shale_tensor x, void* to, size_t bytes);
SHALE_API shale_status shale_tensor_write(shale_tensor x, const void* from, size_t bytes);
/* shale_tensor_copy copies x into `to`, which has the same shape and dtype. shale_tensor_clone
 * makes a dense copy. Autograd records neither. */
SHALE_API shale_status shale_tensor_copy(shale_tensor to, shale_tensor x);
SHALE_API shale_status shale_tensor_clone(shale_tensor x, shale_tensor* out);
/* Copies x into `to`, a tensor or a view; gradients flow through the copy. `to` must not be a leaf
 * that requires a gradient. Since 1.3. */
SHALE_API shale_status shale_assign(shale_tensor to, shale_tensor x);
/* A copy of x on the host (host not 0) or on the runtime's device (host 0); gradients flow through
 * it. If x is there already, another handle to x. The tensors of one call must all be on the host
 * or all on the device. Since 1.3. */
SHALE_API shale_status shale_tensor_to(shale_tensor x, int32_t host, shale_tensor* out);
/* A tensor that shares x's memory but has no autograd history. */
SHALE_API shale_status shale_tensor_detach(shale_tensor x, shale_tensor* out);
/* require_grad selects whether backward computes the gradient of this leaf. grad returns a copy of
 * the gradient, or NULL in *out if there is none. After zero_grad the next gradient starts from
 * zero. */
SHALE_API shale_status shale_tensor_require_grad(shale_tensor x, int32_t wanted);
SHALE_API shale_status shale_tensor_grad(shale_tensor x, shale_tensor* out);
SHALE_API shale_status shale_tensor_zero_grad(shale_tensor x);

/* Exports the tensor's own memory as DLPack (dmlc.github.io/dlpack): a DLManagedTensorVersioned of
 * version 1, or a DLManagedTensor if `legacy` is not 0. The reader calls its deleter, on any
 * thread, even after the runtime has ended. Waits for the device. The memory of parameters cannot
 * be exported; use shale_tensor_clone() first. */
SHALE_API shale_status shale_tensor_to_dlpack(shale_tensor x, int32_t legacy, void** out);
/* Imports the memory of a DLPack struct without a copy; it must be on the runtime's device. legacy:
 * as in shale_tensor_to_dlpack(). Calls the deleter when nothing needs the memory any more, but not
 * if this call fails. */
SHALE_API shale_status shale_tensor_from_dlpack(shale_runtime runtime, void* managed,
                                                int32_t legacy, shale_tensor* out);

/* ---- Differentiable functions ---- docs/reference/c.md says which header explains the shapes,
 * dtypes and formulas of each. */

/* Elementwise functions. */
typedef int32_t shale_unary_op;
enum {
  SHALE_NEG = 0, SHALE_ABS = 1, SHALE_EXP = 2, SHALE_LOG = 3, SHALE_SQRT = 4, SHALE_RSQRT = 5,
  SHALE_RELU = 6, SHALE_SIGMOID = 7, SHALE_TANH = 8, SHALE_SILU = 9, SHALE_SOFTPLUS = 10,
  SHALE_SIN = 11, SHALE_COS = 12, SHALE_GELU_TANH = 13, SHALE_GELU_ERF = 14
};
SHALE_API shale_status shale_unary(shale_unary_op op, shale_tensor x, shale_tensor* out);

/* Elementwise functions of two tensors, with broadcasting, or of a tensor and a number. The three
 * comparisons return u8 without gradients. */
typedef int32_t shale_binary_op;
enum {
  SHALE_ADD = 0, SHALE_SUB = 1, SHALE_MUL = 2, SHALE_DIV = 3, SHALE_MAXIMUM = 4, SHALE_MINIMUM = 5,
  SHALE_LESS = 6, SHALE_LESS_EQUAL = 7, SHALE_EQUAL = 8
};
SHALE_API shale_status shale_binary(shale_binary_op op, shale_tensor a, shale_tensor b,
                                    shale_tensor* out);
SHALE_API shale_status shale_binary_scalar(shale_binary_op op, shale_tensor a, float b,
                                           shale_tensor* out);
SHALE_API shale_status shale_pow(shale_tensor x, float exponent, shale_tensor* out);
SHALE_API shale_status shale_clamp(shale_tensor x, float low, float high, shale_tensor* out);
SHALE_API shale_status shale_where(shale_tensor condition, shale_tensor a, shale_tensor b,
                                   shale_tensor* out);
SHALE_API shale_status shale_cast(shale_tensor x, shale_dtype dtype, shale_tensor* out);

/* Reduces over the `count` dimensions in `dims`; negative ones count from the end. With count 0,
 * sum and mean reduce all elements to an f32 scalar. */
typedef int32_t shale_reduce_op;
enum { SHALE_SUM = 0, SHALE_MEAN = 1, SHALE_MAX = 2, SHALE_MIN = 3 };
SHALE_API shale_status shale_reduce(shale_reduce_op op, shale_tensor x, int32_t count,
                                    const int32_t* dims, int32_t keep, shale_tensor* out);
SHALE_API shale_status shale_argmax(shale_tensor x, int32_t dim, int32_t keep, shale_tensor* out);
SHALE_API shale_status shale_softmax(shale_tensor x, int32_t dim, shale_tensor* out);
SHALE_API shale_status shale_log_softmax(shale_tensor x, int32_t dim, shale_tensor* out);

/* Views (reshape, transpose, slice) and copies. One size of a new shape may be SHALE_INFER. */
SHALE_API shale_status shale_reshape(shale_tensor x, int32_t ndim, const int64_t* shape,
                                     shale_tensor* out);
SHALE_API shale_status shale_transpose(shale_tensor x, int32_t dim0, int32_t dim1,
                                       shale_tensor* out);
SHALE_API shale_status shale_slice(shale_tensor x, int32_t dim, int64_t begin, int64_t end,
                                   shale_tensor* out);
SHALE_API shale_status shale_contiguous(shale_tensor x, shale_tensor* out);
SHALE_API shale_status shale_concat(int32_t count, const shale_tensor* tensors, int32_t dim,
                                    shale_tensor* out);
SHALE_API shale_status shale_gather(shale_tensor x, int32_t dim, shale_tensor index,
                                    shale_tensor* out);

/* cumsum: cumulative sums along a dimension. scatter: a copy of x, with elements of `source`
 * written at `index` along a dimension. scatter_add: the same, but the elements are added.
 * Since 1.3. */
SHALE_API shale_status shale_cumsum(shale_tensor x, int32_t dim, shale_tensor* out);
SHALE_API shale_status shale_scatter(shale_tensor x, int32_t dim, shale_tensor index,
                                     shale_tensor source, shale_tensor* out);
SHALE_API shale_status shale_scatter_add(shale_tensor x, int32_t dim, shale_tensor index,
                                         shale_tensor source, shale_tensor* out);

/* Matmuls, layers and norms. bias, residual: NULL for none. */
SHALE_API shale_status shale_matmul(shale_tensor a, shale_tensor b, shale_tensor* out);
SHALE_API shale_status shale_linear(shale_tensor x, shale_tensor weight, shale_tensor bias,
                                    shale_tensor residual, shale_tensor* out);
SHALE_API shale_status shale_swiglu(shale_tensor x, shale_tensor w_gate, shale_tensor w_up,
                                    shale_tensor w_down, shale_tensor residual, shale_tensor* out);
SHALE_API shale_status shale_embedding(shale_tensor ids, shale_tensor table,
                                       shale_tensor positions, shale_tensor* out);
SHALE_API shale_status shale_layer_norm(shale_tensor x, shale_tensor gain, shale_tensor bias,
                                        float eps, shale_tensor* out);
SHALE_API shale_status shale_rms_norm(shale_tensor x, shale_tensor gain, float eps,
                                      shale_tensor* out);
/* Applies rotary embeddings to x [B, T, H, D] for positions 0 to T - 1, with frequencies theta^(-2
 * i / D). theta 0: 10000. */
SHALE_API shale_status shale_rope(shale_tensor x, double theta, shale_tensor* out);
/* q [B, Tq, H, D]; k, v [B, Tk, Hkv, D]. scale 0: 1 / sqrt(D); window 0: all keys. */
SHALE_API shale_status shale_attention(shale_tensor q, shale_tensor k, shale_tensor v,
                                       int32_t causal, float scale, int64_t window,
                                       shale_tensor* out);
/* Zeroes elements with probability p and scales the others. Masks depend on the runtime's seed, the
 * step, the sample (shale_runtime_set_sample), the element and `site`. Give each dropout of a model
 * its own site: dropouts of equal size and site have equal masks. No effect under
 * shale_set_inference(). */
SHALE_API shale_status shale_dropout(shale_tensor x, float p, uint32_t site, shale_tensor* out);

/* Losses: f32 scalars. shale_cross_entropy sums over the rows of logits [rows, columns], of which
 * the first `vocab` columns count; targets [rows] are i32, and -1 excludes a row. The others return
 * means over the elements. */
SHALE_API shale_status shale_cross_entropy(shale_tensor logits, shale_tensor targets,
                                           int64_t vocab, shale_tensor* out);
SHALE_API shale_status shale_mse_loss(shale_tensor x, shale_tensor target, shale_tensor* out);
SHALE_API shale_status shale_bce_with_logits_loss(shale_tensor x, shale_tensor target,
                                                  shale_tensor* out);

/* Collectives over all ranks. Their gradients are those of the sum of all ranks' losses. Backward
 * through them is collective too. */
SHALE_API shale_status shale_all_gather(shale_tensor x, shale_tensor* out);
SHALE_API shale_status shale_reduce_scatter_sum(shale_tensor x, shale_tensor* out);
SHALE_API shale_status shale_all_reduce_sum(shale_tensor x, shale_tensor* out);

/* Computes the gradients of all leaves that a scalar depends on and adds them to existing
 * gradients. For sharded modules it also reduces them over the ranks, which makes it collective.
 * The graph is consumed. */
SHALE_API shale_status shale_backward(shale_tensor loss);
/* Like shale_backward, but keeps the graph, so that it can be used again. Since 1.3. */
SHALE_API shale_status shale_backward_retain(shale_tensor loss);
/* While the value is not 0, autograd records nothing and dropout has no effect. */
SHALE_API shale_status shale_set_inference(shale_runtime runtime, int32_t inference);

/* ---- Modules ---- */

/* Creates a module of the program: a child of `parent` with this name, or the root of a tree if
 * `parent` is NULL. A tree is destroyed with the last handle to one of its modules. */
SHALE_API shale_status shale_module_create(shale_runtime runtime, shale_module parent,
                                           const char* name, shale_module* out);
SHALE_API shale_status shale_module_destroy(shale_module module);

/* Declaration of a parameter. Initial values are normally distributed, or all `mean` if std is 0.
 */
typedef struct shale_parameter_options {
  size_t size;
  float mean, std;
  int32_t no_decay;    /* not 0: no weight decay */
  int32_t frozen;      /* not 0: not trained */
} shale_parameter_options;
#define SHALE_PARAMETER_OPTIONS_INIT {sizeof(shale_parameter_options), 0, 0, 0, 0}
/* Declares a parameter of this module, before it has memory. */
SHALE_API shale_status shale_module_declare(shale_module module, const char* name, int32_t ndim,
                                            const int64_t* shape,
                                            const shale_parameter_options* options);

/* Forward of a module. Reads `inputs`, which are valid during the call. Stores handles in
 * `outputs`; Shale then owns them. Returns SHALE_OK, or a status that shale_module_run() then
 * returns. */
typedef shale_status (*shale_body)(void* user, const shale_tensor* inputs, int32_t input_count,
                                   shale_tensor* outputs, int32_t output_count);
/* Calls the body of a module. From ZeRO stage 1 on, code that uses the parameters must be in the
 * body: the call all-gathers them before the body and reduces their gradients over the ranks.
 * Collective for sharded modules. */
SHALE_API shale_status shale_module_run(shale_module module, shale_body body, void* user,
                                        int32_t input_count, const shale_tensor* inputs,
                                        int32_t output_count, shale_tensor* outputs);
/* Writes the computation of a module's body to an ONNX file. Its inputs are named "input", or
 * "input_0" and so on, and its outputs likewise. To record the ops, runs the body up to four times
 * in inference mode, with `inputs` and with repetitions of them along the first dimension. Ops that
 * ONNX lacks, and values that the body reads, give SHALE_ERROR_CONFIG. Needs float32 parameters and
 * stage 0 to 2. Of several ranks one should write; the others pass an empty path. `text` receives
 * the reason if the file takes only the inputs' batch size; it is empty if the file takes any.
 * Collective for sharded modules. Since 1.2. */
SHALE_API shale_status shale_module_export_onnx(shale_module module, shale_body body, void* user,
                                                int32_t input_count, const shale_tensor* inputs,
                                                int32_t output_count, const char* path, char* text,
                                                size_t capacity);

/* Options of a language model, which has a preset of train_lm ("nano", "gpt2-124m", "llama-nano").
 * Zero means the preset's value. Limits are those of train_lm (docs/reference/flags.md). */
typedef struct shale_language_model_options {
  size_t size;
  int64_t context;                  /* longest sequence in tokens; 0: 256 */
  int64_t layers, width, heads, vocab;
  int64_t kv_heads, hidden;         /* Llama family only */
  float dropout;                    /* GPT-2 family only */
} shale_language_model_options;
#define SHALE_LANGUAGE_MODEL_OPTIONS_INIT \
  {sizeof(shale_language_model_options), 0, 0, 0, 0, 0, 0, 0, 0}
SHALE_API shale_status shale_language_model_create(shale_runtime runtime, const char* preset,
                                                   const shale_language_model_options* options,
                                                   shale_module* out);
/* Sum of the cross-entropy over all tokens, an f32 scalar. ids, targets: [B, T] i32. */
SHALE_API shale_status shale_language_model_loss(shale_module model, shale_tensor ids,
                                                 shale_tensor targets, shale_tensor* out);

/* ---- Data parallelism ---- */

/* Sharding stage (arXiv:1910.02054). 0: DDP; 1: shard optimizer states; 2: also gradients; 3: also
 * parameters. */
typedef struct shale_shard_options {
  size_t size;
  int32_t stage;
  shale_dtype compute;   /* dtype of parameters in functions; below f32 there are f32 masters */
  shale_dtype reduce;    /* dtype of gradients */
  int32_t no_overlap;    /* not 0: wait for each collective */
  int32_t reproducible;  /* not 0: losses do not depend on the number of ranks */
  uint64_t seed;         /* seed of the initial values: models with the same seed and the same
                            parameter names have equal initial values */
} shale_shard_options;
#define SHALE_SHARD_OPTIONS_INIT {sizeof(shale_shard_options), 0, 0, 0, 0, 0, 0}
/* Gives parameters memory and initial values. Call it first for inner modules that shall be
 * separate FSDP units, then for the root; language models need only the root. All calls for one
 * tree must have the same options, except the dtypes. Collective. */
SHALE_API shale_status shale_module_shard(shale_module module, const shale_shard_options* options);
/* Call before every backward of a step with several micro-batches; unnecessary with one. last: not
 * 0 for the step's last micro-batch, whose backward reduces the gradients over the ranks. If no
 * backward was the last one, clipping and the optimizer step return SHALE_ERROR_CONFIG. */
SHALE_API shale_status shale_module_begin_backward(shale_module root, int32_t last);
/* Scales a loss. The gradients of the result, added over the ranks, are those of the mean over all
 * samples. loss: mean over this rank's `weight` samples. Collective. */
SHALE_API shale_status shale_mean_over_ranks(shale_module root, shale_tensor loss, double weight,
                                             shale_tensor* out);
/* Clips the norm of the whole gradient until shale_zero_grad(); max_norm 0: no limit. `norm`
 * receives the norm before clipping, and the host waits for it; NULL if it is not needed.
 * Collective. */
SHALE_API shale_status shale_clip_grad_norm(shale_module root, float max_norm, float* norm);
/* After this call the next gradients start from zero. */
SHALE_API shale_status shale_zero_grad(shale_module root);

/* ---- Parameters, by number or name ("blocks.0.weight") ---- */

/* Properties of a parameter. */
typedef struct shale_parameter_info {
  size_t size;
  char name[SHALE_MAX_NAME];
  int32_t ndim;
  int64_t shape[SHALE_MAX_DIMS];
  int32_t decay, trainable;
} shale_parameter_info;
#define SHALE_PARAMETER_INFO_INIT {sizeof(shale_parameter_info), {0}, 0, {0}, 0, 0}
SHALE_API shale_status shale_module_parameter_count(shale_module module, int64_t* out);
SHALE_API shale_status shale_module_parameter(shale_module module, int64_t index,
                                              shale_parameter_info* out);
/* The parameter as a tensor for functions, found by its name within `module`. In stage 3 it has
 * memory only while that module runs. */
SHALE_API shale_status shale_module_value(shale_module module, const char* name,
                                          shale_tensor* out);
/* Read and write all elements of a parameter: f32 in row-major host memory. name: its name in the
 * tree. Reading is collective; writing is not, but every rank must do it. shale_parameter_write
 * checks only `count`; shale_parameter_write_shaped (since 1.1) also rejects a shape other than the
 * parameter's. */
SHALE_API shale_status shale_parameter_read(shale_module root, const char* name, float* to,
                                            int64_t count);
SHALE_API shale_status shale_parameter_write(shale_module root, const char* name,
                                             const float* from, int64_t count);
SHALE_API shale_status shale_parameter_write_shaped(shale_module root, const char* name,
                                                    int32_t ndim, const int64_t* shape,
                                                    const float* from);
/* For custom optimizers. local: this rank's elements of the parameter, from element `begin` on, as
 * a vector. They are the f32 masters themselves, not a copy. local_grad: their gradient, or NULL in
 * *out if there is none. local_changed: every rank must call it after writing to the masters. */
SHALE_API shale_status shale_parameter_local(shale_module root, const char* name, int64_t* begin,
                                             shale_tensor* out);
SHALE_API shale_status shale_parameter_local_grad(shale_module root, const char* name,
                                                  shale_tensor* out);
SHALE_API shale_status shale_parameter_local_changed(shale_module root, const char* name);

/* ---- Optimizers ---- */

/* Optimizer options. Negative means the optimizer's default (docs/reference/flags.md). */
typedef struct shale_optimizer_options {
  size_t size;
  double beta1, beta2, eps, weight_decay, momentum;
} shale_optimizer_options;
#define SHALE_OPTIMIZER_OPTIONS_INIT {sizeof(shale_optimizer_options), -1, -1, -1, -1, -1}
/* An optimizer of all parameters of a sharded tree. It keeps the tree alive. kind: "adamw",
 * "adamw-bf16", "adamw-8bit", "lion", "adafactor", "sgd", "muon" or "lamb". */
SHALE_API shale_status shale_optimizer_create(shale_module root, const char* kind,
                                              const shale_optimizer_options* options,
                                              shale_optimizer* out);
SHALE_API shale_status shale_optimizer_destroy(shale_optimizer optimizer);
/* Call it first in a step, before forward. step: number of the step, from 0 on; lr: its rate. */
SHALE_API shale_status shale_optimizer_prepare(shale_optimizer optimizer, int64_t step, float lr);
/* Updates the parameters from their gradients. Call it once after each shale_optimizer_prepare().
 * Collective for adafactor, muon and lamb. */
SHALE_API shale_status shale_optimizer_step(shale_optimizer optimizer);

/* ---- Checkpoints in the format of train_lm and `shale ckpt` ---- Paths must not be empty or
 * contain control characters (SHALE_ERROR_ARGUMENT). */

/* Saves parameters and optimizer states to `folder`/step_00000100 (for step 100). Then deletes all
 * but the newest `keep` checkpoints; keep 0 deletes none. state: a JSON object of the program, or
 * NULL. Collective. */
SHALE_API shale_status shale_checkpoint_save(shale_module root, shale_optimizer optimizer,
                                             const char* folder, int64_t step, const char* state,
                                             int64_t keep);
/* Loads a checkpoint, or the newest of a folder. It may have been saved with any number of ranks
 * and in any stage. `step` receives the number of steps done. If the folder has no checkpoint or
 * does not exist, returns SHALE_OK and sets `step` to -1. SHALE_ERROR_CONFIG if the path is a file.
 * Collective. */
SHALE_API shale_status shale_checkpoint_load(shale_module root, shale_optimizer optimizer,
                                             const char* path, int64_t* step);
/* State that shale_checkpoint_save() was given, of a checkpoint or of the newest one in a folder.
 * `length` receives its length without the NUL, `text` as much of it as fits. */
SHALE_API shale_status shale_checkpoint_state(const char* path, char* text, size_t capacity,
                                              size_t* length);

/* ---- Texts of trained language models (since 1.2) ---- */

/* Options of shale_text_model_load(). */
typedef struct shale_text_model_options {
  size_t size;
  const char* tokenizer; /* tokenizer.json, tiktoken file or SentencePiece model; NULL: the one of
                            the model, or one token per byte for a vocabulary of 256 */
  const char* dtype; /* "auto", "fp32", "bf16" or "fp16", of weights and activations; NULL: auto,
                        which is bf16 on GPUs and fp32 on the CPU */
} shale_text_model_options;
#define SHALE_TEXT_MODEL_OPTIONS_INIT \
  { sizeof(shale_text_model_options), 0, 0 }
/* Loads a whole model on this rank's device, without sharding. path: a Hugging Face folder, a
 * checkpoint, or the folder of a run. */
SHALE_API shale_status shale_text_model_load(shale_runtime runtime, const char* path,
                                             const shale_text_model_options* options,
                                             shale_text_model* out);
SHALE_API shale_status shale_text_model_destroy(shale_text_model model);

/* Options of shale_text_generate(). */
typedef struct shale_generate_options {
  size_t size;
  int64_t max_tokens;
  float temperature; /* 0: always the likeliest token */
  int64_t top_k;     /* sample from this many of the likeliest tokens; 0: from all */
  float top_p;       /* sample from the likeliest tokens whose probabilities add up to this */
  uint64_t seed;
  int32_t chat;     /* not 0: the prompt is a JSON list of messages with `role` and `content`, and
                       the text is the assistant's answer */
  const char* stop; /* ends the text before its first occurrence; NULL: none */
} shale_generate_options;
#define SHALE_GENERATE_OPTIONS_INIT \
  { sizeof(shale_generate_options), 256, 0.8f, 50, 1, 1234, 0, 0 }
/* Receives the new text part by part. A part has whole characters, in `length` bytes without a NUL.
 * Returns a number other than 0 to end the text. */
typedef int32_t (*shale_text_part)(void* user, const char* text, size_t length);
/* Continues a prompt until the model ends the text, `max_tokens` are generated or the context is
 * full. The text depends on the model, prompt and options only. */
SHALE_API shale_status shale_text_generate(shale_text_model model, const char* prompt,
                                           const shale_generate_options* options,
                                           shale_text_part part, void* user);

/* ---- Metrics in the format of `shale watch` and `shale report` ---- */

/* Metrics of a step. Unknown values are NaN or negative. */
typedef struct shale_step_metrics {
  size_t size;
  int64_t step;        /* from 1 on */
  float loss;          /* mean over the global batch */
  double grad_norm, lr, items_per_s, step_ms;
  int64_t items;       /* tokens processed so far by all ranks */
} shale_step_metrics;
/* Opens FOLDER/metrics.jsonl, to which rank 0 appends. Removes the rows after `last_step`; if that
 * is negative, keeps all rows. */
SHALE_API shale_status shale_metrics_open(shale_runtime runtime, const char* folder,
                                          int64_t last_step, shale_metrics* out);
SHALE_API shale_status shale_metrics_write(shale_metrics metrics, const shale_step_metrics* row);
SHALE_API shale_status shale_metrics_close(shale_metrics metrics);

#ifdef __cplusplus
}
#endif

#endif
