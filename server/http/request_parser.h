// The bytes of one HTTP/1.x request, as they come. A pure function of the bytes: no socket, no time. Beast's parser
// does the work; what it would let pass (an unknown transfer coding, no Host) is refused here.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "server/http/http_message.h"
#include "server/http/http_options.h"

namespace folio {

class RequestParser {
 public:
  explicit RequestParser(const HttpLimits& limits);
  ~RequestParser();

  // Takes what it can of `bytes` and says how many that were; of the rest it wants to see more first. Stops after the
  // header, so that the caller can look at it. REQUIRES no refusal, not done.
  std::size_t put(std::string_view bytes);
  // The request will never be one: answer this and close.
  const std::optional<HttpResponse>& refusal() const { return refusal_; }
  bool head_done() const { return head_done_; }
  bool done() const;
  std::size_t num_body_bytes() const;  // so far

  const HttpRequest& head() const { return request_; }  // REQUIRES head_done; without its body
  HttpRequest take();                                   // REQUIRES done

 private:
  struct Beast;

  std::size_t put_all(std::string_view bytes);
  void read_head();
  void refuse(int status, std::string_view message);
  void refuse_long_header();

  const HttpLimits limits_;
  std::unique_ptr<Beast> beast_;
  HttpRequest request_;
  std::optional<HttpResponse> refusal_;
  std::size_t num_head_bytes_ = 0;
  bool head_done_ = false;
};

}  // namespace folio
