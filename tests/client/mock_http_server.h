// A server that does to its clients what a test wants, byte by byte: a thread for each connection.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace folio::test {

struct MockRequest {
  std::string line;  // "POST /v1/completions HTTP/1.1"
  std::string head;  // with the line
  std::string body;
  int connection = 0;  // its number, from 0
};

// The server's end of one connection.
class MockPeer {
 public:
  explicit MockPeer(int fd) : fd_(fd) {}
  void send(std::string_view bytes);
  void close();
  void reset();        // the client sees a broken connection
  bool wait_closed();  // until the client ends the connection; false after ten seconds
  bool is_open() const { return fd_ >= 0; }

 private:
  friend class MockHttpServer;
  int fd_ = -1;
};

class MockHttpServer {
 public:
  using Answer = std::function<void(const MockRequest& request, MockPeer& peer)>;

  enum class When { kWholeRequest, kHead };
  // `when` it answers; at the head, the request is without its body.
  explicit MockHttpServer(Answer answer, When when = When::kWholeRequest);
  ~MockHttpServer();  // ends the connections
  MockHttpServer(const MockHttpServer&) = delete;
  MockHttpServer& operator=(const MockHttpServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int num_connections() const { return num_connections_.load(); }
  int num_requests() const { return num_requests_.load(); }

 private:
  void accept_all();
  void serve(int fd, int number);

  const Answer answer_;
  const When when_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> num_connections_{0}, num_requests_{0};
  std::mutex mutex_;
  std::vector<int> live_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Whole responses, and the head of a stream whose body is in chunks.
std::string response(int status, std::string_view content_type, std::string_view body);
inline constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
std::string chunk(std::string_view bytes);
std::string event(std::string_view data);  // as one chunk
// The data of an event with text; `reason` empty: no finish_reason yet.
std::string text_data(std::string_view text, std::string_view reason = "", int index = 0);
std::string usage_data(int prompt_tokens, int completion_tokens);

}  // namespace folio::test
