/* The C interface: what a program in C, or a language that can call C, trains with. Link
 * libshale_c; docs/c_interface.md is the guide, examples/c/ a program.
 *
 * - Every call but those that return text returns a shale_status. What went wrong last on this
 *   thread is shale_last_error(); no C++ exception leaves a call, and no call ends the process.
 * - Handles are numbers in the form of pointers. One that is NULL, of another kind, made up or
 *   destroyed is SHALE_ERROR_ARGUMENT. What `out` points to is set when a call succeeds.
 * - Calls may come from any thread and are made one after another. Those marked "collective" are
 *   made by all ranks in one order.
 * - Structs begin with their size and are declared with their SHALE_..._INIT, which a NULL in their
 *   place stands for too: programs compiled with an older header keep working.
 * - Strings are UTF-8 and end with NUL. Shapes are counts of elements, strides too.
 */
#ifndef SHALE_C_H
#define SHALE_C_H

#include <stddef.h>
#include <stdint.h>

/* The interface that this header describes. Libraries of the same major number and the same or a
 * later minor one have it. */
#define SHALE_API_MAJOR 1
#define SHALE_API_MINOR 1

/* Most dimensions of a tensor; bytes of a name, its NUL included; a size that is to be inferred. */
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

/* What became of a call. From 64 on they are the exit codes of Shale's programs. */
typedef int32_t shale_status;
enum {
  SHALE_OK = 0,
  SHALE_ERROR_ARGUMENT = 1,      /* a handle, pointer, shape or dtype that cannot be */
  SHALE_ERROR_STATE = 2,         /* not now: no runtime, a second one, a forked process, a model
                                    that is not sharded, a parameter outside of its module */
  SHALE_ERROR_CALLBACK = 3,      /* a function of the program's own returned an error */
  SHALE_ERROR_CONFIG = 64,       /* options that cannot be, or not together */
  SHALE_ERROR_DATA = 65,         /* malformed data or checkpoint */
  SHALE_ERROR_MISSING = 66,      /* a file that is not there */
  SHALE_ERROR_UNAVAILABLE = 69,  /* a device or library that is not there */
  SHALE_ERROR_INTERNAL = 70,
  SHALE_ERROR_MEMORY = 71,       /* out of memory */
  SHALE_ERROR_DISK = 74,
  SHALE_ERROR_COMM = 76,         /* ranks disagree, one failed, a collective timed out */
  SHALE_ERROR_NON_FINITE = 77
};

/* Types of elements. */
typedef int32_t shale_dtype;
enum {
  SHALE_F32 = 0, SHALE_BF16 = 1, SHALE_F16 = 2, SHALE_F64 = 3, SHALE_I32 = 4, SHALE_I64 = 5,
  SHALE_U8 = 6, SHALE_U16 = 7, SHALE_U32 = 8
};

/* What calls work with. */
typedef struct shale_runtime_handle* shale_runtime;
typedef struct shale_tensor_handle* shale_tensor;
typedef struct shale_module_handle* shale_module;
typedef struct shale_optimizer_handle* shale_optimizer;
typedef struct shale_metrics_handle* shale_metrics;

/* ---- The library ---- */

/* SHALE_API_MAJOR * 1000 + SHALE_API_MINOR of the library that is loaded; "0.2.0". */
SHALE_API int32_t shale_api_version(void);
SHALE_API const char* shale_version(void);
/* What was wrong with the last call that failed on this thread: expected, found and, of several
 * ranks, the rank. Until this thread's next call that fails; empty before the first. */
SHALE_API const char* shale_last_error(void);
/* "SHALE_ERROR_DATA". */
SHALE_API const char* shale_status_name(shale_status status);

/* ---- Ranks, a device, its memory ---- */

/* How shale_runtime_create() begins. Zero is the default of each field. */
typedef struct shale_runtime_options {
  size_t size;
  const char* device;     /* "auto", "cpu", "cuda", "emu", "emu:80" and others; NULL: auto, a GPU for
                             every rank where there are GPUs, else the CPU */
  int64_t device_memory;  /* most bytes; 0: no limit */
  int32_t threads;        /* CPU threads of this rank; 0: 1 */
  int32_t deterministic;  /* not 0: GPU kernels without atomics */
  uint64_t seed;          /* of random numbers in forward */
  double timeout_s;       /* longest silence of a rank; 0: 600, negative: for ever */
  int32_t has_communicator; /* not 0: the ranks are those of the next field */
  int32_t communicator;   /* MPI_Comm_c2f() of a communicator, which stays the program's */
} shale_runtime_options;
#define SHALE_RUNTIME_OPTIONS_INIT {sizeof(shale_runtime_options), 0, 0, 0, 0, 0, 0, 0, 0}

/* Joins the ranks that mpirun or srun started, or is one rank without them, and opens this rank's
 * device. Where the program has started MPI itself, with MPI_THREAD_MULTIPLE, it becomes a guest of
 * MPI_COMM_WORLD or of the given communicator: MPI is neither started nor ended, and no process is
 * ended for a rank that failed. There is one runtime in a process at a time. Collective. */
SHALE_API shale_status shale_runtime_create(const shale_runtime_options* options,
                                            shale_runtime* out);
/* Destroys everything that was made of the runtime, whose handles are then invalid, and leaves MPI.
 * Memory that others were shown (shale_tensor_to_dlpack) stays until they are done. In the body of
 * shale_module_run(): SHALE_ERROR_STATE. Collective. */
SHALE_API shale_status shale_runtime_destroy(shale_runtime runtime);
/* This rank, their number, and the same among those of this machine. */
SHALE_API shale_status shale_runtime_rank(shale_runtime runtime, int32_t* rank, int32_t* ranks,
                                          int32_t* local_rank, int32_t* local_ranks);
/* The device: "cpu", "cuda:1". */
SHALE_API shale_status shale_runtime_device(shale_runtime runtime, char* text, size_t capacity);
/* 1 if kernels of the device take SHALE_BF16, else 0: on CPUs always, on GPUs of compute capability
 * 8.0 or later. Since 1.1. */
SHALE_API shale_status shale_runtime_supports_bf16(shale_runtime runtime, int32_t* out);
/* Number, among all samples of a step over all ranks, of the first sample of the next forward.
 * Dropout masks depend on it, and with it not on the number of ranks and micro-batches. Until the
 * first call, each rank and each forward after a backward has masks of its own. Since 1.1. */
SHALE_API shale_status shale_runtime_set_sample(shale_runtime runtime, int64_t first);
/* Waits until all ranks have come here. Collective. */
SHALE_API shale_status shale_runtime_barrier(shale_runtime runtime);
/* The sum of the ranks' values. Collective. */
SHALE_API shale_status shale_runtime_sum(shale_runtime runtime, double value, double* out);
/* For a rank that cannot go on: says so, and keeps the others from waiting for it. Where MPI is
 * Shale's, ends the job as a failed training program does, and does not return unless all ranks
 * failed; `code` is then what to return from main. */
SHALE_API shale_status shale_runtime_fail(shale_runtime runtime, shale_status why,
                                          const char* message, int32_t* code);
/* Waits for the device. */
SHALE_API shale_status shale_runtime_synchronize(shale_runtime runtime);

/* What a rank has used. Bytes of its device. */
typedef struct shale_runtime_usage_info {
  size_t size;
  int64_t allocated, peak_allocated, reserved, peak_reserved;
  int64_t sent;      /* bytes sent to other ranks */
} shale_runtime_usage_info;
#define SHALE_RUNTIME_USAGE_INIT {sizeof(shale_runtime_usage_info), 0, 0, 0, 0, 0}
SHALE_API shale_status shale_runtime_usage(shale_runtime runtime, shale_runtime_usage_info* out);

/* ---- Tensors ---- */

/* Called once, on any thread, when nobody uses the memory any more. It may call Shale. */
typedef void (*shale_release)(void* owner);

/* Memory of somebody else. strides: NULL for dense, row by row. */
typedef struct shale_memory {
  size_t size;
  void* data;               /* aligned to its elements */
  shale_dtype dtype;
  int32_t ndim;
  const int64_t* shape;
  const int64_t* strides;   /* not negative */
  int32_t read_only;        /* not 0: Shale never writes to it */
  shale_release release;    /* NULL: the memory outlives the runtime */
  void* owner;              /* what `release` is called with */
} shale_memory;
#define SHALE_MEMORY_INIT {sizeof(shale_memory), 0, 0, 0, 0, 0, 0, 0, 0}

/* A copy of dense host memory, on the runtime's device. */
SHALE_API shale_status shale_tensor_from_host(shale_runtime runtime, const void* data,
                                              shale_dtype dtype, int32_t ndim,
                                              const int64_t* shape, shale_tensor* out);
/* Host memory itself, without a copy; the runtime's device is the CPU. */
SHALE_API shale_status shale_tensor_from_memory(shale_runtime runtime, const shale_memory* memory,
                                                shale_tensor* out);
/* Elements of one value. */
SHALE_API shale_status shale_tensor_full(shale_runtime runtime, shale_dtype dtype, int32_t ndim,
                                         const int64_t* shape, double value, shale_tensor* out);
/* Ends the use of a handle. Memory goes when no other handle, view, graph or reader needs it. */
SHALE_API shale_status shale_tensor_destroy(shale_tensor x);
/* Another handle to the same tensor. */
SHALE_API shale_status shale_tensor_share(shale_tensor x, shale_tensor* out);

/* What a tensor is. `data` is on its device, and NULL where it has no memory (a sharded parameter
 * outside of its module); handle and runtime keep it. */
typedef struct shale_tensor_info {
  size_t size;
  shale_dtype dtype;
  int32_t ndim;
  int64_t shape[SHALE_MAX_DIMS];
  int64_t strides[SHALE_MAX_DIMS];
  void* data;
  int32_t requires_grad;
  int32_t read_only;
} shale_tensor_info;
#define SHALE_TENSOR_INFO_INIT {sizeof(shale_tensor_info), 0, 0, {0}, {0}, 0, 0, 0}
SHALE_API shale_status shale_tensor_describe(shale_tensor x, shale_tensor_info* out);

/* Copies the elements, row by row, to host memory of exactly that many bytes, and back. The second
 * is not for memory that is read-only. */
SHALE_API shale_status shale_tensor_read(shale_tensor x, void* to, size_t bytes);
SHALE_API shale_status shale_tensor_write(shale_tensor x, const void* from, size_t bytes);
/* Copies x into `to`, of the same shape and dtype; not recorded. A dense copy, not recorded. */
SHALE_API shale_status shale_tensor_copy(shale_tensor to, shale_tensor x);
SHALE_API shale_status shale_tensor_clone(shale_tensor x, shale_tensor* out);
/* The same memory without history. */
SHALE_API shale_status shale_tensor_detach(shale_tensor x, shale_tensor* out);
/* Whether backward computes the gradient of this leaf; what it has, as a copy, or NULL in *out for
 * none; the next gradient begins anew. */
SHALE_API shale_status shale_tensor_require_grad(shale_tensor x, int32_t wanted);
SHALE_API shale_status shale_tensor_grad(shale_tensor x, shale_tensor* out);
SHALE_API shale_status shale_tensor_zero_grad(shale_tensor x);

/* DLPack (dmlc.github.io/dlpack): a DLManagedTensorVersioned of version 1, or with `legacy` a
 * DLManagedTensor, of the tensor's own memory, whose deleter the reader calls, on any thread, also
 * after the runtime's end. Waits for the device. A parameter's memory is not shown:
 * shale_tensor_clone() it. */
SHALE_API shale_status shale_tensor_to_dlpack(shale_tensor x, int32_t legacy, void** out);
/* The memory of such a struct, without a copy. Calls its deleter when the memory is not needed any
 * more; on an error never. It is on the runtime's device. */
SHALE_API shale_status shale_tensor_from_dlpack(shale_runtime runtime, void* managed,
                                                int32_t legacy, shale_tensor* out);

/* ---- Differentiable functions ----
 * Shapes, dtypes and formulas: those of the functions of the same name in docs/c_interface.md. */

/* Functions of each element. */
typedef int32_t shale_unary_op;
enum {
  SHALE_NEG = 0, SHALE_ABS = 1, SHALE_EXP = 2, SHALE_LOG = 3, SHALE_SQRT = 4, SHALE_RSQRT = 5,
  SHALE_RELU = 6, SHALE_SIGMOID = 7, SHALE_TANH = 8, SHALE_SILU = 9, SHALE_SOFTPLUS = 10,
  SHALE_SIN = 11, SHALE_COS = 12, SHALE_GELU_TANH = 13, SHALE_GELU_ERF = 14
};
SHALE_API shale_status shale_unary(shale_unary_op op, shale_tensor x, shale_tensor* out);

/* Of the elements of two tensors, broadcast, or of a tensor and a number. The last three give u8
 * without gradients. */
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

/* Over `count` dimensions, negative ones counted from the end; 0: sum and mean over all elements,
 * to an f32 scalar. */
typedef int32_t shale_reduce_op;
enum { SHALE_SUM = 0, SHALE_MEAN = 1, SHALE_MAX = 2, SHALE_MIN = 3 };
SHALE_API shale_status shale_reduce(shale_reduce_op op, shale_tensor x, int32_t count,
                                    const int32_t* dims, int32_t keep, shale_tensor* out);
SHALE_API shale_status shale_argmax(shale_tensor x, int32_t dim, int32_t keep, shale_tensor* out);
SHALE_API shale_status shale_softmax(shale_tensor x, int32_t dim, shale_tensor* out);
SHALE_API shale_status shale_log_softmax(shale_tensor x, int32_t dim, shale_tensor* out);

/* Views, and copies along a dimension. One size of a new shape may be SHALE_INFER. */
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

/* Products. bias, residual: NULL for none. */
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
/* x [B, T, H, D] turned by positions 0 to T - 1, with frequencies theta^(-2 i / D); 0: 10000. */
SHALE_API shale_status shale_rope(shale_tensor x, double theta, shale_tensor* out);
/* q [B, Tq, H, D]; k, v [B, Tk, Hkv, D]. scale 0: 1 / sqrt(D); window 0: all keys. */
SHALE_API shale_status shale_attention(shale_tensor q, shale_tensor k, shale_tensor v,
                                       int32_t causal, float scale, int64_t window,
                                       shale_tensor* out);
/* Zeroes a share p of the elements and scales the others. Masks depend on the runtime's seed, the
 * step, the sample (shale_runtime_set_sample), the element and `site`. Each dropout of a model has
 * its own site, or those of equal sizes have one mask. Nothing under shale_set_inference(). */
SHALE_API shale_status shale_dropout(shale_tensor x, float p, uint32_t site, shale_tensor* out);

/* Losses: f32 scalars. The first is the sum over rows of logits [rows, columns] of which the first
 * `vocab` count; targets [rows] i32, -1: left out. The others are means over the elements. */
SHALE_API shale_status shale_cross_entropy(shale_tensor logits, shale_tensor targets,
                                           int64_t vocab, shale_tensor* out);
SHALE_API shale_status shale_mse_loss(shale_tensor x, shale_tensor target, shale_tensor* out);
SHALE_API shale_status shale_bce_with_logits_loss(shale_tensor x, shale_tensor target,
                                                  shale_tensor* out);

/* Over ranks: gradients are those of the sum of all ranks' losses. Collective, also in backward. */
SHALE_API shale_status shale_all_gather(shale_tensor x, shale_tensor* out);
SHALE_API shale_status shale_reduce_scatter_sum(shale_tensor x, shale_tensor* out);
SHALE_API shale_status shale_all_reduce_sum(shale_tensor x, shale_tensor* out);

/* Computes the gradients of all leaves that a scalar depends on, adding to what they have; of
 * sharded modules also over the ranks, which makes it collective. The graph is used up. */
SHALE_API shale_status shale_backward(shale_tensor loss);
/* While not 0: functions record nothing; dropout does nothing either. */
SHALE_API shale_status shale_set_inference(shale_runtime runtime, int32_t inference);

/* ---- Modules ---- */

/* A module of the program's own: a name in the tree below `parent`, or NULL for a root. A tree goes
 * with the last of its handles; no call is for the modules of a destroyed tree. */
SHALE_API shale_status shale_module_create(shale_runtime runtime, shale_module parent,
                                           const char* name, shale_module* out);
SHALE_API shale_status shale_module_destroy(shale_module module);

/* A parameter as it is declared: initial values are normal, or the constant `mean` with std 0. */
typedef struct shale_parameter_options {
  size_t size;
  float mean, std;
  int32_t no_decay;    /* not 0: no weight decay */
  int32_t frozen;      /* not 0: is not trained */
} shale_parameter_options;
#define SHALE_PARAMETER_OPTIONS_INIT {sizeof(shale_parameter_options), 0, 0, 0, 0}
/* Declares a parameter of this module, before it has memory. */
SHALE_API shale_status shale_module_declare(shale_module module, const char* name, int32_t ndim,
                                            const int64_t* shape,
                                            const shale_parameter_options* options);

/* A module's forward: reads `inputs`, which are there during the call, and puts handles into
 * `outputs`, which become Shale's. Returns SHALE_OK, or a status that the call returns then. */
typedef shale_status (*shale_body)(void* user, const shale_tensor* inputs, int32_t input_count,
                                   shale_tensor* outputs, int32_t output_count);
/* Calls the body of a module. From stage 1 on what uses a module's parameters is inside: around it
 * they are gathered, and their gradients added over the ranks. Collective for sharded modules. */
SHALE_API shale_status shale_module_run(shale_module module, shale_body body, void* user,
                                        int32_t input_count, const shale_tensor* inputs,
                                        int32_t output_count, shale_tensor* outputs);

/* A language model, of a preset as train_lm has them ("nano", "gpt2-124m", "llama-nano"). Zeros
 * stand for the preset's; limits are those of train_lm's options (docs/interface.md). */
typedef struct shale_language_model_options {
  size_t size;
  int64_t context;                  /* longest sequence in tokens; 0: 256 */
  int64_t layers, width, heads, vocab;
  int64_t kv_heads, hidden;         /* of Llama's family */
  float dropout;                    /* GPT-2's */
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

/* What ranks share (arXiv:1910.02054): 0: nothing, as DDP; 1: optimizer states; 2: gradients too;
 * 3: parameters too. */
typedef struct shale_shard_options {
  size_t size;
  int32_t stage;
  shale_dtype compute;   /* of parameters as functions see them; below f32 there are f32 masters */
  shale_dtype reduce;    /* of gradients */
  int32_t no_overlap;    /* not 0: waits for each collective */
  int32_t reproducible;  /* not 0: losses do not depend on the number of ranks */
  uint64_t seed;         /* of initial values, which are a function of it and of parameters' names:
                            two models with the same names have the same values by one seed */
} shale_shard_options;
#define SHALE_SHARD_OPTIONS_INIT {sizeof(shale_shard_options), 0, 0, 0, 0, 0, 0}
/* Gives parameters memory and initial values. Inner modules that are to be units of their own come
 * first, then the root; language models need the root alone. All calls for a tree have the same
 * options, but for the dtypes. Collective. */
SHALE_API shale_status shale_module_shard(shale_module module, const shale_shard_options* options);
/* Before every backward of a step's micro-batches; not needed where there is one. last: not 0 for
 * the step's last, in which ranks add up their gradients; without it the step is
 * SHALE_ERROR_CONFIG. */
SHALE_API shale_status shale_module_begin_backward(shale_module root, int32_t last);
/* A loss whose gradients, which ranks add up, are those of the mean over all samples. loss: the
 * mean over this rank's `weight` samples. Collective. */
SHALE_API shale_status shale_mean_over_ranks(shale_module root, shale_tensor loss, double weight,
                                             shale_tensor* out);
/* Bounds the norm of the whole gradient until shale_zero_grad(); 0: no bound. norm: what it was,
 * for which the host waits, or NULL. Collective. */
SHALE_API shale_status shale_clip_grad_norm(shale_module root, float max_norm, float* norm);
/* The next gradients begin anew. */
SHALE_API shale_status shale_zero_grad(shale_module root);

/* ---- Parameters, by number or name ("blocks.0.weight") ---- */

/* What a parameter is. */
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
/* The parameter as functions take it, by the name in its own module. In stage 3 it has memory while
 * that module runs. */
SHALE_API shale_status shale_module_value(shale_module module, const char* name,
                                          shale_tensor* out);
/* All elements, f32, row by row, in host memory, by the name in the tree; read: collective; write:
 * by every rank. The second checks `count` alone; the third (since 1.1) refuses another shape than
 * the parameter's. */
SHALE_API shale_status shale_parameter_read(shale_module root, const char* name, float* to,
                                            int64_t count);
SHALE_API shale_status shale_parameter_write(shale_module root, const char* name,
                                             const float* from, int64_t count);
SHALE_API shale_status shale_parameter_write_shaped(shale_module root, const char* name,
                                                    int32_t ndim, const int64_t* shape,
                                                    const float* from);
/* For optimizers of one's own: this rank's elements, from `begin` on, as a vector, f32 masters, the
 * memory itself; their gradient, NULL in *out for none; after writing, by every rank. */
SHALE_API shale_status shale_parameter_local(shale_module root, const char* name, int64_t* begin,
                                             shale_tensor* out);
SHALE_API shale_status shale_parameter_local_grad(shale_module root, const char* name,
                                                  shale_tensor* out);
SHALE_API shale_status shale_parameter_local_changed(shale_module root, const char* name);

/* ---- Optimizers ---- */

/* Negative: the optimizer's own; docs/interface.md has them. */
typedef struct shale_optimizer_options {
  size_t size;
  double beta1, beta2, eps, weight_decay, momentum;
} shale_optimizer_options;
#define SHALE_OPTIMIZER_OPTIONS_INIT {sizeof(shale_optimizer_options), -1, -1, -1, -1, -1}
/* "adamw", "adamw-bf16", "adamw-8bit", "lion", "adafactor", "sgd", "muon", "lamb", of all parameters
 * of a sharded tree, which it keeps. */
SHALE_API shale_status shale_optimizer_create(shale_module root, const char* kind,
                                              const shale_optimizer_options* options,
                                              shale_optimizer* out);
SHALE_API shale_status shale_optimizer_destroy(shale_optimizer optimizer);
/* First in a step, before forward: its number, from 0 on, and its learning rate. */
SHALE_API shale_status shale_optimizer_prepare(shale_optimizer optimizer, int64_t step, float lr);
/* Changes the parameters by their gradients, once after each prepare. Collective for adafactor,
 * muon and lamb. */
SHALE_API shale_status shale_optimizer_step(shale_optimizer optimizer);

/* ---- Checkpoints, as train_lm and `shale ckpt` know them ----
 * Paths are not empty and have no control characters, or they are SHALE_ERROR_ARGUMENT. */

/* Saves parameters and optimizer states as `folder`/step_00000100, and deletes all but the newest
 * `keep`; 0: none. state: a JSON object of the program's own, or NULL. Collective. */
SHALE_API shale_status shale_checkpoint_save(shale_module root, shale_optimizer optimizer,
                                             const char* folder, int64_t step, const char* state,
                                             int64_t keep);
/* Loads a checkpoint, or the newest in a folder, whatever ranks and stage it was saved by; `step`:
 * the steps done. -1 and SHALE_OK: the folder has none, or is not there. A file in its place is
 * SHALE_ERROR_CONFIG. Collective. */
SHALE_API shale_status shale_checkpoint_load(shale_module root, shale_optimizer optimizer,
                                             const char* path, int64_t* step);
/* The state of a checkpoint, or of the newest in a folder: its length without the NUL, and as much
 * of it as there is room for. */
SHALE_API shale_status shale_checkpoint_state(const char* path, char* text, size_t capacity,
                                              size_t* length);

/* ---- Metrics, as `shale watch` and `shale report` read them ---- */

/* A step. What is not known is a NaN, or negative. */
typedef struct shale_step_metrics {
  size_t size;
  int64_t step;        /* from 1 on */
  float loss;          /* mean over the global batch */
  double grad_norm, lr, items_per_s, step_ms;
  int64_t items;       /* tokens, seen so far by all ranks */
} shale_step_metrics;
/* Opens FOLDER/metrics.jsonl, to which rank 0 appends, without the rows after `last_step`;
 * negative: all of them stay. */
SHALE_API shale_status shale_metrics_open(shale_runtime runtime, const char* folder,
                                          int64_t last_step, shale_metrics* out);
SHALE_API shale_status shale_metrics_write(shale_metrics metrics, const shale_step_metrics* row);
SHALE_API shale_status shale_metrics_close(shale_metrics metrics);

#ifdef __cplusplus
}
#endif

#endif
