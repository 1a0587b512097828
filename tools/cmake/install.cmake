# What `cmake --install` puts where, so that find_package(fencekv) works.
