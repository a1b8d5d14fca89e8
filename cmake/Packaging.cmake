# SPDX-License-Identifier: BSD-2-Clause
# What is installed beside the programs, and the Debian packages (`make package`).
include(CMakePackageConfigHelpers)

set(packaging ${PROJECT_SOURCE_DIR}/packaging)
set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/softhca)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/softhca)

configure_file(${PROJECT_SOURCE_DIR}/man/softhca.1 ${PROJECT_BINARY_DIR}/man/softhca.1 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/man/softhca.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT softhca)
configure_file(${PROJECT_SOURCE_DIR}/man/heddle.1 ${PROJECT_BINARY_DIR}/man/heddle.1 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/man/heddle.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT heddle)
configure_file(${PROJECT_SOURCE_DIR}/man/fi_heddle.7 ${PROJECT_BINARY_DIR}/man/fi_heddle.7 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/man/fi_heddle.7
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT heddle)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/heddle RENAME copyright
    COMPONENT heddle)
install(FILES docs/options.md docs/endpoints.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/heddle
    COMPONENT heddle)
install(FILES ${PROJECT_SOURCE_DIR}/completions/softhca.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME softhca
    COMPONENT softhca)
install(FILES ${PROJECT_SOURCE_DIR}/completions/heddle.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME heddle
    COMPONENT heddle)
install(FILES ${PROJECT_SOURCE_DIR}/completions/_softhca
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT softhca)
install(FILES README.md CHANGELOG.md DESTINATION ${doc_dir} COMPONENT softhca)
install(FILES LICENSE DESTINATION ${doc_dir} RENAME copyright COMPONENT softhca)

# Paths in the .pc file are relative to its own place, so that the tree can be moved.
file(RELATIVE_PATH prefix_from_pc
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${packaging}/softhca.pc.in ${PROJECT_BINARY_DIR}/packaging/softhca.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/packaging/softhca.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT softhca)
configure_file(${packaging}/heddle.pc.in ${PROJECT_BINARY_DIR}/packaging/heddle.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/packaging/heddle.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT heddle)

configure_package_config_file(${packaging}/softhcaConfig.cmake.in
    ${PROJECT_BINARY_DIR}/packaging/softhcaConfig.cmake
    INSTALL_DESTINATION ${cmake_dir}
    PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/packaging/softhcaConfigVersion.cmake
    COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/packaging/softhcaConfig.cmake
    ${PROJECT_BINARY_DIR}/packaging/softhcaConfigVersion.cmake
    DESTINATION ${cmake_dir} COMPONENT softhca)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME softhca)
set(CPACK_PACKAGE_VENDOR "The Heddle authors")
set(CPACK_PACKAGE_CONTACT "The Heddle authors <heddle@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "software ConnectX host channel adapter in user space")
set(CPACK_PACKAGE_DESCRIPTION
"softhca gives unmodified verbs programs an mlx5 InfiniBand device on a machine
that has none: no hardware, no kernel module, no root. It sits beneath libibverbs
and libmlx5 at the kernel interface and offers RC, UC, UD and XRC transports,
shared receive queues, thread domains and mlx5 direct verbs between the processes
of one machine. It models function, not time.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL softhca heddle)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_NAME softhca)
set(CPACK_DEBIAN_SOFTHCA_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_SOFTHCA_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_SHLIBDEPS ON)
# The driver that programs load; perftest and the others are what to try first.
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_RECOMMENDS "ibverbs-providers")
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_SUGGESTS "ibverbs-utils, perftest, ucx-utils, rdma-core")
set(CPACK_DEBIAN_HEDDLE_PACKAGE_NAME heddle)
set(CPACK_DEBIAN_HEDDLE_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_HEDDLE_PACKAGE_SECTION net)
set(CPACK_COMPONENT_HEDDLE_DESCRIPTION
"libfabric provider over InfiniBand verbs with scalable endpoints
heddle lets unmodified MPI programs choose how much of an InfiniBand or RoCE
adapter each thread has for itself. It is a provider for libfabric, a C++ library
of scalable endpoints with headers, and a command that shows what they take.")
set(CPACK_DEBIAN_HEDDLE_PACKAGE_SHLIBDEPS ON)
# What loads the provider, what the report is drawn with, and a device to try it on.
set(CPACK_DEBIAN_HEDDLE_PACKAGE_RECOMMENDS "libfabric1, python3-matplotlib")
set(CPACK_DEBIAN_HEDDLE_PACKAGE_SUGGESTS "softhca, libfabric-bin, mpich, libibverbs-dev, libhwloc-dev")
include(CPack)
