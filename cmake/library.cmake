# libpdnn: a C++ and C library around the core, to install. Nothing of it is compiled for Python alone.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Before 1.0 a minor version may change the binary interface.
set(soversion ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(soversion 0.${PROJECT_VERSION_MINOR})
endif()
# A wheel takes what is installed by default: with the Python modules, `cmake --install … --component library`.
set(apart "")
if(PDNN_BINDINGS)
  set(apart EXCLUDE_FROM_ALL)
endif()

add_library(pdnn_facade OBJECT ${library_sources})
target_link_libraries(pdnn_facade PUBLIC pdnn_core)
target_compile_definitions(pdnn_facade PRIVATE PDNN_VERSION="${PROJECT_VERSION}")
target_compile_options(pdnn_facade PRIVATE -O1)  # it passes things on

# What a program in C that is linked with libpdnn.a needs beside threads: the library of C++.
set(runtime ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER runtime INCLUDE REGEX "^(stdc[+][+]|c[+][+]|m)$")
list(REMOVE_DUPLICATES runtime)
list(TRANSFORM runtime PREPEND "-l")
list(JOIN runtime " " runtime)

file(RELATIVE_PATH headers /${CMAKE_INSTALL_LIBDIR} /${CMAKE_INSTALL_INCLUDEDIR})

# pdnn_library(TARGET OUTPUT-NAME EXPORT-NAME TARGETS OBJECTS…): a shared library of these objects and the core, which
# CMake's file TARGETS names to users.
function(pdnn_library target name export targets)
  add_library(${target} SHARED ${ARGN})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:pdnn_core>)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME ${export} VERSION ${PROJECT_VERSION}
                                             SOVERSION ${soversion} LINKER_LANGUAGE CXX)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                                 $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/cpp>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  if(CMAKE_SYSTEM_NAME STREQUAL Linux)
    set(map ${CMAKE_CURRENT_SOURCE_DIR}/cpp/pdnn/library/exports.map)
    target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--gc-sections)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
  endif()
  install(TARGETS ${target} EXPORT ${targets} COMPONENT library ${apart}
          LIBRARY NAMELINK_COMPONENT library)
  set(library ${name})
  configure_file(cmake/pdnn.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library
          ${apart})
endfunction()

pdnn_library(pdnn pdnn core pdnn-targets $<TARGET_OBJECTS:pdnn_facade>)

# The same with ranks of MPI, in the place of libpdnn: what MPI's part needs of the core is hidden there.
if(PDNN_MPI)
  pdnn_library(pdnn_mpi pdnn_mpi mpi pdnn-mpi-targets $<TARGET_OBJECTS:pdnn_facade> ${mpi_sources} ${mpi_library_source})
  target_link_libraries(pdnn_mpi PUBLIC MPI::MPI_CXX)
  target_compile_definitions(pdnn_mpi PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_compile_options(pdnn_mpi PRIVATE -O1)
endif()

add_library(pdnn_static STATIC $<TARGET_OBJECTS:pdnn_facade> $<TARGET_OBJECTS:pdnn_core>)
set_target_properties(pdnn_static PROPERTIES OUTPUT_NAME pdnn EXPORT_NAME core_static)
target_include_directories(pdnn_static INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(pdnn_static INTERFACE cxx_std_20)
target_link_libraries(pdnn_static INTERFACE Threads::Threads)
install(TARGETS pdnn_static EXPORT pdnn-targets COMPONENT library ${apart})

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/pdnn)
install(EXPORT pdnn-targets NAMESPACE pdnn:: DESTINATION ${package} COMPONENT library ${apart})
if(PDNN_MPI)
  install(EXPORT pdnn-mpi-targets NAMESPACE pdnn:: DESTINATION ${package} COMPONENT library ${apart})
endif()
configure_package_config_file(cmake/pdnn-config.cmake.in pdnn-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(pdnn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pdnn-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/pdnn-config-version.cmake
        DESTINATION ${package} COMPONENT library ${apart})
file(GLOB public_headers CONFIGURE_DEPENDS cpp/pdnn/*.h cpp/pdnn/*.hpp)
if(NOT PDNN_MPI)
  list(REMOVE_ITEM public_headers ${CMAKE_CURRENT_SOURCE_DIR}/cpp/pdnn/mpi.hpp)
endif()
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pdnn COMPONENT library ${apart})
