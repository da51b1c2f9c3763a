# Sourced by run.sh: one cluster of all three hosts, made by the steps of docs/how-to/enroll-hosts.md, over a network
# that is none of this machine's own.

step "three fresh hosts, and one more that is not of them"
bed down
bed up 4
for host in h1 h2 h3 h4; do
    install_on $host
done

site=/srv/site
server=tcp://10.77.0.1:7070
admin() { on h1 "$@"; }
operator() { admin cobctl --depot $site/depot --key $site/keys/operator.key "$@"; }
publish() { admin cobgen generate $site --depot $site/depot --sign-with $site/keys/publisher.key; }
answers_at() { on "$1" timeout 2 bash -c "exec 3<>/dev/tcp/$2"; }

step "from nothing to three enrolled hosts, in six commands"
admin cobgen init --secure $site h1=10.77.0.1 h2=10.77.0.2 h3=10.77.0.3
admin systemd-run --quiet --unit=cobgen-serve cobgen serve --depot $site/depot --listen $server
soon answers_at h2 10.77.0.1/7070
invitations=$(admin cobgen enroll h1 h2 h3 --depot $site/depot --server $server)
token_of() { grep -oE "cob1\.[^ ]*\.$1\b" <<< "$invitations" | head -n 1; }
for host in h1 h2 h3; do
    token_of $host | on $host cobd join $server -
    [ "$(on $host stat -c '%a %U' /var/lib/cob/identity.key)" = "600 root" ]
done

step "they take what a publisher has signed, and converge"
publish
for host in h1 h2 h3; do
    on $host systemctl enable --now cobd 2>/dev/null
    soon is_unit $host ActiveState active
done
operator switch 1 --wait 2m
operator status
for host in h1 h2 h3; do
    soon says "converged, 2 of 2 peers linked" unit $host StatusText
done

step "a token that was used is good for nobody else"
thief() { token_of h2 | on h3 cobd join $server - --config /var/tmp/thief.toml --state-dir /var/tmp/thief; }
fails_with "already used with another key" thief
says "REFUSED" admin cobgen enroll --list --depot $site/depot

step "who has no key gets no word"
fails on h3 cobctl --host h1=tcp://10.77.0.1:7077 status
fails on h3 cobctl --host h1=tcp://10.77.0.1:7077 pause
operator status

step "without power and back, cut off and back, it converges again by itself"
bed power-off h2
bed power-on h2
soon operator status
bed cut h3
# An idle link is found dead after a minute; who asks h3 itself hears at once that it is away.
fails operator status
bed heal h3
soon says "2 of 2 peers linked" unit h1 StatusText
soon operator status
