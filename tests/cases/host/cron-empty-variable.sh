#!/usr/bin/env bash
# An empty variable in a cron file is quoted, so that cron does not ignore the whole file.
source "$(dirname "$0")/common.sh"
put <<'YAML'
  h1/job: {kind: cron, content: {name: cobcase, schedule: "* * * * *", command: "date > /tmp/cobcase-ran", env: {MAILTO: "", NAME: "a b", QUOTE: "it's"}}}
YAML
go
grep -v '^#' /etc/cron.d/cobcase > cron.out
says 'MAILTO=""' cron.out
lacks 'MAILTO= ' cron.out
# cron itself reads it.
rm -f /tmp/cobcase-ran
systemctl start cron
PATIENCE=90 soon test -e /tmp/cobcase-ran
gone; rm -f /tmp/cobcase-ran
for content in 'env: {A: "x\ny"}, command: "true"' "command: \"$(printf 'x%.0s' {1..1200})\""; do
    put <<< "  h1/job: {kind: cron, content: {name: cobcase, schedule: '* * * * *', $content}}"
    [ $accepted = no ] || { switch latest 20s; [ $status != 0 ] || wrong "present, and cron ignores the file"; }
done
gone
