# SPDX-License-Identifier: BSD-2-Clause
# What is installed beside the programs, and the Debian packages (`make package`).
include(CMakePackageConfigHelpers)

set(packaging ${PROJECT_SOURCE_DIR}/packaging)
# Not in the multiarch folder: projects without languages (NONE) do not look there.
set(cmake_dir ${CMAKE_INSTALL_DATADIR}/cmake/softhca)

# The version is not in the sources of the manual, which `man -l` shows as they are.
function(heddle_install_manual name section component)
    set(source ${PROJECT_SOURCE_DIR}/man/${name}.${section})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(READ ${source} text)
    string(REGEX REPLACE "(\n\\.TH [^\n]*) \"${component}\"" "\\1 \"${component} ${PROJECT_VERSION}\""
        text "${text}")
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/man/${name}.${section} CONTENT "${text}" @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/man/${name}.${section}
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
endfunction()
heddle_install_manual(softhca 1 softhca)
heddle_install_manual(heddle 1 heddle)
heddle_install_manual(fi_heddle 7 heddle)

foreach(component softhca heddle)
    set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/${component})
    install(FILES README.md CHANGELOG.md SECURITY.md DESTINATION ${doc_dir} COMPONENT ${component})
    install(FILES LICENSE DESTINATION ${doc_dir} RENAME copyright COMPONENT ${component})
    install(FILES ${PROJECT_SOURCE_DIR}/completions/${component}.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${component}
        COMPONENT ${component})
    install(FILES ${PROJECT_SOURCE_DIR}/completions/_${component}
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT ${component})
endforeach()
# What users read; how to contribute is for those who have the sources. softhca's package has the
# pages of a verbs developer.
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/heddle COMPONENT heddle
    FILES_MATCHING PATTERN "*.md" PATTERN "contributing.md" EXCLUDE PATTERN "style.md" EXCLUDE)
foreach(page guide/verbs guide/ci concepts/software-device reference/softhca)
    get_filename_component(folder ${page} DIRECTORY)
    install(FILES docs/${page}.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/softhca/${folder}
        COMPONENT softhca)
endforeach()

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
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL softhca heddle)
set(CPACK_PRE_BUILD_SCRIPTS ${packaging}/debian.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_NAME softhca)
set(CPACK_DEBIAN_SOFTHCA_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_SECTION utils)
# CPack would begin the description of each package with the project's.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_DEBIAN_SOFTHCA_DESCRIPTION
"software ConnectX host channel adapter in user space
softhca gives unmodified verbs programs an mlx5 InfiniBand device on a machine
that has none: no hardware, no kernel module, no root. It sits beneath
libibverbs and libmlx5 at the kernel interface and offers RC, UC, UD and XRC
transports, shared receive queues, thread domains and mlx5 direct verbs
between the processes of one machine. It models function, not time.")
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_SHLIBDEPS ON)
# The driver that programs load; perftest and the others are what to try first.
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_RECOMMENDS "ibverbs-providers")
set(CPACK_DEBIAN_SOFTHCA_PACKAGE_SUGGESTS "ibverbs-utils, perftest, ucx-utils, rdma-core")
set(CPACK_DEBIAN_HEDDLE_PACKAGE_NAME heddle)
set(CPACK_DEBIAN_HEDDLE_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_HEDDLE_PACKAGE_SECTION net)
set(CPACK_DEBIAN_HEDDLE_DESCRIPTION
"libfabric provider over InfiniBand verbs with scalable endpoints
heddle lets unmodified MPI programs choose how much of an InfiniBand or RoCE
adapter each thread has for itself. It is a provider for libfabric, a C++
library of scalable endpoints with headers, and a command that shows what
they take.")
set(CPACK_DEBIAN_HEDDLE_PACKAGE_SHLIBDEPS ON)
# What loads the provider, what the report is drawn with, and a device to try it on.
set(CPACK_DEBIAN_HEDDLE_PACKAGE_RECOMMENDS "libfabric1, python3-matplotlib")
set(CPACK_DEBIAN_HEDDLE_PACKAGE_SUGGESTS "softhca, libfabric-bin, mpich, libibverbs-dev, libhwloc-dev")
include(CPack)
