#include "tests/client/mock_http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

namespace folio::test {
namespace {

// Reads up to a whole request; nullopt at the end of the connection.
std::optional<MockRequest> read_request(int fd, std::string& inbox, bool with_body) {
  const auto more = [&] {
    char bytes[65536];
    const ssize_t count = recv(fd, bytes, sizeof bytes, 0);
    if (count > 0) inbox.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  };
  while (inbox.find("\r\n\r\n") == std::string::npos) {
    if (!more()) return std::nullopt;
  }
  MockRequest out;
  out.head = inbox.substr(0, inbox.find("\r\n\r\n") + 4);
  out.line = out.head.substr(0, out.head.find("\r\n"));
  const std::size_t field = out.head.find("Content-Length: ");
  const std::size_t length = field == std::string::npos || !with_body ? 0 : std::stoul(out.head.substr(field + 16));
  while (inbox.size() < out.head.size() + length) {
    if (!more()) return std::nullopt;
  }
  out.body = inbox.substr(out.head.size(), length);
  inbox.erase(0, out.head.size() + length);
  return out;
}

}  // namespace

void MockPeer::send(std::string_view bytes) {
  while (!bytes.empty() && is_open()) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;  // the client is gone
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void MockPeer::close() {
  if (is_open()) ::shutdown(fd_, SHUT_RDWR);
  fd_ = -1;
}

void MockPeer::reset() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd_ = -1;  // closed by the server when the answer is over
}

bool MockPeer::wait_closed() {
  const timeval patience{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char byte = 0;
  const ssize_t count = recv(fd_, &byte, 1, 0);
  return count == 0 || (count < 0 && errno == ECONNRESET);
}

MockHttpServer::MockHttpServer(Answer answer, When when)
    : answer_(std::move(answer)), when_(when), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener_, raw, size) != 0 || listen(listener_, 4096) != 0 || getsockname(listener_, raw, &size) != 0) {
    throw std::runtime_error("the mock server cannot listen");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

MockHttpServer::~MockHttpServer() {
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : live_) shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
}

void MockHttpServer::accept_all() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const std::lock_guard lock(mutex_);
    live_.push_back(fd);
    threads_.emplace_back([this, fd, number = num_connections_.fetch_add(1)] { serve(fd, number); });
  }
}

void MockHttpServer::serve(int fd, int number) {
  MockPeer peer(fd);
  std::string inbox;
  while (peer.is_open()) {
    auto request = read_request(fd, inbox, when_ == When::kWholeRequest);
    if (!request) break;
    num_requests_.fetch_add(1);
    request->connection = number;
    answer_(*request, peer);
  }
  const std::lock_guard lock(mutex_);
  std::erase(live_, fd);
  close(fd);
}

std::string response(int status, std::string_view content_type, std::string_view body) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " Words\r\nContent-Type: ";
  out.append(content_type).append("\r\nContent-Length: ").append(std::to_string(body.size())).append("\r\n\r\n");
  return out.append(body);
}

std::string chunk(std::string_view bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return std::string(size).append(bytes).append("\r\n");
}

std::string event(std::string_view data) {
  return chunk("data: " + std::string(data) + "\n\n");
}

std::string text_data(std::string_view text, std::string_view reason, int index) {
  nlohmann::json choice = {{"index", index}, {"text", text}, {"finish_reason", nullptr}};
  if (!reason.empty()) choice["finish_reason"] = reason;
  return nlohmann::json{{"choices", {choice}}}.dump();
}

std::string usage_data(int prompt_tokens, int completion_tokens) {
  return nlohmann::json{{"choices", nlohmann::json::array()},
                        {"usage", {{"prompt_tokens", prompt_tokens}, {"completion_tokens", completion_tokens}}}}
      .dump();
}

}  // namespace folio::test
