// Fuzz target: any byte string is a model file. The reader takes it or refuses it with an exception; what it took can
// be read to its end, and the tokenizer and the model's configuration are made of it or refused in the same way.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/model/decoder_config.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"

namespace folio {
namespace {

// The input as a file, in memory.
std::string file_of(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("fuzz.gguf", MFD_CLOEXEC);
  fuzz_require(file >= 0 && ::ftruncate(file, 0) == 0 && ::pwrite(file, data, size, 0) == static_cast<ssize_t>(size),
               "a file in memory");
  return "/proc/self/fd/" + std::to_string(file);
}

volatile unsigned touched = 0;  // so that no read is left out

void touch(const void* begin, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(begin);
  for (std::size_t i = 0; i < size; ++i) touched = touched + bytes[i];
}

template <class Look>
void look_up(const Look& look) {
  try {
    look();
  } catch (const GgufError&) {  // another type than asked for
  }
}

void read_array(const GgufArray& array) {
  touch(array.bytes.data(), array.bytes.size());
  for (const std::string_view s : array.strings) touch(s.data(), s.size());
  if (array.size == 0) return;
  for (const std::uint64_t i : {std::uint64_t{0}, array.size / 2, array.size - 1}) {
    static_cast<void>(array.int_at(i));
    static_cast<void>(array.float_at(i));
  }
}

void read_metadata(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    fuzz_require(file.has(key), "a key is found");
    look_up([&] { static_cast<void>(file.find_uint(key)); });
    look_up([&] { static_cast<void>(file.find_int(key)); });
    look_up([&] { static_cast<void>(file.find_float(key)); });
    look_up([&] { static_cast<void>(file.find_bool(key)); });
    look_up([&] {
      if (const auto text = file.find_string(key)) touch(text->data(), text->size());
    });
    look_up([&] {
      if (const GgufArray* array = file.find_array(key)) read_array(*array);
    });
  }
}

void read_tensors(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    fuzz_require(file.find_tensor(tensor.name) == &tensor, "a tensor is found");
    fuzz_require(!tensor.shape.empty() && tensor.shape.size() <= 4, "one to four dimensions");
    fuzz_require(reinterpret_cast<std::uintptr_t>(tensor.data.data()) % 8 == 0, "aligned data");
    static_cast<void>(tensor.row_length() * tensor.num_rows());
    touch(tensor.data.data(), tensor.data.size());
    file.give_back(tensor);
  }
}

void make_tokenizer_of(const GgufFile& file) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(file);
  std::vector<TokenId> ids;
  tokenizer->encode("Hello,  w\xC3\xB6rld 123\n<s></s>\xFF", true, ids);
  for (const TokenId id : ids) {
    fuzz_require(id >= 0 && id < tokenizer->vocab_size(), "an id of the vocabulary");
    const std::string_view piece = tokenizer->piece(id);
    touch(piece.data(), piece.size());
  }
}

}  // namespace
}  // namespace folio

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace folio;
  try {
    const GgufFile file(file_of(data, size));
    read_metadata(file);
    read_tensors(file);
    try {
      make_tokenizer_of(file);
    } catch (const std::exception&) {  // refused
    }
    static_cast<void>(read_config(file));
  } catch (const std::exception&) {  // refused
  }
  return 0;
}
