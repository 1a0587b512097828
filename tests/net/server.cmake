# The real server over raw sockets. The slowest test waits out the server's deadlines.
fencekv_test_family(server_net
  SOURCES server_test.cpp
  LIBRARIES fencekv_server fencekv::resp fencekv::engine
  TIMEOUT 180)
target_compile_definitions(fencekv_server_net_tests
  PRIVATE FENCEKV_SERVER_PATH="$<TARGET_FILE:fencekv-server>")
add_dependencies(fencekv_server_net_tests fencekv-server)
