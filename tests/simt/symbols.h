// Source lines of code addresses, by binutils' addr2line over this program: made when a text needs them, never while a
// kernel runs. The program is linked with -no-pie, so that addresses are those of its file.
#pragma once
#include <string>
#include <vector>

namespace folio::simt {

// A path from the source folder of what compilers give as "/where/it/is/tests/x.cc" and, with ccache, as
// "../tests/x.cc".
std::string from_source_folder(const std::string& path);

// "engine/kernels/cuda/x.cu:12" for return addresses of calls: the innermost line of inlined code that is not in
// device_twin.h.
std::vector<std::string> source_lines(const std::vector<const void*>& sites);
std::string source_line(const void* site);

}  // namespace folio::simt
