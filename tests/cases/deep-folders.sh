#!/usr/bin/env bash
# A user makes 3,000 folders inside one another below a managed folder. The daemon of root goes on. Needs root.
source "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 0; }
chmod 755 "$work"
{ hosts 114 1; echo "cobs: {n1/t: {kind: file-tree, content: {root: $work/out, files: {w: {folder: true, whole: true, owner: nobody}, w/a: {content: \"a\\n\", owner: nobody}}}}}"; } > model.yaml
generate; start n1; converge
# The daemon removes strangers' folders at once, so they are made elsewhere and moved.
install -d -o nobody "$work/scratch"
as_nobody perl -e '
    chdir $ARGV[0] or die "chdir: $!";
    for (1 .. 3000) { mkdir "d" or die "mkdir: $!"; chdir "d" or die "chdir: $!" }
    open(my $leaf, ">", "leaf") or die "leaf: $!";' "$work/scratch" || wrong "the folders can't be made"
as_nobody mv "$work/scratch/d" "$work/out/w/d" || wrong "the folders can't be moved"
soon test ! -e out/w/d
kill -0 "$(cat n1.pid)" 2>/dev/null || wrong "the daemon has ended: $(tail -n 3 n1.log)"
soon cobctl status || cobctl status >&2
