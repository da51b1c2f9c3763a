#!/usr/bin/env bash
# Files that another user planted with an ACL or with setuid do not keep these rights once they are managed. Needs root.
source "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 0; }
command -v setfacl >/dev/null || { echo "skipped: setfacl is not installed"; exit 0; }
chmod 755 "$work"; mkdir -m 777 out
as_nobody sh -c "echo x > out/s640; echo x > out/nomode; echo x > out/prog; chmod 6777 out/nomode out/prog"
setfacl -m u:nobody:rw out/s640 || { echo "skipped: no ACLs here"; exit 0; }
printf '#!/bin/sh\n' > prog; chmod 755 prog
{ hosts 115 1; echo "cobs: {n1/t: {kind: file-tree, content: {root: $work/out, files: {
  s640: {content: \"secret\\n\", mode: '0640', owner: root, group: root}, nomode: {content: \"x\\n\", owner: root}, prog: {from: ./prog, owner: root}}}}}"; } > model.yaml
generate; start n1; converge
! getfacl -cp out/s640 2>/dev/null | grep -q user:nobody || wrong "the ACL is still there"
as_nobody cat out/s640 > /dev/null 2>&1 && wrong "nobody can read a file of mode 0640 of root"
for file in nomode prog; do
    [ ! -u "out/$file" ] && [ ! -g "out/$file" ] || wrong "out/$file of root is setuid or setgid: $(stat -c %a "out/$file")"
done
