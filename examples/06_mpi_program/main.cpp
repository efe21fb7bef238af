// Shale inside a program that starts MPI itself, such as a simulation. If there are several ranks,
// the last one serves data without using Shale. The others train on the data, in a World over their
// own communicator. Shale does not initialise or finalise MPI, and never ends the process.
//
// Run: mpirun -np 3 --bind-to none mpi_program
#include <mpi.h>
#include <shale/mpi.h>
#include <shale/shale.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int kSteps = 60, kRows = 16;

// Makes rows of x and the target.
std::vector<float> make_batch(int step, int trainer) {
  std::vector<float> rows;
  for (int i = 0; i < kRows; ++i) {
    const float x = std::sin(1.7f * float((step * 8 + trainer) * kRows + i));
    rows.push_back(x);
    rows.push_back(0.5f * x + 0.25f);
  }
  return rows;
}

// What the program does itself: sends batches to every trainer over its own communicator.
void serve(int trainers) {
  for (int step = 0; step < kSteps; ++step) {
    for (int trainer = 0; trainer < trainers; ++trainer) {
      const std::vector<float> rows = make_batch(step, trainer);
      MPI_Send(rows.data(), int(rows.size()), MPI_FLOAT, trainer, step, MPI_COMM_WORLD);
    }
  }
}

std::vector<float> receive(int step, int server) {
  std::vector<float> rows(2 * kRows);
  MPI_Recv(rows.data(), int(rows.size()), MPI_FLOAT, server, step, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
  return rows;
}

// y = weight x + bias. x: [n, 1].
struct Line : shale::Module {
  Line() : layer(this, "layer", 1, 1, shale::Init::zeros()) {}
  shale::Tensor forward(const shale::Tensor& x) {
    return run(x, [this](const shale::Tensor& in) { return layer.forward(in); });
  }
  shale::nn::Linear layer;
};

// Trains a line to learn 0.5 x + 0.25. server: a rank of MPI_COMM_WORLD, or -1: none.
int train(shale::comm::World& world, int server) {
  shale::Context context({.threads = 1});
  const auto group = world.group();
  Line line;
  shale::comm::fully_shard(line, context, *group);
  shale::optim::AdamW optimizer(shale::comm::optim_shards(line), {.weight_decay = 0});
  float loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> rows =
        server < 0 ? make_batch(step, world.rank()) : receive(step, server);
    const shale::Tensor batch = shale::from_host<float>(context, rows, {kRows, 2});
    const shale::Tensor x = contiguous(slice(batch, 1, 0, 1));
    optimizer.prepare(context, step, 0.03f);
    const shale::Tensor error = line.forward(x) - slice(batch, 1, 1, 2);
    const shale::Tensor squared = mean(error * error);
    backward(shale::comm::mean_over_ranks(line, squared));
    optimizer.step();
    optimizer.zero_grad();
    loss = shale::to_host<float>(squared).front();
  }
  if (world.rank() == 0) std::printf("%d trainers: loss %.6f\n", world.size(), double(loss));
  return loss < 0.01f ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int server = size > 1 ? size - 1 : -1;

  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == server ? 1 : 0, rank, &part);
  int code = 0;
  if (rank == server) {
    serve(size - 1);
  } else {
    code = shale::comm::run(shale::comm::MpiCommunicator{part},
                            [server](shale::comm::World& world) { return train(world, server); });
  }
  MPI_Comm_free(&part);

  // The World has ended, but MPI is still running and belongs to the program.
  int worst = 0;
  MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return worst;
}
