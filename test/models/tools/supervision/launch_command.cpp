#include "shale/models/tools/supervision/launch_command.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> list;
  size_t begin = 0;
  while (begin < line.size()) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    list.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

std::string resumed(const std::string& line) {
  LaunchCommand command(words(line));
  command.resume();
  std::string text;
  for (const auto& argument : command.arguments()) text += (text.empty() ? "" : " ") + argument;
  return text;
}

// Returns the command line after keeping only the first `count` hosts. `slots` is the number of
// slots of hosts for which the line gives no number.
std::string kept(const std::string& line, size_t count, int64_t slots = 0,
                 const std::string& host_file = "") {
  LaunchCommand command(words(line));
  std::vector<LaunchHost> hosts = command.hosts();
  hosts.resize(count);
  for (LaunchHost& host : hosts) host.slots = host.slots.value_or(slots);
  command.keep_hosts(hosts, host_file);
  std::string text;
  for (const auto& argument : command.arguments()) text += (text.empty() ? "" : " ") + argument;
  return text;
}

}  // namespace

TEST_CASE("a restart resumes, whatever the command said about it") {
  CHECK(resumed("train_lm --data x") == "train_lm --data x --resume auto");
  CHECK(resumed("mpirun -np 2 bin/train_lm --data x") ==
        "mpirun -np 2 bin/train_lm --data x --resume auto");
  CHECK(resumed("train_lm --resume none --data x") == "train_lm --resume auto --data x");
  CHECK(resumed("train_lm --resume=out/old --data x") == "train_lm --resume=auto --data x");
  // A command without a training program has no --resume.
  CHECK(resumed("sh -c exit") == "sh -c exit");
}

TEST_CASE("the output folder is found where the program finds it") {
  const test::TempDir folder;
  const std::string config = folder.write("config.json", R"({"out": "from_config"})");
  CHECK(LaunchCommand(words("train_lm --data x")).out_folder() == "out");
  CHECK(LaunchCommand(words("train_lm --out a --out=b")).out_folder() == "b");
  CHECK(LaunchCommand(words("mpirun --out launcher train_lm --data x")).out_folder() == "out");
  CHECK(LaunchCommand(words("train_lm --config " + config)).out_folder() == "from_config");
  CHECK(LaunchCommand(words("train_lm --out a --config " + config)).out_folder() == "a");
}

TEST_CASE("hosts come from the list or the file, and none may look like an option") {
  const test::TempDir folder;
  const auto list = LaunchCommand(words("mpirun --host a:2,b train_lm")).hosts();
  REQUIRE(list.size() == 2);
  CHECK(list[0].name == "a");
  CHECK(list[0].slots == 2);
  CHECK(list[1].slots == 1);
  CHECK_FALSE(LaunchCommand(words("mpirun --host a:* train_lm")).hosts()[0].slots.has_value());
  // Open MPI 4.1's mpirun gives the expected values.
  const std::string file = folder.write("hosts",
                                        "# ours\na slots=3\n\nb # slots=9\n"
                                        "c max_slots=8\nd slots = 2 max_slots=8\ne cpu=5\n");
  const auto read = LaunchCommand(words("mpirun --hostfile " + file + " train_lm")).hosts();
  REQUIRE(read.size() == 5);
  CHECK(read[0].slots == 3);
  CHECK_FALSE(read[1].slots.has_value());
  CHECK(read[2].slots == 8);
  CHECK(read[3].slots == 2);
  CHECK(read[4].slots == 5);
  CHECK(LaunchCommand(words("train_lm --host a")).hosts().empty());
  CHECK_THROWS_AS(LaunchCommand(words("mpirun --host a,-oProxyCommand=x train_lm")), ConfigError);
  const std::string bad = folder.write("bad", "-oProxyCommand=x slots=1\n");
  CHECK_THROWS_AS(LaunchCommand(words("mpirun --hostfile " + bad + " train_lm")), ConfigError);
  CHECK_THROWS_AS(LaunchCommand(words("mpirun --hostfile /nowhere train_lm")), MissingInputError);
  CHECK_THROWS_AS(LaunchCommand({}), ConfigError);
}

TEST_CASE("a lost host takes its ranks with it") {
  CHECK(kept("mpirun -np 4 --host a:2,b:2 train_lm", 1) == "mpirun -np 2 --host a:2 train_lm");
  CHECK(kept("mpirun --host a:2,b:2 train_lm", 1) == "mpirun -np 2 --host a:2 train_lm");
  CHECK(kept("mpirun -np 1 --host a:2,b:2 train_lm", 1) == "mpirun -np 1 --host a:2 train_lm");
  CHECK(kept("mpirun -np 9 --host a,b:*,c train_lm", 2, /*slots=*/3) ==
        "mpirun -np 4 --host a,b:* train_lm");
}

TEST_CASE("a host file loses the lines of lost hosts, and the others stay as they are") {
  const test::TempDir folder;
  const std::string file =
      folder.write("hosts", "a slots=2 max_slots=4  # the first\n\nb user = someone\nc slots=2\n");
  const std::string left = folder.file("left");
  CHECK(kept("mpirun --hostfile " + file + " -np 9 train_lm", 2, /*slots=*/3, left) ==
        "mpirun --hostfile " + left + " -np 5 train_lm");
  CHECK(test::read_file(left) == "a slots=2 max_slots=4  # the first\nb user = someone\n");
  CHECK(kept("mpirun --machinefile " + file + " train_lm", 1, 0, left) ==
        "mpirun -np 2 --machinefile " + left + " train_lm");
  CHECK(kept("mpirun --hostfile=" + file + " -np 1 train_lm", 1, 0, left) ==
        "mpirun --hostfile=" + left + " -np 1 train_lm");
}

TEST_CASE("the ranks that are left share out the global batch") {
  const std::string mpirun = "mpirun -np 4 --host a:3,b:1 train_lm ";
  CHECK(test::contains(kept(mpirun + "--global-batch 32", 1), "-np 2 "));
  CHECK(test::contains(kept(mpirun + "--global-batch 24 --micro-batch 2", 1), "-np 3 "));
  CHECK_THROWS_AS(kept(mpirun + "--global-batch 4 --micro-batch 8", 1), UnavailableError);
}

}  // namespace shale::models
