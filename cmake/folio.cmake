# What every target of folio is built with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g1 -DNDEBUG")

find_program(FOLIO_CCACHE ccache)
if(FOLIO_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FOLIO_CCACHE})
endif()

find_package(Threads REQUIRED)

add_library(folio_flags INTERFACE)
target_include_directories(folio_flags INTERFACE ${PROJECT_SOURCE_DIR})
# -Wno-restrict: g++ 12 gives false alarms for string + "literal".
# x86-64-v2 for everything but the kernel files of a level (which add their own features and are chosen at run time),
# and no contraction: the numerics contract says where an FMA stands.
# For C++ alone: nvcc has words of its own (cmake/cuda.cmake).
set(flags -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    -Woverloaded-virtual -Wno-restrict -march=x86-64-v2 -ffp-contract=off)
target_compile_options(folio_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
target_link_libraries(folio_flags INTERFACE Threads::Threads)
if(FOLIO_SANITIZE)
  # -Wno-*: the sanitizers' instrumentation makes these two see paths that do not exist.
  target_compile_options(folio_flags INTERFACE -fsanitize=${FOLIO_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -Wno-maybe-uninitialized -Wno-stringop-overflow)
  target_link_options(folio_flags INTERFACE -fsanitize=${FOLIO_SANITIZE})
endif()

if(FOLIO_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "FOLIO_FUZZ=ON wants Clang: -DCMAKE_CXX_COMPILER=clang++-16, with Debian's libclang-rt-16-dev")
  endif()
  # Coverage for libFuzzer in all of folio's code; -Wno-*: the warning list is g++'s, and so are some parameters.
  target_compile_options(folio_flags INTERFACE -fsanitize=fuzzer-no-link -Wno-unknown-warning-option
    -Wno-unused-command-line-argument)
endif()

# folio_library(NAME SOURCES a.cc ... LINK other ...): one folder of the product.
function(folio_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC folio_flags ${ARG_LINK})
endfunction()

# folio_test(NAME SOURCES a_test.cc ... LINK lib ... [LABELS l ...]): one GoogleTest program, one ctest entry.
# Tests run with the source folder as working directory, so that tests/reference is found from anywhere.
function(folio_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_LABELS MATCHES "unit|grpc|model|e2e|slow")
    list(APPEND ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE folio_flags ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
