#!/usr/bin/env bash
# The provider ec2 with moto, an imitation of Amazon's API that ignores client tokens. Answers of the provider are lost at
# random, and its program is killed at random: each node has exactly one instance, and no instance is left over.
#
#   tests/providers/ec2.sh PROGRAMS [NODES]
#
# PROGRAMS is a folder with cobhub, cobd, cobgen and cobctl; PYTHON a Python with boto3 and moto:
#   python3 -m venv moto && moto/bin/pip install boto3 'moto[server,ec2]' && PYTHON=moto/bin/python tests/providers/ec2.sh target/debug
# COB_SEED repeats a run's choices.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$(realpath "${1:?name the folder with the programs}")
nodes=${2:-100}
python=$(realpath -s "${PYTHON:-$(command -v python3)}")
seed=${COB_SEED:-$RANDOM}
if ! "$python" -c 'import boto3, moto' 2>/dev/null; then
    echo "skipped: the provider ec2, for $python has no boto3 and moto"
    exit 0
fi
for program in curl jq; do
    command -v $program >/dev/null || { echo "skipped: the provider ec2, for $program is not installed"; exit 0; }
done

folder=$(mktemp -d)
hub=$folder/hub
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_DEFAULT_REGION=eu-west-1

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$python" -m moto.server -p "$port" >"$folder/moto.log" 2>&1 &
until curl -sf "http://127.0.0.1:$port/moto-api/" >/dev/null; do sleep 0.1; done

mkdir -p "$folder/providers" "$hub"
cat > "$folder/providers/cob-provider-ec2" <<PROVIDER
#!$python
import os, random, signal, subprocess, sys, threading
random.seed(f"$seed {os.getpid()}")
real = subprocess.Popen(["$python", "$here/../../packaging/providers/cob-provider-ec2", *sys.argv[1:]], stdout=subprocess.PIPE)
luck = random.random()
if sys.argv[1] == "create" and luck < 0.1:
    # Killed at any moment.
    threading.Timer(random.uniform(0.1, 1.5), real.kill).start()
answer, _ = real.communicate()
if sys.argv[1] == "create" and 0.1 <= luck < 0.3:
    # All is done, and the answer is lost.
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdout.buffer.write(answer)
sys.exit(1 if real.returncode else 0)
PROVIDER
chmod +x "$folder/providers/cob-provider-ec2"

start_hub() {
    "$programs/cobhub" serve --folder "$hub" --providers "$folder/providers" 2>>"$folder/hub.log" &
    hub_pid=$!
    until ask GET /v1/whoami >/dev/null 2>&1; do sleep 0.1; done
}
ask() { curl -sS --fail-with-body --unix-socket "$hub/hub.sock" -X "$1" ${3:+-H "Content-Type: application/json" -d "$3"} "http://hub$2"; }
entity() { ask PUT "/v1/catalogue/$1?tenant=web" "$2" >/dev/null; }
instances() {
    "$python" - "$port" <<'COUNT'
import boto3, sys
ec2 = boto3.client("ec2", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}")
states = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
pages = ec2.get_paginator("describe_instances").paginate(Filters=states)
print(sum(len(r["Instances"]) for page in pages for r in page["Reservations"]))
COUNT
}
has_ended() { ask GET "/v1/jobs/$1" | jq -e '.state | IN("succeeded", "failed", "canceled")' >/dev/null; }

start_hub
ask POST /v1/directory '{"add-tenant": {"tenant": "web"}}'
ask PUT '/v1/files/security.yaml?shared=true' 'security: loopback-only' >/dev/null
image=$("$python" -c "import boto3; print(boto3.client('ec2', endpoint_url='http://127.0.0.1:$port').describe_images()['Images'][0]['ImageId'])")
entity providers/cloud "{\"type\": \"ec2\", \"settings\": {\"endpoint\": \"http://127.0.0.1:$port\", \"region\": \"eu-west-1\", \"patience\": 0}}"
entity hardwaretypes/small '{"providers": {"cloud": {"type": "t3.micro"}}}'
entity imagetypes/debian "{\"providers\": {\"cloud\": {\"image\": \"$image\"}}}"
entity services/app '{"actions": {"install": "true", "start": "true", "stop": "true"}}'
entity templates/shop '{"defaults": {"services": ["app"], "provider": "cloud"}}'

echo "== $nodes instances, three of ten answers lost (seed $seed)"
# No daemon runs in moto's instances, so none is confirmed: the creation fails in the end, and keeps its machines.
job=$(ask POST '/v1/clusters?tenant=web' "{\"name\": \"many\", \"wanted\": {\"template\": \"shop\", \"nodes\": $nodes}, \"keep_failed\": true}" | jq .job)
kills=0
until has_ended "$job"; do
    sleep 3
    if [ $kills -lt 3 ] && ! has_ended "$job"; then
        kill -9 "$hub_pid"
        pkill -9 -f "cobhub job $hub/jobs/$job" || true
        kills=$((kills + 1))
        start_hub
    fi
done
known=$(jq '[.[] | select(.id)] | length' "$hub/clusters/web/many/machines.json")
tokens=$(jq '[.[].token] | unique | length' "$hub/clusters/web/many/machines.json")
echo "$(instances) instances, $known known to the hub, $tokens tokens, $kills kills of hub and job"
[ "$(instances)" = "$nodes" ]
[ "$tokens" = "$nodes" ]
[ "$(ask GET '/v1/machines?orphans=true')" = "[]" ]

echo "== all deleted"
job=$(ask POST '/v1/clusters/many/operations?tenant=web' '{"operation": "delete"}' | jq .job)
until has_ended "$job"; do sleep 0.5; done
ask GET "/v1/jobs/$job" | jq -e '.state == "succeeded"' >/dev/null
[ "$(instances)" = 0 ]
