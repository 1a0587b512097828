# The engine's insides: see tests/README.md.
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
fencekv_test_family(engine_unit
  SOURCES
    boots_test.cpp
    committer_test.cpp
    directory_test.cpp
    position_file_test.cpp
    record_test.cpp
    result_test.cpp
    rules_test.cpp
  LIBRARIES fencekv::engine rapidcheck PkgConfig::xxhash)
target_compile_definitions(fencekv_engine_unit_tests
  PRIVATE FENCEKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
