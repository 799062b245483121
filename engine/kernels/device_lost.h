// A device that is gone for this process: no step, nor anything else, will work on it again.
#pragma once
#include <stdexcept>

namespace folio {

// Its message says what was being done and what the driver said. The engine ends all requests and takes no more.
class DeviceLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace folio
