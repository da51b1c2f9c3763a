#!/usr/bin/env bash
# A part of the store of files is missing: the daemon must not start empty and overwrite users' lines.
source "$(dirname "$0")/common.sh"
model() { hosts 113 1; echo "cobs: {n1/t: {kind: file-tree, content: {root: $work/out, files: {shared.conf: {content: \"l1\\nl2 $1\\nl3\\nl4\\nl5\\n\", manage: merge}}}}}"; }
model one > model.yaml; generate; start n1; converge
sed -i 's/^l5$/l5 user/' out/shared.conf
model two > model.yaml; generate; converge
says "l5 user" out/shared.conf
# What is recorded comes into the repository when nothing else is to be done.
soon test -e n1/state/files/store.git/refs/heads/main
end KILL n1
cp -a n1/state before
for part in files files/store.git files/store.git/refs/heads/main files/store.git/objects; do
    rm -rf n1/state; cp -a before n1/state; rm -rf "n1/state/$part"
    echo "l5 user" > expected
    timeout 20 cobd run --config n1.toml > lost.log 2>&1
    [ $? != 124 ] || wrong "the daemon runs without $part"
    says "store" lost.log
    says "l5 user" out/shared.conf
done
rm -rf n1/state; mv before n1/state
