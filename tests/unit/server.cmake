# The parts of the server that need no socket.
fencekv_test_family(server_unit
  SOURCES machine_memory_test.cpp server_test.cpp storage_watch_test.cpp
  LIBRARIES fencekv_server)
target_compile_definitions(fencekv_server_unit_tests
  PRIVATE FENCEKV_PROTOCOL_MD="${PROJECT_SOURCE_DIR}/server/PROTOCOL.md")
