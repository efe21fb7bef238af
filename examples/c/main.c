/* A custom model, trained from C over several ranks with sharding: it learns to distinguish points
 * of two rings. Writes metrics, saves checkpoints, and resumes from the newest one.
 *
 * Run: train_c [STAGE [FOLDER]], or mpirun -np 2 --bind-to none train_c 3
 */
#include <math.h>
#include <shale/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kWidth = 16, kPoints = 64, kSteps = 60 };

/* State of a rank. */
typedef struct {
  shale_runtime runtime;
  int32_t rank, ranks;
  shale_module model;
  shale_tensor w1, b1, w2, b2;
  shale_optimizer optimizer;
} Run;

/* If the call fails, returns its status from the enclosing function. */
#define TRY(call)                            \
  do {                                       \
    const shale_status status_ = (call);     \
    if (status_ != SHALE_OK) return status_; \
  } while (0)

static shale_status declare(Run* run, const char* name, int64_t rows, int64_t columns, float std,
                            shale_tensor* value) {
  const int64_t shape[] = {rows, columns};
  shale_parameter_options options = SHALE_PARAMETER_OPTIONS_INIT;
  options.std = std;
  options.no_decay = columns == 0;
  TRY(shale_module_declare(run->model, name, columns == 0 ? 1 : 2, shape, &options));
  return shale_module_value(run->model, name, value);
}

/* y = gelu(x w1' + b1) w2' + b2. x: [n, 2], y: [n, 1]. The parameters are gathered. */
static shale_status forward(void* user, const shale_tensor* in, int32_t in_count, shale_tensor* out,
                            int32_t out_count) {
  const Run* run = user;
  shale_tensor hidden = NULL, active = NULL;
  if (in_count != 1 || out_count != 1) return SHALE_ERROR_ARGUMENT;
  TRY(shale_linear(in[0], run->w1, run->b1, NULL, &hidden));
  TRY(shale_unary(SHALE_GELU_TANH, hidden, &active));
  TRY(shale_tensor_destroy(hidden));
  TRY(shale_linear(active, run->w2, run->b2, NULL, &out[0]));
  return shale_tensor_destroy(active);
}

/* Mean squared error of this rank's points in this step. */
static shale_status loss_of(Run* run, int64_t step, shale_tensor* loss) {
  float points[kPoints][2], wanted[kPoints];
  const int64_t of_points[] = {kPoints, 2}, of_wanted[] = {kPoints, 1};
  shale_tensor x = NULL, target = NULL, y = NULL;
  for (int i = 0; i < kPoints; ++i) {
    const int64_t place = (step * run->ranks + run->rank) * kPoints + i;
    const float radius = place % 2 == 0 ? 0.5f : 1.0f, angle = 0.1f * (float)(place % 1000);
    points[i][0] = radius * cosf(angle);
    points[i][1] = radius * sinf(angle);
    wanted[i] = place % 2 == 0 ? 1.0f : -1.0f;
  }
  TRY(shale_tensor_from_host(run->runtime, points, SHALE_F32, 2, of_points, &x));
  TRY(shale_tensor_from_host(run->runtime, wanted, SHALE_F32, 2, of_wanted, &target));
  TRY(shale_module_run(run->model, forward, run, 1, &x, 1, &y));
  TRY(shale_mse_loss(y, target, loss));
  TRY(shale_tensor_destroy(x));
  TRY(shale_tensor_destroy(target));
  return shale_tensor_destroy(y);
}

static shale_status train_step(Run* run, int64_t step, shale_step_metrics* row) {
  shale_tensor loss = NULL, mean = NULL;
  float norm = 0, value = 0;
  double sum = 0;
  TRY(shale_optimizer_prepare(run->optimizer, step, 0.02f));
  TRY(loss_of(run, step, &loss));
  TRY(shale_mean_over_ranks(run->model, loss, kPoints, &mean));
  TRY(shale_backward(mean));
  TRY(shale_clip_grad_norm(run->model, 1, &norm));
  TRY(shale_optimizer_step(run->optimizer));
  TRY(shale_zero_grad(run->model));
  TRY(shale_tensor_read(loss, &value, sizeof value));
  TRY(shale_runtime_sum(run->runtime, value, &sum));
  TRY(shale_tensor_destroy(loss));
  TRY(shale_tensor_destroy(mean));
  row->size = sizeof *row;
  row->step = step + 1;
  row->loss = (float)(sum / run->ranks);
  row->grad_norm = norm;
  row->lr = 0.02;
  row->items_per_s = row->step_ms = -1;
  row->items = (step + 1) * run->ranks * kPoints;
  return SHALE_OK;
}

static shale_status make_model(Run* run, int32_t stage) {
  shale_shard_options shard = SHALE_SHARD_OPTIONS_INIT;
  shale_optimizer_options adamw = SHALE_OPTIMIZER_OPTIONS_INIT;
  TRY(shale_module_create(run->runtime, NULL, "", &run->model));
  TRY(declare(run, "w1", kWidth, 2, 1.0f, &run->w1));
  TRY(declare(run, "b1", kWidth, 0, 0.0f, &run->b1));
  TRY(declare(run, "w2", 1, kWidth, 0.2f, &run->w2));
  TRY(declare(run, "b2", 1, 0, 0.0f, &run->b2));
  shard.stage = stage;
  shard.seed = 7;
  TRY(shale_module_shard(run->model, &shard));
  adamw.weight_decay = 0;
  return shale_optimizer_create(run->model, "adamw", &adamw, &run->optimizer);
}

static shale_status train(Run* run, int32_t stage, const char* folder) {
  int64_t done = -1;
  shale_metrics metrics = NULL;
  TRY(shale_runtime_rank(run->runtime, &run->rank, &run->ranks, NULL, NULL));
  TRY(make_model(run, stage));
  if (folder != NULL) {
    TRY(shale_checkpoint_load(run->model, run->optimizer, folder, &done));
    TRY(shale_metrics_open(run->runtime, folder, done < 0 ? 0 : done, &metrics));
  }
  for (int64_t step = done < 0 ? 0 : done; step < kSteps; ++step) {
    shale_step_metrics row;
    TRY(train_step(run, step, &row));
    if (metrics != NULL) TRY(shale_metrics_write(metrics, &row));
    if (run->rank == 0) printf("step %d | loss %.9g\n", (int)row.step, (double)row.loss);
    if (folder != NULL && (step + 1) % 30 == 0) {
      TRY(shale_checkpoint_save(run->model, run->optimizer, folder, step + 1, NULL, 2));
    }
  }
  return metrics == NULL ? SHALE_OK : shale_metrics_close(metrics);
}

int main(int argc, char** argv) {
  Run run = {0};
  int32_t code = 0;
  if (shale_api_version() / 1000 != SHALE_API_MAJOR) {
    fprintf(stderr, "error: expected version %d of the interface\n", SHALE_API_MAJOR);
    return 1;
  }
  shale_status status = shale_runtime_create(NULL, &run.runtime);
  if (status != SHALE_OK) {
    fprintf(stderr, "error: %s\n", shale_last_error());
    return status;
  }
  status = train(&run, argc > 1 ? atoi(argv[1]) : 0, argc > 2 ? argv[2] : NULL);
  /* Makes other ranks stop waiting for this one, and prints the error. */
  if (status != SHALE_OK) shale_runtime_fail(run.runtime, status, shale_last_error(), &code);
  return shale_runtime_destroy(run.runtime) == SHALE_OK ? code : 1;
}
