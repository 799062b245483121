# The CUDA backend: NVIDIA's toolkit, 12.0 or later, not from Debian (its packages are older). sm_80 and sm_90 as machine
# code, and PTX for what comes later.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
if(FOLIO_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${FOLIO_CCACHE})
endif()
enable_language(CUDA)
# Debian's CMake does not know that this compiler has C++20, which targets take over from CMAKE_CXX_STANDARD.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -DNDEBUG -lineinfo")
find_package(CUDAToolkit 12.0 REQUIRED)

# folio_cuda_library(NAME SOURCES a.cu ... LINK other ...): kernels and what starts them, as a static library whose code
# may go into a shared one.
# The gate: a kernel that spills registers or uses local memory is an error.
function(folio_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC CUDA::cudart ${ARG_LINK})
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-warn-spills,-warn-lmem-usage -Werror=all-warnings -Xcompiler=-Wall,-Wextra>)
endfunction()
