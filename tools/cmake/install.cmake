# What `cmake --install` puts where, so that find_package(fencekv) works: the targets fencekv::engine
# and fencekv::client, with what they stand on (fencekv::base, fencekv::resp), and the programs.
include(CMakePackageConfigHelpers)

set(fencekv_package ${CMAKE_INSTALL_LIBDIR}/cmake/fencekv)

install(TARGETS fencekv_base fencekv_engine fencekv_resp fencekv_client
        EXPORT fencekvTargets FILE_SET HEADERS)
install(TARGETS fencekv-server fencekv-admin)

install(EXPORT fencekvTargets NAMESPACE fencekv:: DESTINATION ${fencekv_package})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/fencekvConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/fencekvConfig.cmake
  INSTALL_DESTINATION ${fencekv_package})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/fencekvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/fencekvConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/fencekvConfigVersion.cmake
        DESTINATION ${fencekv_package})
