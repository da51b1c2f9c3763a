#!/usr/bin/env bash
# A package that an administrator has put on hold is not removed.
source "$(dirname "$0")/common.sh"
package ccheld 1.0
dpkg -i "$repository/ccheld_1.0_all.deb" > /dev/null 2>&1; apt-mark hold ccheld > /dev/null
put <<< "  h1/p: {kind: package, content: {name: ccheld, repository: $repository, trusted: true}}"; go
gone
installed ccheld || wrong "the package on hold is gone"
apt-mark unhold ccheld > /dev/null 2>&1; dpkg -P ccheld > /dev/null 2>&1
