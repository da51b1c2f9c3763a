# Sourced by run.sh: those who mean harm, against the three hosts of together.sh. h4 is in no model; it has
# the network, and whatever it can steal. Of each the host that refuses it says so once and counts every try.

cobd_log() { # HOST: what its daemon has logged in this life
    on "$1" journalctl --no-pager --output=cat "_SYSTEMD_INVOCATION_ID=$(unit "$1" InvocationID)"
}
lines() { cobd_log "$1" | grep -cF -- "$2" || true; }

refused() { # HOST REASON: how often it has refused somebody for it in this life
    local json
    # Fails where it has not converged, and that is not the question.
    json=$(on "$1" cobctl status --json) || true
    json=$(sed -n '/"refused": {/,/}/p' <<< "$json" | grep -oP "\"$2\": \K[0-9]+") || true
    echo "${json:-0}"
}
has_refused() { [ "$(refused "$1" "$2")" = "$3" ]; }
more_refused() { [ "$(refused "$1" "$2")" -gt "$3" ]; }

# HOST REASON TRIES WORDS: it has counted each try, said these words once, and shows it.
is_refused() {
    soon has_refused "$1" "$2" "$3"
    soon says "$4" cobd_log "$1"
    if [ "$(lines "$1" "$4")" != 1 ]; then
        echo "not said once: $4" >&2
        cobd_log "$1" >&2
        return 1
    fi
    says "${2//_/ } $3" on "$1" cobctl status
    echo "       $1 has refused: ${2//_/ } $3; its log: $(cobd_log "$1" | grep -F -- "$4" | cut -d ' ' -f 2-)"
}

key_of() { on "$1" cobd init | grep -o 'ed25519:.*'; }
linked() { says "2 of 2 peers linked" unit "$1" StatusText; }
with_key_of_h2() { # COMMAND FROM ...: on h2, whose daemon is off, against h3
    local command=$1 from=$2
    shift 2
    on h2 intruder "$command" --to 10.77.0.3:7077 --host h3 --host-key "$h3" --from "$from" \
        --key /var/lib/cob/identity.key --state-dir /var/lib/cob "$@"
}
begin_anew() { # HOST: a new life, in which nothing was refused yet
    on "$1" systemctl restart cobd
    soon linked "$1"
    soon linked h1
}

# What h1 says to h3 goes to h4 from here on, as if somebody had the router: a new life of h1 dials anew.
detour() {
    on h1 nft -f - <<'RULES'
table ip detour {
    chain out {
        type nat hook output priority -100;
        ip daddr 10.77.0.3 tcp dport 7077 dnat to 10.77.0.4:7077
    }
}
RULES
    on h1 systemctl restart cobd
}
between() { # MODE: and h4 passes it on
    on h4 systemd-run --quiet --unit="tap-$1" intruder tap --listen 10.77.0.4:7077 --to 10.77.0.3:7077 --mode "$1" \
        --record "/var/tmp/$1"
    soon says "listens on" on h4 journalctl --unit "tap-$1"
    detour
}
apart() { # UNIT: of h4, which ends first, so that h1 still hears that this connection has ended
    on h4 systemctl stop "$1"
    on h1 nft delete table ip detour
    for host in h1 h2 h3; do
        soon linked $host
    done
}

step "a fourth machine, with a program that means harm; the daemons begin a new life"
for host in h2 h4; do
    on $host sh -c 'cat > /usr/local/bin/intruder && chmod 755 /usr/local/bin/intruder' < "$intruder"
done
stranger=$(on h4 cobd init --state-dir /var/lib/cob | grep -o 'ed25519:.*')
for host in h1 h2 h3; do
    on $host systemctl restart cobd
done
h1=$(key_of h1) h2=$(key_of h2) h3=$(key_of h3)
for host in h1 h2 h3; do
    soon linked $host
    [ "$(refused $host stranger)" = 0 ]
done

step "a host that is not in the manifest is refused"
on h4 intruder knock --to 10.77.0.1:7077 --host h1 --host-key "$h1" --from h4 --key /var/lib/cob/identity.key --tries 200
is_refused h1 stranger 200 "its key $stranger is in no known generation"

step "so is its own daemon, with a generation of its own making that names them all"
put h4 /srv/forged/model.yaml <<MODEL
security: identities
hosts:
  h0: {address: "tcp://10.77.0.4:7077", key: "$stranger"}
  h1: {address: "tcp://10.77.0.1:7077", key: "$h1"}
  h3: {address: "tcp://10.77.0.3:7077", key: "$h3"}
MODEL
publisher=$(on h4 cobgen key /srv/forged/publisher.key)
on h4 cobgen generate /srv/forged --depot /srv/forged/depot --sign-with /srv/forged/publisher.key >/dev/null
put h4 /etc/cob/cobd.toml <<CONFIG
host = "h0"
depot = "/srv/forged/depot"
trust = ["$publisher"]
CONFIG
on h4 systemctl start cobd
on h4 cobctl switch 1 >/dev/null
soon more_refused h1 stranger 200
refused_by_both() { [ "$(on h4 cobctl status --json | grep -cF "the peer does not accept the key $stranger of this host")" = 2 ]; }
soon refused_by_both
# The publisher had asked h3 before which generations it knows, and with that key h4 was refused for the first time.
soon more_refused h3 stranger 1
says "its key $publisher is in no known generation" cobd_log h3
[ "$(lines h1 "$stranger")" -le 2 ]
[ "$(lines h3 "is in no known generation")" -le 2 ]

step "nor is it believed when it answers in the place of a host"
detour
soon more_refused h1 wrong_key 0
[ "$(lines h1 "the process at 10.77.0.3:7077 does not hold the key of this host")" = 1 ]
fails linked h1
apart cobd

step "a stolen token that was used is refused, said once, and told by status"
thief() { token_of h2 | on h4 cobd join $server - --config /var/tmp/thief.toml --state-dir /var/tmp/thief; }
for try in {1..20}; do
    fails_with "already used with another key" thief
done
serve_log() { on h1 journalctl --no-pager --output=cat --unit cobgen-serve; }
says "the token of h2 was already used with another key" serve_log
[ "$(serve_log | grep -cF "the token of h2 was already used with another key")" -le 2 ]
# One came before, in together.sh.
says "REFUSED 21 times" admin cobgen enroll --list --depot $site/depot
says "\`cobgen serve\` refused the token of h2 21 times" operator status
says '"h2": 21' operator status --json

step "TLS 1.2, and no TLS at all, are refused"
on h4 intruder downgrade tls12 --to 10.77.0.3:7077 --tries 200
is_refused h3 not_tls 200 "the TLS handshake failed"
on h4 intruder downgrade http --to 10.77.0.1:7077 --tries 200
is_refused h1 not_tls 200 "which is not TLS"
on h4 intruder downgrade zmtp --to 10.77.0.2:7077 --tries 200
is_refused h2 not_tls 200 "which is not TLS"

step "who takes TLS 1.3 out of what a host offers gets no link, and is noticed"
between downgrade
soon more_refused h3 not_tls 200
fails linked h1
apart tap-downgrade

step "who changes bytes on their way gets no link, and is noticed"
between bend
soon more_refused h3 replayed 0
fails linked h1
apart tap-bend

step "what was recorded is worth nothing when it is played again"
between pass
soon linked h1
apart tap-pass
begin_anew h3
on h4 intruder play --to 10.77.0.3:7077 --tries 200 /var/tmp/pass
is_refused h3 replayed 200 "cannot decrypt"

step "nor is the hello of an earlier life, with the right key"
on h2 systemctl stop cobd
with_key_of_h2 knock h2 --lives-ago 2 --tries 200
is_refused h3 replayed 400 "its hello is of an earlier incarnation"

step "a host that was taken over speaks for itself alone: hellos, batches, words in another's name are dropped"
with_key_of_h2 knock h1 --tries 200
is_refused h3 foreign_name 200 "the peer claims to be host h1, but it shows the key of host h2"
with_key_of_h2 speak h2 --name h1 --tries 200
is_refused h3 foreign_name 400 "a batch in another host's name is dropped"
with_key_of_h2 speak h2 --cob h1/db/server --tries 200
is_refused h3 foreign_name 600 "messages in the name of other hosts' change objects are dropped"
on h2 systemctl start cobd
for host in h1 h2 h3; do
    soon linked $host
done
soon operator status

step "a key that a generation revokes is cut at once, and refused from then on"
admin sed -i -e '/^  h2:$/,+1d' -e 's/\[h1, h2, h3\]/[h1, h3]/' -e "s/^revoked: \[\]/revoked: [\"$h2\"]/" $site/model.yaml
publish
# Whoever has taken h2 over heeds no order, so it gets none.
operator --host h1 --host h3 switch 2 --wait 2m
for host in h1 h3; do
    says "the key $h2 of this connection is no longer a key of that host" cobd_log $host
    fails says '"host": "h2"' on $host cobctl status --json
done
# Its own daemon dials on.
soon more_refused h3 revoked 0
says "its key $h2 was revoked" cobd_log h3
soon says "the peer does not accept the key $h2 of this host" on h2 cobctl status --json
# Nor does it get the generation any more.
fails_with "or it was revoked" on h2 cobctl switch 2 --prepare-timeout 2s
says "its key $h2 was revoked" serve_log
on h2 systemctl stop cobd
[ "$(lines h3 "its key $h2 was revoked")" -le 2 ]
[ "$(serve_log | grep -cF "its key $h2 was revoked")" -le 2 ]
on h2 cat /var/lib/cob/identity.key | on h4 sh -c 'umask 077 && cat > /var/tmp/stolen.key'
on h4 intruder knock --to 10.77.0.1:7077 --host h1 --host-key "$h1" --from h2 --key /var/tmp/stolen.key --tries 200
is_refused h1 revoked 200 "its key $h2 was revoked"
operator status
