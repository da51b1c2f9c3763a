#!/usr/bin/env bash
# A package that leaves does not take others with it, and an object whose package is gone is not present.
source "$(dirname "$0")/common.sh"
package cclib 1.0; package cctool 1.0 "Depends: cclib\n"
put <<< "  h1/lib: {kind: package, content: {name: cclib, repository: $repository, trusted: true}}"; go
dpkg -i "$repository/cctool_1.0_all.deb" > /dev/null 2>&1
gone
installed cctool || wrong "a package of somebody else was removed with the one that left"
dpkg -P cctool cclib > /dev/null 2>&1
put <<YAML
  h1/lib: {kind: package, content: {name: cclib, repository: $repository, trusted: true}}
  h1/tool: {kind: package, content: {name: cctool, repository: $repository, trusted: true}}
YAML
go
put <<< "  h1/tool: {kind: package, content: {name: cctool, repository: $repository, trusted: true}}"
switch latest 60s
installed cctool || [ $status != 0 ] || wrong "present, and the package is not installed"
gone; dpkg -P cctool cclib > /dev/null 2>&1
