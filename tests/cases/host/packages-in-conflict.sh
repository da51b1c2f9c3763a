#!/usr/bin/env bash
# Two packages that exclude each other are not both present.
source "$(dirname "$0")/common.sh"
package ccmta-a 1.0 "Provides: ccmta\nConflicts: ccmta\n"; package ccmta-b 1.0 "Provides: ccmta\nConflicts: ccmta\n"
put <<YAML
  h1/a: {kind: package, content: {name: ccmta-a, repository: $repository, trusted: true}}
  h1/b: {kind: package, content: {name: ccmta-b, repository: $repository, trusted: true}}
YAML
switch latest 60s
[ $status != 0 ] || wrong "converged, and only one of the two can be installed"
gone; dpkg -P ccmta-a ccmta-b > /dev/null 2>&1
