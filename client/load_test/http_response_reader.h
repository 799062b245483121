// The bytes of one HTTP/1.x response, as they come: head, then the body in pieces, however its end is told (a length,
// chunks, the end of the connection). No socket, no time. Beast's parser does the work.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace folio::client {

struct HttpHead {
  int status = 0;            // 0: none came
  std::string content_type;  // without parameters, in small letters
  std::string content_encoding;
};

class HttpResponseReader {
 public:
  HttpResponseReader();
  ~HttpResponseReader();

  // REQUIRES no failure, not done.
  void append(std::string_view bytes);
  // The peer sends no more. REQUIRES the same.
  void append_end();

  bool has_head() const { return head_.status != 0; }
  const HttpHead& head() const { return head_; }
  std::string take_body();  // what came of it since the last time, without the framing
  bool is_done() const;
  // Done, and the connection can carry another request.
  bool keeps_connection() const;
  // Not empty: why this is not, or will never be, a whole response.
  const std::string& failure() const { return failure_; }

 private:
  struct Beast;

  void read_head();

  std::unique_ptr<Beast> beast_;
  std::string inbox_;  // what the parser wants to see more of first
  HttpHead head_;
  std::string failure_;
};

}  // namespace folio::client
