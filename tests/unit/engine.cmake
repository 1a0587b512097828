# The engine's insides: see tests/README.md.
find_package(PkgConfig REQUIRED)
find_package(RocksDB 7.8 REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
fencekv_test_family(engine_unit
  SOURCES
    backup_test.cpp
    boots_test.cpp
    committer_test.cpp
    committer_waiting_test.cpp
    counters_off_test.cpp
    database_options_test.cpp
    directory_test.cpp
    fence_cache_test.cpp
    known_keys_test.cpp
    memory_shares_test.cpp
    place_filter_test.cpp
    position_file_test.cpp
    puts_test.cpp
    read_cache_test.cpp
    reclaimer_test.cpp
    record_test.cpp
    repair_test.cpp
    result_test.cpp
    rules_test.cpp
    scrubber_test.cpp
    sessions_test.cpp
    shard_count_test.cpp
    space_watch_test.cpp
    stall_test.cpp
    salvage_test.cpp
    succession_test.cpp
  LIBRARIES fencekv::engine rapidcheck PkgConfig::xxhash RocksDB::rocksdb-shared)
target_compile_definitions(fencekv_engine_unit_tests
  PRIVATE FENCEKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
