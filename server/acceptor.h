// Listening sockets of our own for a gRPC server, and the thread that takes connections from them.
//
// The library's own sockets (gRPC 1.51) are closed to all newcomers, for ever and in silence, by one connection for
// which the process has no file. Here such a connection waits until there is one; and so many connections are taken
// that some files are left for everything else.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"

namespace folio {

class Acceptor {
 public:
  // Called on the acceptor's thread; the connection's descriptor is the callee's from then on.
  using Take = std::function<void(int listening_fd, int fd)>;

  // Binds every address that "host:port" stands for (port 0: any free one, the same for all). Throws std::runtime_error
  // naming `address` and the system's reason. A port on which another process listens is never shared.
  // `silence_ms`: a connection on which bytes of ours are not acknowledged for so long is given up by the system.
  // `num_spare_files`: a connection that would leave fewer is closed at once.
  Acceptor(const std::string& address, int silence_ms, std::size_t num_spare_files);
  ~Acceptor();  // stop
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  int port() const { return port_; }
  // Once, before stop.
  void start(Take take);
  // No connection is taken after it. Again without harm.
  void stop();

 private:
  void run();
  void accept_all(int listening_fd);

  const std::size_t num_spare_files_;
  std::vector<int> sockets_;
  int wake_ = -1;  // readable: stop
  int port_ = 0;
  bool is_full_ = false;  // there was no file for the last connection
  Take take_;
  log::Limited warnings_{log::Level::kWarn};
  std::thread thread_;
};

}  // namespace folio
