#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace shale::models {

// Protocol by which a node and the head of a run prove that they know the same token, without
// sending it: each answers the other's random numbers with an HMAC-SHA256 of the token.
//
//   head to node: challenge = protocol version, 32 random bytes
//   node to head: 32 random bytes, proof of the node, its description (Hello)
//   head to node: proof of the head
//
// Both proofs and the keys of the following frames cover all of the first two messages.

// Description of a node, which it sends to the head.
struct Hello {
  std::string build;     // version of Shale
  std::string host;      // name of the host
  int64_t rank = -1;     // rank in the launcher's variables; -1: none
  int64_t gpus = 0;      // number of visible GPUs
  int64_t cpus = 0;      // number of usable CPUs
  std::string networks;  // IPv4 addresses with prefixes: "10.0.0.2/24 172.17.0.1/16"
  bool waits = false;    // runs no ranks, only waits for the end of the run
};

// Returns version and build ID of this program. They must equal those of the head.
std::string this_build();

std::string hello_text(const Hello& hello);
Hello parse_hello(std::string_view text);  // throws DataError

struct Secrets {
  std::string node_proof, head_proof;
  std::string to_head, to_node;  // keys for FrameStream::set_keys()
};

std::string make_challenge();
// Returns true if the payload is a challenge of this protocol version. If not, the head has another
// version.
bool is_challenge(std::string_view payload);

// Answer of the node to a challenge, and the secrets that follow from both messages.
struct Answer {
  std::string payload;
  Secrets secrets;
};
Answer answer(const std::string& token, std::string_view challenge, const Hello& hello);
// Checks an answer, on the head. Returns nullopt if the node does not know the token. Throws
// DataError if a node that knows it sends an invalid Hello.
struct Accepted {
  Hello hello;
  Secrets secrets;
};
std::optional<Accepted> accept_answer(const std::string& token, std::string_view challenge,
                                      std::string_view payload);

using Variables = std::function<const char*(const char* name)>;  // std::getenv, which tests replace

// Returns the token in SHALE_TOKEN, or in the file that SHALE_TOKEN_FILE names. Throws ConfigError
// if there is none or it is too short; MissingInputError.
std::string read_token(const Variables& variables);
// Returns read_token() for the environment of this process. Removes SHALE_TOKEN from it, because
// child processes do not need it.
std::string take_token();

// Position of a process in a run, from the variables of torchrun or of Kubeflow's operators.
struct TorchPlace {
  std::string address;    // address of the host of rank 0
  int64_t port = 0;       // port of the head of the run
  int64_t rank = 0;       // rank of this process
  int64_t processes = 1;  // number of all processes
  bool waits = false;     // another process runs the ranks of this host
};
// Returns nullopt if the variables are not set. Throws ConfigError for invalid values.
std::optional<TorchPlace> torch_place(const Variables& variables);

}  // namespace shale::models
