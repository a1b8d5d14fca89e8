# SPDX-License-Identifier: BSD-2-Clause
# What Debian's policy wants of the files of a package (12.1, 12.7): manual pages and the changelog are
# compressed. CPack runs this when it has collected the files, below a folder for each component.
find_program(GZIP gzip REQUIRED)
file(GLOB_RECURSE compressed "${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/*.[1-9]")
file(GLOB changelogs "${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/doc/*/CHANGELOG.md")
foreach(each IN LISTS changelogs)
    cmake_path(REPLACE_FILENAME each changelog OUTPUT_VARIABLE renamed)
    file(RENAME "${each}" "${renamed}")
    list(APPEND compressed "${renamed}")
endforeach()
if(NOT compressed)
    message(FATAL_ERROR "no manual pages below ${CPACK_TEMPORARY_DIRECTORY}")
endif()
execute_process(COMMAND ${GZIP} -9n ${compressed} COMMAND_ERROR_IS_FATAL ANY)
