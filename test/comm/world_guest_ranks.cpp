// Tests Worlds on a communicator of a program that has initialized MPI itself.
#include <memory>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/mpi_communicator.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::MpiCommunicator;
using comm::World;

// Communicator of the ranks that pass this color, in reverse rank order.
struct Part {
  explicit Part(int color) {
    MPI_Comm_split(MPI_COMM_WORLD, color, -world().rank(), &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
  }
  ~Part() { MPI_Comm_free(&comm); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 0;
};

float sum_of_ones(comm::ProcessGroup& group) {
  std::vector<float> ones(1000, 1);
  group.all_reduce_sum(make_view(ones.data(), {1000}));
  return ones[999];
}

bool mpi_works(MPI_Comm comm, int size) {
  int finalized = 0, one = 1, sum = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return false;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum == size;
}

}  // namespace

TEST_CASE("a guest's ranks are those of its communicator") {
  if (!world().uses_mpi()) return;
  const Part part(world().rank() % 2);
  {
    World guest(MpiCommunicator{part.comm});
    CHECK(guest.uses_mpi());
    CHECK(guest.rank() == part.rank);
    CHECK(guest.size() == part.size);
    CHECK(guest.local_size() == part.size);
    CHECK(guest.local_rank() == part.rank);
    const auto group = guest.group({.timeout_s = 60});
    CHECK(group->rank() == part.rank);
    CHECK(sum_of_ones(*group) == float(part.size));
    const auto halves = group->split(part.rank % 2, part.rank, "halves");
    CHECK(sum_of_ones(*halves) == float((part.size + 1 - part.rank % 2) / 2));
    guest.watch({.timeout_s = 60});
    guest.at_step(1);
  }
  CHECK(mpi_works(part.comm, part.size));
  CHECK(mpi_works(MPI_COMM_WORLD, world().size()));
}

TEST_CASE("guests follow one another, and the communicator may go before its guest") {
  if (!world().uses_mpi()) return;
  for (int i = 0; i < 3; ++i) {
    auto part = std::make_unique<Part>(0);
    World guest(MpiCommunicator{part->comm});
    part.reset();
    CHECK(sum_of_ones(*guest.group({.timeout_s = 60})) == float(world().size()));
  }
}

TEST_CASE("a guest leaves the error handler of its communicator as it is") {
  if (!world().uses_mpi()) return;
  const Part part(0);
  const World guest(MpiCommunicator{part.comm});
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(part.comm, &handler);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
}

TEST_CASE("a guest's rank that fails ends no process, and keeps none waiting") {
  if (!world().uses_mpi()) return;
  const Part part(0);
  std::string heard;
  const int code = comm::run(MpiCommunicator{part.comm}, [&](World& guest) {
    const auto group = guest.group({.timeout_s = 60});
    CHECK(sum_of_ones(*group) == float(part.size));
    if (guest.rank() == 0) throw DataError("an error that a test makes");
    try {
      group->barrier();
    } catch (const Error& error) {
      heard = error.what();
      throw;
    }
    return 0;
  });
  CHECK(code == static_cast<int>(ExitCode::kData));  // all ranks get the first failing rank's code
  if (part.rank > 0) CHECK(contains(heard, "an error that a test makes"));
  CHECK(mpi_works(part.comm, part.size));
  // After a failure, a new World works.
  World guest(MpiCommunicator{part.comm});
  CHECK(sum_of_ones(*guest.group({.timeout_s = 60})) == float(part.size));
}

TEST_CASE("an exception may leave a guest's scope") {
  if (!world().uses_mpi()) return;
  const Part part(0);
  const auto body = [&] {
    World guest(MpiCommunicator{part.comm});
    const auto group = guest.group({.timeout_s = 60});
    if (guest.rank() == part.size - 1) throw DataError("an error that a test makes");
    group->barrier();
  };
  CHECK_THROWS_AS(body(), Error);
  CHECK(mpi_works(part.comm, part.size));
}

TEST_CASE("a World in another program's communicator: parts of parts, a grid, one process") {
  if (!world().uses_mpi()) return;
  const Part part(world().rank() % 2);
  MPI_Comm of_part = MPI_COMM_NULL, grid = MPI_COMM_NULL;
  MPI_Comm_split(part.comm, part.rank % 2, 0, &of_part);
  const int size = part.size, cyclic = 1;
  MPI_Cart_create(part.comm, 1, &size, &cyclic, /*reorder=*/0, &grid);
  MPI_Comm_set_errhandler(grid, MPI_ERRORS_RETURN);
  for (MPI_Comm comm : {of_part, grid, MPI_COMM_SELF}) {
    int ranks = 0;
    MPI_Comm_size(comm, &ranks);
    World guest(MpiCommunicator{comm});
    CHECK(guest.size() == ranks);
    CHECK(sum_of_ones(*guest.group({.timeout_s = 60})) == float(ranks));
  }
  MPI_Comm_free(&of_part);
  MPI_Comm_free(&grid);
}

TEST_CASE("communicators that a World cannot be a guest of are errors with a sentence") {
  if (!world().uses_mpi()) return;
  const auto refused = [](MPI_Comm comm, const char* words) {
    CHECK(contains(message_of<InternalError>([&] { World guest(MpiCommunicator{comm}); }), words));
    const auto body = [](World&) { return 0; };
    CHECK(comm::run(MpiCommunicator{comm}, body) == static_cast<int>(ExitCode::kInternal));
  };
  refused(MPI_COMM_NULL, "is MPI_COMM_NULL");

  MPI_Comm freed = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &freed);
  MPI_Comm_free(&freed);
  refused(freed, "it was freed, or this process is not in it");

  const int last = world().size() - 1;
  if (last == 0) return;
  // Like the ranks of a simulation, without the rank that serves it.
  const bool is_in = world().rank() < last;
  MPI_Comm most = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, is_in ? 0 : MPI_UNDEFINED, 0, &most);
  if (is_in) {
    {
      World guest(MpiCommunicator{most});
      CHECK(guest.size() == last);
    }
    MPI_Comm_free(&most);
  } else {
    refused(most, "this process is not in it; expected an intracommunicator, on its members only");
  }

  // The part has reverse order: its rank 0 is its highest World rank.
  const Part part(world().rank() % 2);
  const int leader_of_others = world().rank() % 2 == last % 2 ? last - 1 : last;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(part.comm, 0, MPI_COMM_WORLD, leader_of_others, 7, &between);
  refused(between, "is an intercommunicator");
  MPI_Comm_free(&between);
}

}  // namespace shale::test
