// What a failed call means for the one who typed the command: words, and an exit code.
#pragma once
#include <grpcpp/grpcpp.h>

#include <string>

#include "client/command_error.h"
#include "client/common.h"

namespace folio::client {

// The server's listener that a command speaks to.
enum class Listener { kGeneration, kControl };

struct Failure {
  int exit_code = kExitFailed;
  std::string text;  // one line or more, without the program's name and a last line end
};

// REQUIRES not OK. Says which address was tried, and what to do where nobody, or another listener, is there.
Failure explain(const grpc::Status& status, const Connection& connection, Listener listener);

// Prints it on the error output and gives the exit code.
int report(const grpc::Status& status, const Connection& connection, Listener listener);

}  // namespace folio::client
