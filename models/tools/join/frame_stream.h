#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shale::models {

// Types of the messages of `shale join`. N: decimal number that identifies a started command.
enum class FrameType : char {
  kChallenge = 'c',  // head to node: handshake.h
  kHello = 'h',      // node to head: handshake.h
  kWelcome = 'w',    // head to node: handshake.h
  kRefused = 'r',    // head to node: "0" (final) or "1" (may try again), then the reason
  kStart = 's',      // agent to head: "HOST\nCOMMAND"; head to node: "N\nCOMMAND"
  kOutput = 'o',     // to the agent: "N\n", then what the command has printed
  kEnded = 'e',      // to the agent: "N\n", then the exit code of the command
  kClose = 'x',      // head to node: "N\n": end the command
  kStop = 't',       // node to head: the node is asked to stop
  kRunEnded = 'z',   // head to node: exit code of the run, which has ended
  kPing = 'p',       // in both directions; no content
};

struct Frame {
  FrameType type = FrameType::kPing;
  std::string payload;
};

// Non-blocking stream socket that exchanges frames. A frame has a type, a length of four bytes (big
// endian), and the payload. Once both sides have keys, 16 bytes of an HMAC-SHA256 over a counter
// and the frame follow. The HMAC exposes frames that are forged, changed, repeated or left out.
class FrameStream {
 public:
  static constexpr size_t kShort = 4096;  // maximum payload before authentication
  static constexpr size_t kLong = 1 << 18;

  // Owns `socket`. limit: maximum payload that is accepted, in bytes.
  explicit FrameStream(int socket, size_t limit = kShort);
  ~FrameStream();
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // Sets the keys for the MACs of frames sent and received from now on; raises the limit to kLong.
  void set_keys(std::string send_key, std::string receive_key);

  // Queues a frame. exchange() writes it.
  void send(FrameType type, std::string_view payload = {});
  // Reads what has arrived and writes what fits. Does not wait.
  void exchange();
  // Returns the next frame received. Throws CommError if the other side sends an invalid frame,
  // such as one with a wrong MAC.
  std::optional<Frame> next();

  int socket() const { return socket_; }
  short events() const;  // Returns the events for which poll() must wait.
  bool closed() const { return closed_; }
  bool has_output() const { return !output_.empty(); }
  // Sends a ping every few seconds. Returns false if the other side has been silent for too long.
  bool keep_alive();

 private:
  std::string mac(const std::string& key, uint64_t count, std::string_view frame) const;

  int socket_;
  size_t limit_;
  bool closed_ = false;
  std::string input_, output_, send_key_, receive_key_;
  uint64_t sent_ = 0, received_ = 0;
  std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now(), pinged_ = heard_;
};

}  // namespace shale::models
