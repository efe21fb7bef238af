/* Misuses the library: each call here must fail with its status and a message, and the runtime must
 * keep working. Loads the library at run time, as foreign programs do.
 *
 * Run: misuse LIBRARY
 */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <shale/c.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* library;
static atomic_int problems, checks;

/* Returns the function of that name; ends the program if there is none. */
static void* find(const char* name) {
  void* function = dlsym(library, name);
  if (function == NULL) {
    fprintf(stderr, "misuse: %s\n", dlerror());
    exit(1);
  }
  return function;
}

/* POSIX, unlike C, converts data pointers to function pointers. */
#define FUNCTION(name) (*(__typeof__(&name)*)(void*[]){find(#name)})

static void expect(int line, shale_status wanted, const char* text, shale_status found) {
  const char* said = FUNCTION(shale_last_error)();
  ++checks;
  if (found == wanted && (wanted == SHALE_OK || strstr(said, text) != NULL)) return;
  ++problems;
  fprintf(stderr, "misuse.c:%d: expected %s \"%s\", found %s \"%s\"\n", line,
          FUNCTION(shale_status_name)(wanted), text, FUNCTION(shale_status_name)(found), said);
}
#define FAILS(status, text, call) expect(__LINE__, status, text, call)
#define SUCCEEDS(call) expect(__LINE__, SHALE_OK, "", call)

static atomic_int released;
static void on_release(void* owner) {
  (void)owner;
  ++released;
}

static void before_the_runtime(void) {
  shale_tensor x = NULL;
  const int64_t shape[] = {2};
  FAILS(SHALE_ERROR_STATE, "there is no runtime",
        FUNCTION(shale_tensor_full)((shale_runtime)1, SHALE_F32, 1, shape, 0, &x));
  FAILS(SHALE_ERROR_STATE, "there is no runtime", FUNCTION(shale_backward)((shale_tensor)1));
  FAILS(SHALE_ERROR_STATE, "there is no runtime", FUNCTION(shale_runtime_destroy)(NULL));
  FAILS(SHALE_ERROR_ARGUMENT, "out is NULL", FUNCTION(shale_runtime_create)(NULL, NULL));
}

static void options(void) {
  shale_runtime runtime = NULL;
  shale_runtime_options given = SHALE_RUNTIME_OPTIONS_INIT;
  given.device = "abacus";
  FAILS(SHALE_ERROR_CONFIG, "\"abacus\", expected one of auto, cpu, cuda, emu",
        FUNCTION(shale_runtime_create)(&given, &runtime));
  given.device = "cpu";
  given.threads = -3;
  FAILS(SHALE_ERROR_CONFIG, "threads is -3", FUNCTION(shale_runtime_create)(&given, &runtime));
  given.threads = 0;
  given.size = 0;
  FAILS(SHALE_ERROR_ARGUMENT, "size is 0", FUNCTION(shale_runtime_create)(&given, &runtime));
  struct {
    shale_runtime_options known;
    int64_t unknown;
  } newer = {SHALE_RUNTIME_OPTIONS_INIT, 1};
  newer.known.size = sizeof newer;
  FAILS(SHALE_ERROR_ARGUMENT, "a later interface version",
        FUNCTION(shale_runtime_create)(&newer.known, &runtime));
}

static void handles(shale_runtime runtime) {
  shale_tensor x = NULL, y = NULL;
  shale_runtime second = NULL;
  const int64_t shape[] = {2, 3}, negative[] = {2, -3},
                huge[] = {INT64_C(1) << 40, INT64_C(1) << 40};
  FAILS(SHALE_ERROR_STATE, "there is a runtime", FUNCTION(shale_runtime_create)(NULL, &second));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, shape, 1, &x));
  FAILS(SHALE_ERROR_ARGUMENT, "x is NULL", FUNCTION(shale_unary)(SHALE_RELU, NULL, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "out is NULL", FUNCTION(shale_unary)(SHALE_RELU, x, NULL));
  FAILS(SHALE_ERROR_ARGUMENT, "op is 99", FUNCTION(shale_unary)(99, x, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "not a handle",
        FUNCTION(shale_unary)(SHALE_RELU, (shale_tensor)&x, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "not a handle",
        FUNCTION(shale_unary)(SHALE_RELU, (shale_tensor)(uintptr_t)-1, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "is a runtime, expected a tensor",
        FUNCTION(shale_unary)(SHALE_RELU, (shale_tensor)(void*)runtime, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "is a tensor, expected a module",
        FUNCTION(shale_zero_grad)((shale_module)(void*)x));
  FAILS(SHALE_ERROR_ARGUMENT, "dtype is 12",
        FUNCTION(shale_tensor_full)(runtime, 12, 2, shape, 1, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "ndim is 7",
        FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 7, shape, 1, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "[2,-3]",
        FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, negative, 1, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "", FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, huge, 1, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "bytes is 4, expected 24", FUNCTION(shale_tensor_read)(x, &y, 4));
  FAILS(SHALE_ERROR_ARGUMENT, "expected a scalar", FUNCTION(shale_backward)(x));
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(x));
  FAILS(SHALE_ERROR_ARGUMENT, "was destroyed", FUNCTION(shale_tensor_destroy)(x));
  FAILS(SHALE_ERROR_ARGUMENT, "was destroyed", FUNCTION(shale_unary)(SHALE_RELU, x, &y));
}

static void shapes(shale_runtime runtime) {
  shale_tensor a = NULL, b = NULL, c = NULL;
  const int64_t two[] = {2, 3}, four[] = {4, 5};
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, two, 1, &a));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, four, 1, &b));
  FAILS(SHALE_ERROR_ARGUMENT, "[4,5]", FUNCTION(shale_matmul)(a, b, &c));
  FAILS(SHALE_ERROR_ARGUMENT, "", FUNCTION(shale_cross_entropy)(a, b, 3, &c));
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(b));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_I32, 2, two, 1, &b));
  FAILS(SHALE_ERROR_ARGUMENT, "int32, expected fp32", FUNCTION(shale_linear)(a, b, NULL, NULL, &c));
  FAILS(SHALE_ERROR_ARGUMENT, "floating", FUNCTION(shale_tensor_require_grad)(b, 1));
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(a));
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(b));
}

static void memory(shale_runtime runtime) {
  float values[6] = {1, 2, 3, 4, 5, 6}, read[3] = {0};
  const int64_t shape[] = {3}, every_second[] = {2}, backwards[] = {-1};
  shale_memory given = SHALE_MEMORY_INIT;
  shale_tensor x = NULL, y = NULL;
  void* shown = NULL;
  given.data = values;
  given.ndim = 1;
  given.shape = shape;
  given.strides = every_second;
  given.read_only = 1;
  given.release = on_release;
  SUCCEEDS(FUNCTION(shale_tensor_from_memory)(runtime, &given, &x));
  values[2] = 7;
  SUCCEEDS(FUNCTION(shale_tensor_read)(x, read, sizeof read));
  if (read[0] != 1 || read[1] != 7 || read[2] != 5) ++problems;
  FAILS(SHALE_ERROR_ARGUMENT, "read-only", FUNCTION(shale_tensor_write)(x, read, sizeof read));
  FAILS(SHALE_ERROR_ARGUMENT, "read-only", FUNCTION(shale_tensor_to_dlpack)(x, 1, &shown));
  SUCCEEDS(FUNCTION(shale_tensor_share)(x, &y));
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(x));
  if (released != 0) ++problems;
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(y));
  if (released != 1) ++problems;
  given.strides = backwards;
  FAILS(SHALE_ERROR_ARGUMENT, "-1", FUNCTION(shale_tensor_from_memory)(runtime, &given, &x));
  given.strides = NULL;
  given.data = (char*)values + 1;
  FAILS(SHALE_ERROR_ARGUMENT, "aligned", FUNCTION(shale_tensor_from_memory)(runtime, &given, &x));
  given.data = NULL;
  FAILS(SHALE_ERROR_ARGUMENT, "data is NULL",
        FUNCTION(shale_tensor_from_memory)(runtime, &given, &x));
  if (released != 1) ++problems; /* the program keeps refused memory */
}

static shale_status bad_body(void* user, const shale_tensor* in, int32_t in_count,
                             shale_tensor* out, int32_t out_count) {
  (void)user, (void)in_count, (void)out_count;
  return FUNCTION(shale_matmul)(in[0], in[0], &out[0]);
}

static shale_status empty_body(void* user, const shale_tensor* in, int32_t in_count,
                               shale_tensor* out, int32_t out_count) {
  (void)user, (void)in, (void)in_count, (void)out, (void)out_count;
  return SHALE_OK;
}

static void modules(shale_runtime runtime) {
  shale_module root = NULL, child = NULL, language = NULL, second = NULL;
  shale_optimizer optimizer = NULL;
  shale_tensor x = NULL, y = NULL;
  const int64_t shape[] = {2, 3};
  float few[2];
  shale_shard_options shard = SHALE_SHARD_OPTIONS_INIT;
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, NULL, "", &root));
  FAILS(SHALE_ERROR_ARGUMENT, "no dot",
        FUNCTION(shale_module_create)(runtime, root, "a.b", &child));
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, root, "part", &child));
  SUCCEEDS(FUNCTION(shale_module_declare)(child, "weight", 2, shape, NULL));
  FAILS(SHALE_ERROR_ARGUMENT, "\"weight\", which is already declared",
        FUNCTION(shale_module_declare)(child, "weight", 2, shape, NULL));
  FAILS(SHALE_ERROR_ARGUMENT, "\"part\", and parent has a module of that name",
        FUNCTION(shale_module_create)(runtime, root, "part", &second));
  FAILS(SHALE_ERROR_ARGUMENT, "expected the root", FUNCTION(shale_zero_grad)(child));
  shard.stage = 4;
  FAILS(SHALE_ERROR_CONFIG, "4", FUNCTION(shale_module_shard)(root, &shard));
  SUCCEEDS(FUNCTION(shale_module_destroy)(root));
  SUCCEEDS(FUNCTION(shale_module_destroy)(child));
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, NULL, "", &root));
  SUCCEEDS(FUNCTION(shale_module_declare)(root, "weight", 2, shape, NULL));
  shard.stage = 3;
  SUCCEEDS(FUNCTION(shale_module_shard)(root, &shard));
  FAILS(SHALE_ERROR_STATE, "sharded", FUNCTION(shale_module_declare)(root, "more", 2, shape, NULL));
  FAILS(SHALE_ERROR_ARGUMENT, "there is no parameter \"wieght\", expected one of weight",
        FUNCTION(shale_parameter_read)(root, "wieght", few, 2));
  FAILS(SHALE_ERROR_ARGUMENT, "count is 2, expected 6",
        FUNCTION(shale_parameter_read)(root, "weight", few, 2));
  FAILS(SHALE_ERROR_CONFIG, "adamw",
        FUNCTION(shale_optimizer_create)(root, "adamm", NULL, &optimizer));
  SUCCEEDS(FUNCTION(shale_optimizer_create)(root, "sgd", NULL, &optimizer));
  FAILS(SHALE_ERROR_STATE, "shale_optimizer_prepare() first",
        FUNCTION(shale_optimizer_step)(optimizer));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, shape, 1, &x));
  FAILS(SHALE_ERROR_ARGUMENT, "returned 1: shale_matmul",
        FUNCTION(shale_module_run)(root, bad_body, NULL, 1, &x, 1, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "outputs of the body is NULL",
        FUNCTION(shale_module_run)(root, empty_body, NULL, 1, &x, 1, &y));
  FAILS(SHALE_ERROR_CONFIG, "nano",
        FUNCTION(shale_language_model_create)(runtime, "nanoo", NULL, &language));
  FAILS(SHALE_ERROR_ARGUMENT, "not a language model",
        FUNCTION(shale_language_model_loss)(root, x, x, &y));
  SUCCEEDS(FUNCTION(shale_optimizer_destroy)(optimizer));
  FAILS(SHALE_ERROR_ARGUMENT, "was destroyed", FUNCTION(shale_optimizer_step)(optimizer));
}

/* Calls in an invalid order: SHALE_ERROR_STATE, and never an internal error. */
static void order(shale_runtime runtime) {
  shale_module root = NULL, inner = NULL, language = NULL;
  shale_optimizer optimizer = NULL;
  shale_tensor weight = NULL, x = NULL, y = NULL;
  const int64_t shape[] = {3, 3};
  float values[9] = {0}, norm = 0;
  int64_t begin = 0, step = 0;
  shale_shard_options shard = SHALE_SHARD_OPTIONS_INIT;
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, NULL, "", &root));
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, root, "inner", &inner));
  SUCCEEDS(FUNCTION(shale_module_declare)(root, "weight", 2, shape, NULL));
  SUCCEEDS(FUNCTION(shale_module_declare)(inner, "weight", 2, shape, NULL));
  SUCCEEDS(FUNCTION(shale_module_value)(root, "weight", &weight));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, shape, 1, &x));
  FAILS(SHALE_ERROR_STATE, "not sharded", FUNCTION(shale_zero_grad)(root));
  FAILS(SHALE_ERROR_STATE, "not sharded", FUNCTION(shale_clip_grad_norm)(root, 1, &norm));
  FAILS(SHALE_ERROR_STATE, "not sharded", FUNCTION(shale_module_begin_backward)(root, 1));
  FAILS(SHALE_ERROR_STATE, "not sharded", FUNCTION(shale_mean_over_ranks)(root, x, 1, &y));
  FAILS(SHALE_ERROR_STATE, "not sharded",
        FUNCTION(shale_optimizer_create)(root, "sgd", NULL, &optimizer));
  FAILS(SHALE_ERROR_STATE, "not sharded",
        FUNCTION(shale_parameter_read)(root, "weight", values, 9));
  FAILS(SHALE_ERROR_STATE, "not sharded",
        FUNCTION(shale_parameter_local)(root, "weight", &begin, &y));
  FAILS(SHALE_ERROR_STATE, "b (weight) [3,3] has no memory", FUNCTION(shale_matmul)(x, weight, &y));
  FAILS(SHALE_ERROR_STATE, "has no memory",
        FUNCTION(shale_reduce)(SHALE_SUM, weight, 0, NULL, 0, &y));
  FAILS(SHALE_ERROR_STATE, "has no memory", FUNCTION(shale_backward)(weight));
  FAILS(SHALE_ERROR_STATE, "has no memory", FUNCTION(shale_tensor_read)(weight, values, 36));
  FAILS(SHALE_ERROR_STATE, "has no memory", FUNCTION(shale_tensor_copy)(weight, x));
  FAILS(SHALE_ERROR_STATE, "has no memory", FUNCTION(shale_tensor_clone)(weight, &y));
  SUCCEEDS(FUNCTION(shale_language_model_create)(runtime, "nano", NULL, &language));
  FAILS(SHALE_ERROR_STATE, "not sharded", FUNCTION(shale_language_model_loss)(language, x, x, &y));
  /* Invalid options leave a model unchanged. */
  shard.compute = SHALE_I32;
  FAILS(SHALE_ERROR_CONFIG, "compute is int32", FUNCTION(shale_module_shard)(inner, &shard));
  shard.compute = SHALE_F32;
  shard.reduce = SHALE_F16;
  FAILS(SHALE_ERROR_CONFIG, "fp16", FUNCTION(shale_module_shard)(language, &shard));
  FAILS(SHALE_ERROR_CONFIG, "fp16", FUNCTION(shale_module_shard)(inner, &shard));
  SUCCEEDS(FUNCTION(shale_module_declare)(root, "more", 2, shape, NULL));
  shard.reduce = SHALE_F32;
  shard.stage = 3;
  SUCCEEDS(FUNCTION(shale_module_shard)(inner, &shard));
  FAILS(SHALE_ERROR_STATE, "weight is not in a sharded module",
        FUNCTION(shale_parameter_read)(root, "weight", values, 9));
  SUCCEEDS(FUNCTION(shale_module_shard)(root, &shard));
  SUCCEEDS(FUNCTION(shale_module_shard)(language, &shard));
  FAILS(SHALE_ERROR_STATE, "has no memory", FUNCTION(shale_matmul)(x, weight, &y));
  SUCCEEDS(FUNCTION(shale_optimizer_create)(root, "sgd", NULL, &optimizer));
  FAILS(SHALE_ERROR_ARGUMENT, "shape is [9], expected [3,3]",
        FUNCTION(shale_parameter_write_shaped)(root, "weight", 1, (const int64_t[]){9}, values));
  SUCCEEDS(FUNCTION(shale_parameter_write_shaped)(root, "weight", 2, shape, values));
  /* Invalid paths. */
  FAILS(SHALE_ERROR_ARGUMENT, "folder is \"a\\x0ab\", expected a path",
        FUNCTION(shale_checkpoint_save)(root, optimizer, "a\nb", 1, NULL, 0));
  FAILS(SHALE_ERROR_ARGUMENT, "expected a path",
        FUNCTION(shale_checkpoint_save)(root, optimizer, "", 1, NULL, 0));
  FAILS(SHALE_ERROR_ARGUMENT, "expected a path",
        FUNCTION(shale_checkpoint_load)(root, optimizer, "a\x1b", &step));
  FAILS(SHALE_ERROR_ARGUMENT, "expected a path",
        FUNCTION(shale_checkpoint_state)("\t", NULL, 0, NULL));
  FAILS(SHALE_ERROR_ARGUMENT, "expected a path",
        FUNCTION(shale_metrics_open)(runtime, "a\rb", -1, &(shale_metrics){NULL}));
  FAILS(SHALE_ERROR_CONFIG, "a file, expected a folder",
        FUNCTION(shale_checkpoint_load)(root, optimizer, "/proc/self/exe", &step));
  SUCCEEDS(FUNCTION(shale_checkpoint_load)(root, optimizer, "/proc/self/none", &step));
  if (step != -1) ++problems;
}

static shale_status weighing_body(void* user, const shale_tensor* in, int32_t in_count,
                                  shale_tensor* out, int32_t out_count) {
  shale_tensor weight = NULL, y = NULL;
  (void)in_count, (void)out_count;
  SUCCEEDS(FUNCTION(shale_module_value)(user, "weight", &weight));
  SUCCEEDS(FUNCTION(shale_matmul)(in[0], weight, &y));
  SUCCEEDS(FUNCTION(shale_reduce)(SHALE_SUM, y, 0, NULL, 0, &out[0]));
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(weight));
  return FUNCTION(shale_tensor_destroy)(y);
}

/* In steps of two micro-batches, a step is refused unless the second is marked as the last. */
static void micro_batches(shale_runtime runtime) {
  shale_module root = NULL;
  shale_optimizer optimizer = NULL;
  shale_tensor x = NULL, loss = NULL;
  const int64_t shape[] = {2, 2};
  shale_shard_options shard = SHALE_SHARD_OPTIONS_INIT;
  shard.stage = 1;
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, NULL, "", &root));
  SUCCEEDS(FUNCTION(shale_module_declare)(root, "weight", 2, shape, NULL));
  SUCCEEDS(FUNCTION(shale_module_shard)(root, &shard));
  SUCCEEDS(FUNCTION(shale_optimizer_create)(root, "sgd", NULL, &optimizer));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, shape, 1, &x));
  for (int32_t last = 0; last < 2; ++last) {
    SUCCEEDS(FUNCTION(shale_optimizer_prepare)(optimizer, last, 0.1f));
    for (int32_t i = 0; i < 2; ++i) {
      SUCCEEDS(FUNCTION(shale_module_run)(root, weighing_body, root, 1, &x, 1, &loss));
      SUCCEEDS(FUNCTION(shale_module_begin_backward)(root, i == 1 && last));
      SUCCEEDS(FUNCTION(shale_backward)(loss));
      SUCCEEDS(FUNCTION(shale_tensor_destroy)(loss));
    }
    expect(__LINE__, last ? SHALE_OK : SHALE_ERROR_CONFIG, "last = false",
           FUNCTION(shale_clip_grad_norm)(root, 1, NULL));
    expect(__LINE__, last ? SHALE_OK : SHALE_ERROR_CONFIG, "last = false",
           FUNCTION(shale_optimizer_step)(optimizer));
    SUCCEEDS(FUNCTION(shale_zero_grad)(root));
  }
  SUCCEEDS(FUNCTION(shale_module_run)(root, weighing_body, root, 1, &x, 1, &loss));
  SUCCEEDS(FUNCTION(shale_backward)(loss));
  expect(__LINE__, SHALE_ERROR_STATE, "prepare", FUNCTION(shale_optimizer_step)(optimizer));
  SUCCEEDS(FUNCTION(shale_optimizer_prepare)(optimizer, 2, 0.1f));
  SUCCEEDS(FUNCTION(shale_optimizer_step)(optimizer));
}

/* A module's body must not end the call that it is part of. */
static shale_runtime running;
static shale_status ending_body(void* user, const shale_tensor* in, int32_t in_count,
                                shale_tensor* out, int32_t out_count) {
  (void)in_count, (void)out_count;
  FAILS(SHALE_ERROR_STATE, "inside the body", FUNCTION(shale_runtime_destroy)(running));
  FAILS(SHALE_ERROR_STATE, "inside the body", FUNCTION(shale_module_shard)(user, NULL));
  SUCCEEDS(FUNCTION(shale_module_destroy)(user));
  return FUNCTION(shale_tensor_share)(in[0], &out[0]);
}

static void bodies(shale_runtime runtime) {
  shale_module root = NULL;
  shale_tensor x = NULL, y = NULL;
  const int64_t shape[] = {2};
  running = runtime;
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, NULL, "", &root));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 1, shape, 1, &x));
  SUCCEEDS(FUNCTION(shale_module_run)(root, ending_body, root, 1, &x, 1, &y));
  SUCCEEDS(FUNCTION(shale_tensor_destroy)(y));
}

/* Sizes have the limits of train_lm's options, and numbers must be valid for their formulas. */
static void limits(shale_runtime runtime) {
  shale_module model = NULL;
  shale_tensor x = NULL, gain = NULL, four = NULL, y = NULL;
  int32_t bf16 = 0;
  const int64_t shape[] = {2, 4}, width[] = {4}, heads[] = {1, 2, 1, 4};
  const int64_t bad[] = {-1, INT64_MIN, INT64_C(1) << 31, INT64_MAX};
  const float numbers[] = {NAN, INFINITY, -1};
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, shape, 1, &x));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 1, width, 1, &gain));
  SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 4, heads, 1, &four));
  for (size_t field = 0; field < 7; ++field) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
      shale_language_model_options given = SHALE_LANGUAGE_MODEL_OPTIONS_INIT;
      int64_t* const sizes[] = {&given.context, &given.layers,   &given.width, &given.heads,
                                &given.vocab,   &given.kv_heads, &given.hidden};
      *sizes[field] = bad[i];
      FAILS(SHALE_ERROR_CONFIG, "options: ",
            FUNCTION(shale_language_model_create)(runtime, "llama-nano", &given, &model));
    }
  }
  shale_language_model_options given = SHALE_LANGUAGE_MODEL_OPTIONS_INIT;
  given.layers = 200000;
  FAILS(SHALE_ERROR_CONFIG, "layers: expected an integer from 1 to 10000, found 200000",
        FUNCTION(shale_language_model_create)(runtime, "nano", &given, &model));
  given.layers = 0;
  given.dropout = 1;
  FAILS(SHALE_ERROR_CONFIG, "dropout",
        FUNCTION(shale_language_model_create)(runtime, "nano", &given, &model));
  SUCCEEDS(FUNCTION(shale_module_create)(runtime, NULL, "", &model));
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    const float number = numbers[i];
    shale_parameter_options initial = SHALE_PARAMETER_OPTIONS_INIT;
    FAILS(SHALE_ERROR_ARGUMENT, "eps", FUNCTION(shale_layer_norm)(x, gain, NULL, number, &y));
    FAILS(SHALE_ERROR_ARGUMENT, "eps", FUNCTION(shale_rms_norm)(x, gain, number, &y));
    FAILS(SHALE_ERROR_ARGUMENT, "theta", FUNCTION(shale_rope)(four, number, &y));
    FAILS(SHALE_ERROR_ARGUMENT, "scale",
          FUNCTION(shale_attention)(four, four, four, 1, number, 0, &y));
    FAILS(SHALE_ERROR_ARGUMENT, "p is", FUNCTION(shale_dropout)(x, number, 0, &y));
    initial.std = number;
    FAILS(SHALE_ERROR_ARGUMENT, "options->std",
          FUNCTION(shale_module_declare)(model, "a", 1, width, &initial));
    initial.std = 0;
    initial.mean = number;
    if (number == -1) continue;
    FAILS(SHALE_ERROR_ARGUMENT, "options->mean",
          FUNCTION(shale_module_declare)(model, "a", 1, width, &initial));
  }
  FAILS(SHALE_ERROR_ARGUMENT, "window is -1",
        FUNCTION(shale_attention)(four, four, four, 1, 0, -1, &y));
  FAILS(SHALE_ERROR_ARGUMENT, "first is -1", FUNCTION(shale_runtime_set_sample)(runtime, -1));
  FAILS(SHALE_ERROR_ARGUMENT, "out is NULL", FUNCTION(shale_runtime_supports_bf16)(runtime, NULL));
  SUCCEEDS(FUNCTION(shale_runtime_supports_bf16)(runtime, &bf16));
  if (bf16 != 1) ++problems;
}

/* GPUs have bf16 from compute capability 8.0 on; a bf16 tensor on others is an error. */
static void emulated(const char* device, int32_t has_bf16) {
  shale_runtime runtime = NULL;
  shale_runtime_options given = SHALE_RUNTIME_OPTIONS_INIT;
  shale_tensor x = NULL;
  int32_t bf16 = -1;
  const int64_t shape[] = {1};
  given.device = device;
  SUCCEEDS(FUNCTION(shale_runtime_create)(&given, &runtime));
  SUCCEEDS(FUNCTION(shale_runtime_supports_bf16)(runtime, &bf16));
  if (bf16 != has_bf16) ++problems;
  expect(__LINE__, has_bf16 != 0 ? SHALE_OK : SHALE_ERROR_UNAVAILABLE, "has no bf16",
         FUNCTION(shale_tensor_full)(runtime, SHALE_BF16, 1, shape, 1, &x));
  SUCCEEDS(FUNCTION(shale_runtime_destroy)(runtime));
}

/* Each thread has its own errors, and handles that no other thread uses. */
static void* thread_main(void* argument) {
  shale_runtime runtime = argument;
  const int64_t shape[] = {8, 8};
  for (int i = 0; i < 300; ++i) {
    shale_tensor x = NULL, y = NULL, loss = NULL;
    SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 2, shape, 0.5, &x));
    SUCCEEDS(FUNCTION(shale_tensor_require_grad)(x, 1));
    SUCCEEDS(FUNCTION(shale_matmul)(x, x, &y));
    SUCCEEDS(FUNCTION(shale_reduce)(SHALE_SUM, y, 0, NULL, 0, &loss));
    SUCCEEDS(FUNCTION(shale_backward)(loss));
    FAILS(SHALE_ERROR_ARGUMENT, "used by an earlier backward", FUNCTION(shale_backward)(loss));
    SUCCEEDS(FUNCTION(shale_tensor_destroy)(x));
    SUCCEEDS(FUNCTION(shale_tensor_destroy)(y));
    SUCCEEDS(FUNCTION(shale_tensor_destroy)(loss));
  }
  return NULL;
}

static void threads(shale_runtime runtime) {
  pthread_t others[3];
  for (int i = 0; i < 3; ++i) pthread_create(&others[i], NULL, thread_main, runtime);
  for (int i = 0; i < 3; ++i) pthread_join(others[i], NULL);
}

static void forked(shale_runtime runtime) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    problems = 0;
    FAILS(SHALE_ERROR_STATE, "a fork of that process", FUNCTION(shale_runtime_barrier)(runtime));
    _exit(problems == 0 ? 0 : 1);
  }
  if (waitpid(child, &status, 0) != child || status != 0) ++problems;
}

int main(int argc, char** argv) {
  shale_runtime runtime = NULL;
  shale_tensor left = NULL;
  const int64_t shape[] = {1};
  library = dlopen(argc > 1 ? argv[1] : "libshale_c.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "misuse: %s\n", dlerror());
    return 1;
  }
  before_the_runtime();
  options();
  for (int round = 0; round < 2; ++round) {
    shale_runtime_options cpu = SHALE_RUNTIME_OPTIONS_INIT;
    cpu.device = "cpu";
    released = 0;
    SUCCEEDS(FUNCTION(shale_runtime_create)(&cpu, &runtime));
    if (left != NULL) {
      FAILS(SHALE_ERROR_ARGUMENT, "was destroyed", FUNCTION(shale_tensor_destroy)(left));
    }
    handles(runtime);
    shapes(runtime);
    memory(runtime);
    modules(runtime);
    order(runtime);
    micro_batches(runtime);
    bodies(runtime);
    limits(runtime);
    threads(runtime);
    forked(runtime);
    SUCCEEDS(FUNCTION(shale_tensor_full)(runtime, SHALE_F32, 1, shape, 1, &left));
    SUCCEEDS(FUNCTION(shale_runtime_destroy)(runtime));
    FAILS(SHALE_ERROR_STATE, "there is no runtime", FUNCTION(shale_runtime_destroy)(runtime));
  }
  emulated("emu:75", 0);
  emulated("emu:80", 1);
  dlclose(library);
  printf("misuse: %d checks, %d problems\n", checks, problems);
  return problems == 0 ? 0 : 1;
}
