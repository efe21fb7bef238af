#include "shale/models/tools/join/frame_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/tools/join/hmac_sha256.h"

namespace shale::models {
namespace {

constexpr size_t kHeader = 5;  // bytes of type and length
constexpr size_t kMac = 16;    // bytes of an HMAC
// Bytes; beyond them, the other side has stopped reading.
constexpr size_t kMaxQueued = size_t{8} << 20;

constexpr std::chrono::seconds kPing{5};
constexpr std::chrono::seconds kSilence{30};
constexpr std::string_view kTypes = "chwrsoextzp";  // all values of FrameType

std::string big_endian(uint64_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    text += static_cast<char>(value >> shift);
  }
  return text;
}

}  // namespace

FrameStream::FrameStream(int socket, size_t limit) : socket_(socket), limit_(limit) {
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

FrameStream::~FrameStream() {
  close(socket_);
}

void FrameStream::set_keys(std::string send_key, std::string receive_key) {
  send_key_ = std::move(send_key);
  receive_key_ = std::move(receive_key);
  limit_ = kLong;
}

std::string FrameStream::mac(const std::string& key, uint64_t count, std::string_view frame) const {
  if (key.empty()) return {};
  return hmac_sha256(key, big_endian(count, 8).append(frame)).substr(0, kMac);
}

void FrameStream::send(FrameType type, std::string_view payload) {
  std::string frame(1, static_cast<char>(type));
  frame += big_endian(payload.size(), kHeader - 1);
  frame += payload;
  output_ += frame;
  output_ += mac(send_key_, sent_, frame);
  if (!send_key_.empty()) ++sent_;
  if (output_.size() > kMaxQueued) closed_ = true;
}

void FrameStream::exchange() {
  while (!output_.empty() && !closed_) {
    const ssize_t put = ::send(socket_, output_.data(), output_.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put < 0) {
      closed_ = true;
    } else {
      output_.erase(0, static_cast<size_t>(put));
    }
  }
  const size_t enough = limit_ + kHeader + kMac;  // at least one frame
  while (input_.size() < enough) {
    char part[4096];
    const ssize_t got = recv(socket_, part, sizeof part, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      closed_ = true;  // next() still returns what has arrived before
      return;
    }
    input_.append(part, static_cast<size_t>(got));
    heard_ = std::chrono::steady_clock::now();
  }
}

std::optional<Frame> FrameStream::next() {
  if (input_.empty()) return {};
  if (kTypes.find(input_[0]) == kTypes.npos) {
    throw CommError(cat("expected a message of shale join, found '", excerpt(input_, 40), "'"));
  }
  if (input_.size() < kHeader) return {};
  size_t length = 0;
  for (size_t i = 1; i < kHeader; ++i) length = length << 8 | static_cast<uint8_t>(input_[i]);
  if (length > limit_) {
    throw CommError(cat("expected a message of at most ", limit_, " bytes, found ", length));
  }
  const size_t end = kHeader + length, all = end + (receive_key_.empty() ? 0 : kMac);
  if (input_.size() < all) return {};
  const std::string_view frame(input_.data(), end);
  if (!same_digest(mac(receive_key_, received_, frame), {input_.data() + end, all - end})) {
    throw CommError("a message with a wrong MAC: it was changed on its way");
  }
  if (!receive_key_.empty()) ++received_;
  Frame result{.type = static_cast<FrameType>(frame[0]),
               .payload = std::string(frame.substr(kHeader))};
  input_.erase(0, all);
  return result;
}

short FrameStream::events() const {
  return static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT);
}

bool FrameStream::keep_alive() {
  const auto now = std::chrono::steady_clock::now();
  if (now > pinged_ + kPing) {
    send(FrameType::kPing);
    pinged_ = now;
  }
  return now < heard_ + kSilence;
}

}  // namespace shale::models
