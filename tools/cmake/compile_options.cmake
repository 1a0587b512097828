# How every target of the project is compiled. Only fencekv's own targets link fencekv_compile_options;
# nothing here reaches a program that links the installed library.

option(FENCEKV_WERROR "Treat warnings as errors" OFF)
option(FENCEKV_FUZZ "Build the libFuzzer targets (clang)" OFF)
option(FENCEKV_COVERAGE "Count executed lines and branches (gcov)" OFF)
set(FENCEKV_SANITIZE "" CACHE STRING "Sanitizers for everything, as for -fsanitize=")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)

# Assertions stay on in every build type: a store that stops is better than one that continues wrongly.
foreach(type IN ITEMS RELEASE RELWITHDEBINFO MINSIZEREL)
  string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_${type} "${CMAKE_CXX_FLAGS_${type}}")
endforeach()

find_program(FENCEKV_CCACHE ccache)
if(FENCEKV_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The same file in another checkout is the same file.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${FENCEKV_CCACHE})
endif()

add_library(fencekv_compile_options INTERFACE)
target_compile_options(fencekv_compile_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wno-missing-field-initializers
  $<$<BOOL:${FENCEKV_WERROR}>:-Werror>
  $<$<BOOL:${FENCEKV_COVERAGE}>:--coverage -fno-inline>)
target_link_options(fencekv_compile_options INTERFACE $<$<BOOL:${FENCEKV_COVERAGE}>:--coverage>)

if(FENCEKV_SANITIZE)
  target_compile_options(fencekv_compile_options INTERFACE -fsanitize=${FENCEKV_SANITIZE})
  target_link_options(fencekv_compile_options INTERFACE -fsanitize=${FENCEKV_SANITIZE})
endif()
