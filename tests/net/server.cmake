# The real server over raw sockets. The slowest tests wait out the server's deadlines.
fencekv_test_family(server_net
  SOURCES backup_test.cpp frozen_clock_test.cpp server_test.cpp stall_test.cpp waiting_test.cpp
  LIBRARIES fencekv_server fencekv::resp fencekv::engine
  TIMEOUT 180)
target_compile_definitions(fencekv_server_net_tests
  PRIVATE FENCEKV_SERVER_PATH="$<TARGET_FILE:fencekv-server>")
add_dependencies(fencekv_server_net_tests fencekv-server)

# Preloaded into a server: its fsync waits as long as a file is there.
add_library(fencekv_stalling_disk MODULE stalling_disk.cpp)
target_link_libraries(fencekv_stalling_disk PRIVATE fencekv_compile_options ${CMAKE_DL_LIBS})
target_compile_definitions(fencekv_server_net_tests
  PRIVATE FENCEKV_STALLING_DISK="$<TARGET_FILE:fencekv_stalling_disk>")
add_dependencies(fencekv_server_net_tests fencekv_stalling_disk)
