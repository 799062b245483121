#include "tests/server/http/raw_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace folio::test {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

RawClient::RawClient(int port, int receive_buffer) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  const timeval patience{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

RawClient::~RawClient() {
  close();
}

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;  // the server closed: what the test reads tells why
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void RawClient::half_close() {
  shutdown(fd_, SHUT_WR);
}

void RawClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::reset() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

bool RawClient::receive() {
  char bytes[4096];
  const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
  if (count > 0) inbox_.append(bytes, static_cast<std::size_t>(count));
  return count > 0;
}

bool RawClient::at_end() {
  if (!inbox_.empty()) return false;
  char byte = 0;
  return recv(fd_, &byte, 1, 0) == 0;
}

std::string RawClient::read_until(std::string_view mark) {
  while (inbox_.find(mark) == std::string::npos && receive()) {
  }
  const std::size_t at = inbox_.find(mark);
  const std::size_t length = at == std::string::npos ? inbox_.size() : at + mark.size();
  std::string out = inbox_.substr(0, length);
  inbox_.erase(0, length);
  return out;
}

RawResponse RawClient::read(bool has_body) {
  RawResponse out;
  out.head = read_until("\r\n\r\n");
  if (!out.head.ends_with("\r\n\r\n") || !out.head.starts_with("HTTP/1.1 ")) return out;
  const int status = std::stoi(out.head.substr(9, 3));
  std::size_t line = out.head.find("\r\n") + 2;
  while (line + 2 < out.head.size()) {
    const std::size_t end = out.head.find("\r\n", line);
    const std::string field = out.head.substr(line, end - line);
    const std::size_t colon = field.find(": ");
    EXPECT_NE(colon, std::string::npos) << field;
    EXPECT_TRUE(out.fields.emplace(lower(field.substr(0, colon)), field.substr(colon + 2)).second) << field;
    line = end + 2;
  }
  if (!has_body || status == 100 || status == 204) {
    out.status = status;
    return out;
  }
  out.chunked = out.fields.contains("transfer-encoding");
  if (!out.chunked) {
    const std::size_t length = out.fields.contains("content-length") ? std::stoul(out.fields["content-length"])
                                                                     : std::string::npos;  // to the end
    while (inbox_.size() < length && receive()) {
    }
    if (length != std::string::npos && inbox_.size() < length) return out;
    out.body = inbox_.substr(0, length);
    inbox_.erase(0, out.body.size());
    out.status = status;
    return out;
  }
  while (true) {
    const std::string size_line = read_until("\r\n");
    if (!size_line.ends_with("\r\n")) return out;
    const std::size_t size = std::stoul(size_line, nullptr, 16);
    while (inbox_.size() < size + 2 && receive()) {
    }
    if (inbox_.size() < size + 2) return out;
    EXPECT_EQ(inbox_.substr(size, 2), "\r\n");
    out.body += inbox_.substr(0, size);
    inbox_.erase(0, size + 2);
    if (size > 0) continue;
    out.status = status;
    return out;
  }
}

std::string post(std::string_view path, std::string_view body, std::string_view fields) {
  std::string out = "POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n";
  out.append(fields).append("Content-Length: ").append(std::to_string(body.size())).append("\r\n\r\n").append(body);
  return out;
}

std::string get(std::string_view path, std::string_view fields, std::string_view method) {
  return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(fields) + "\r\n";
}

std::vector<std::string> events_of(std::string_view stream) {
  std::vector<std::string> out;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << stream;
    if (end == std::string_view::npos) break;
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (event.starts_with(":")) continue;  // a comment
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    out.emplace_back(event.substr(std::min<std::size_t>(6, event.size())));
  }
  return out;
}

}  // namespace folio::test
