// A client that is as wrong as a test wants: a socket, and just enough HTTP to read answers.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace folio::test {

struct RawResponse {
  int status = 0;  // 0: the connection ended before a whole response
  std::string head;
  std::map<std::string, std::string> fields;  // names in small letters
  std::string body;
  bool chunked = false;
};

class RawClient {
 public:
  // `receive_buffer`: bytes of SO_RCVBUF, 0 for the system's own.
  explicit RawClient(int port, int receive_buffer = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view bytes);
  void half_close();
  void close();
  void reset();  // the peer sees a broken connection

  // Reads block for at most ten seconds.
  RawResponse read(bool has_body = true);         // one response
  std::string read_until(std::string_view mark);  // what came up to it and with it; less at the end of the connection
  bool at_end();                                  // waits: nothing follows, and the peer closed

 private:
  bool receive();  // more bytes: false at the end

  int fd_ = -1;
  std::string inbox_;
};

// A request with a JSON body.
std::string post(std::string_view path, std::string_view body, std::string_view fields = "");
std::string get(std::string_view path, std::string_view fields = "", std::string_view method = "GET");
// The data of the events of a stream.
std::vector<std::string> events_of(std::string_view stream);

}  // namespace folio::test
