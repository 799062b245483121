// folio-client plan: how much memory K and V take, how many users fit, and what a live server says to it.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "client/common.h"
#include "client/plan/memory_plan.h"

namespace folio::client {

struct PlanOptions {
  std::string model;   // GGUF file; empty: plain numbers, or a server alone
  KvShape shape;       // 0: not given
  std::string dtype;   // empty: the server's, or f16
  int block_size = 0;  // 0: the server's, or 16
  Crowd crowd;
  std::int64_t context = 0;            // 0: the model's or the server's
  std::int64_t prompt_tokens = 0;      // 0: all of the context
  std::string memory, weights;         // sizes; empty: not given
  std::optional<std::string> measure;  // the control address of a server
  Connection connection;               // how to reach it
  bool json = false;

  void add_to(CLI::App& app);
};

// Throws UsageError for flags that do not fit, CommandError for a server, another std::runtime_error naming the file.
int run_plan(const PlanOptions& options);

}  // namespace folio::client
