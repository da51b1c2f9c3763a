#!/usr/bin/env bash
# An administrator copies a file with a secret inside a managed folder, as editors do with their backups. The value must not
# stand in clear in anything that the daemon keeps or tells.
source "$(dirname "$0")/common.sh"
value=hunter2-of-the-case
cobgen init --secure site n1=127.77.116.1 > init.out 2>&1 || { cat init.out >&2; exit 2; }
export COB_DEPOT=$work/site/depot COB_KEY=$work/site/keys/operator.key
publisher=$(grep -o 'ed25519:[^"]*' site/depot/trust.toml | head -n 1)
operator=$(grep -o 'ed25519:[A-Za-z0-9_-]\{43\}' site/model.yaml | head -n 1)
printf 'host = "n1"\ndepot = "site/depot"\nstate_dir = "n1/state"\nhttp = "n1.sock"\ntrust = ["%s"]\n' "$publisher" > n1.toml
mkdir -p n1
key=$(cobd init --config n1.toml 2>&1 | grep -o 'ed25519:[A-Za-z0-9_-]*' | head -n 1)
[ -n "$key" ] || { echo "cobd init printed no key" >&2; exit 2; }
printf %s "$value" > value; chmod 600 value
cat > model.yaml <<YAML
hosts: {n1: {address: "tcp://127.77.116.1:7077", key: "$key"}}
operators: {admin: {role: administer, key: "$operator"}}
secrets: {tree: {file: value}}
cobs:
  n1/conf:
    kind: file-tree
    content:
      root: $work/out
      files:
        app.conf: {content: "password={{ secret('tree') }}\\n", mode: "0640"}
        d: {folder: true, whole: true}
YAML
cobgen generate model.yaml --depot site/depot --sign-with site/keys/publisher.key > generate.out 2>&1 || { cat generate.out >&2; exit 2; }
start n1; converge
says "$value" out/app.conf
cp out/app.conf out/d/app.conf.bak
cp out/app.conf out/d/app.conf~
soon test ! -e out/d/app.conf.bak
soon test ! -e out/d/app.conf~
cobctl history --json > history.json 2>&1
lacks "$value" history.json
lacks "$value" n1.log
cobctl files log n1/conf > log.out 2>&1
for version in $(grep -oE '\b[0-9a-f]{7,40}\b' log.out | sort -u); do
    cobctl files show n1/conf "$version" > show.out 2>&1
    lacks "$value" show.out
done
end TERM n1
found=$(grep -rlaF "$value" n1/state 2>/dev/null)
same "" "$found" "files of the daemon in which the value stands in clear"
git=n1/state/files/store.git
for object in $(git -C "$git" cat-file --batch-all-objects --batch-check='%(objectname) %(objecttype)' 2>/dev/null | awk '$2 == "blob" { print $1 }'); do
    if git -C "$git" cat-file blob "$object" 2>/dev/null | grep -qF "$value"; then
        wrong "the object $object of the store has the value in clear"
    fi
done
