#!/usr/bin/env bash
# The page of the hub in a real browser: a hub with machines of the type `process`, a tenant, users with passwords,
# and a provider of identities.
#
#   tests/hub-page.sh FOLDER     FOLDER: the sources of the browser's programs with their packages (npm ci)
#
# Needs the programs in target/debug (or COB_BIN), node, and chromium; without chromium it skips itself.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(realpath "${COB_BIN:-target/debug}")
folder=${1:?the folder of the browser\'s programs is missing}
if ! command -v chromium >/dev/null; then
    echo "skipped: chromium is not installed"
    exit 0
fi
work=$(mktemp -d)
hub=""
provider=""
end() {
    if [ -n "$hub" ]; then
        "$bin/cobctl" cluster list --json 2>/dev/null | grep -o '"name": *"[a-z0-9-]*"' | cut -d'"' -f4 | while read -r name; do
            "$bin/cobctl" cluster delete "$name" --yes --wait >/dev/null 2>&1 || true
        done
        kill "$hub" 2>/dev/null || true
    fi
    [ -z "$provider" ] || kill "$provider" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
export COB_HUB="$work/hub"
node "$folder/browser/provider.mjs" >"$work/provider" &
provider=$!
until [ -s "$work/provider" ]; do
    kill -0 $provider
    sleep 0.1
done
cat >"$work/log-ins.yaml" <<YAML
company:
  tenants: [web]
  oidc: {issuer: "http://$(cat "$work/provider")", client: cob-hub}
YAML
"$bin/cobhub" serve --folder "$work/hub" --listen 127.0.0.1:0 --log-ins "$work/log-ins.yaml" 2>"$work/hub.log" &
hub=$!
address=""
while [ -z "$address" ]; do
    kill -0 $hub 2>/dev/null || { cat "$work/hub.log"; exit 1; }
    sleep 0.1
    address=$(sed -n 's/.*address.*=.*\(127\.0\.0\.1:[0-9][0-9]*\).*/\1/p' "$work/hub.log" | head -n 1)
done
until "$bin/cobctl" hub whoami >/dev/null 2>&1; do sleep 0.1; done
say() { "$bin/cobctl" "$@" >/dev/null; }
say hub add-tenant web --machines 6
export COB_HUB_TENANT=web
say hub add-user ann
say hub add-user ben --administrator
for user in ann ben; do echo "password of $user" | "$bin/cobctl" hub password $user --from - >/dev/null; done
echo "password of root" | "$bin/cobctl" hub password --from - >/dev/null
cat >"$work/security.yaml" <<'YAML'
security: loopback-only
YAML
cat >"$work/web.yaml" <<'YAML'
cobs:
  server:
    kind: service
    content:
      start: "exec sleep 1d"
      env: {GREETING: "{{ cluster.config.greeting }}"}
YAML
cat >"$work/log.yaml" <<'YAML'
cobs:
  server:
    kind: service
    content:
      start: "exec sleep 1d"
YAML
cat >"$work/choice.yaml" <<'YAML'
partial: true
compatibility:
  services: [web, log]
YAML
cat >"$work/site.yaml" <<'YAML'
description: A web site
includes: [choice]
defaults:
  services: [web]
  config: {greeting: hello}
YAML
say catalogue set-file security.yaml "$work/security.yaml" --shared
say catalogue set service web "$work/web.yaml"
say catalogue set service log "$work/log.yaml"
say catalogue set template choice "$work/choice.yaml"
say catalogue set template site "$work/site.yaml"
COB_HUB_URL=http://$address; export COB_HUB_URL
cd "$folder" && npm run --silent hub
