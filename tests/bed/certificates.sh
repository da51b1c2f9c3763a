# Sourced by run.sh: a host is an authority, another host has a TLS server with its certificate, and a third host
# connects. The certificate is renewed before it ends, and the server gets it; also with daemons and actions that are
# killed again and again. No private key leaves its host.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

on h1 sh -c 'openssl version | grep -q "^OpenSSL [3-9]"' ||
    { echo "skipped: certificates, for the hosts lack OpenSSL 3"; return 0; }

certificates_model() { # NAME
    cat <<MODEL
cobs:
  h1/ca:
    kind: certificate
    content: {file: /etc/ca/ca.pem, key: /etc/ca/ca.key, subject: {CN: Authority of the bed}, authority: true}
  h2/web-key:
    kind: private-key
    content: {file: /etc/ssl/private/bed.key, type: ed25519}
  h1/web-issue:
    kind: certificate
    restarts_on: [h1/ca, h2/web-key]
    content:
      file: /etc/ssl/issued/web.pem
      public_key: h2/web-key
      names: [$1, 10.77.0.2]
      ca: {certificate: /etc/ca/ca.pem, key: /etc/ca/ca.key}
  h2/web-cert:
    kind: certificate
    restarts_on: [h1/web-issue]
    content:
      file: /etc/ssl/bed.pem
      key: /etc/ssl/private/bed.key
      from: h1/web-issue
      on_renewal: systemctl try-restart bed-tls
  h2/server:
    kind: service
    restarts_on: [h2/web-key, h2/web-cert]
    content:
      unit: bed-tls.service
      unit_file: |
        [Service]
        ExecStart=/usr/bin/openssl s_server -accept 8443 -cert /etc/ssl/bed.pem -key /etc/ssl/private/bed.key -www -quiet
  h3/ca-cert:
    kind: certificate
    restarts_on: [h1/ca]
    content: {file: /etc/ssl/bed-ca.pem, from: h1/ca}
  h3/own:
    kind: certificate
    content: {file: /etc/ssl/own.pem, key: /etc/ssl/private/own.key, names: [h3]}
MODEL
}
set_certificates() { # the model, from standard input, is made and published
    put h1 $site/certificates.yaml
    publish_cluster
}
# h3 trusts the authority, checks the name, and says which certificate the server has.
handshake() { # NAME
    local said
    said=$(on h3 timeout 5 sh -c "openssl s_client -connect 10.77.0.2:8443 -CAfile /etc/ssl/bed-ca.pem -no-CApath \
        -verify_return_error -verify_hostname $1 </dev/null 2>/dev/null") || return 1
    openssl x509 -noout -fingerprint -sha256 <<< "$said"
}
fingerprint_of() { on "$1" openssl x509 -noout -fingerprint -sha256 -in "$2"; }
has_present_certificate() { [ "$(handshake "${1:-web.bed}")" = "$(fingerprint_of h2 /etc/ssl/bed.pem)" ]; }
# A certificate of the same key and authority, with a name and a number of days.
issue() { # DAYS
    on h2 openssl pkey -in /etc/ssl/private/bed.key -pubout | put h1 /run/bed.pub
    on h1 sh -c "printf 'basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName=DNS:web.bed,IP:10.77.0.2\n' > /run/bed.cnf
        openssl x509 -new -force_pubkey /run/bed.pub -subj /CN=web.bed -days $1 -extfile /run/bed.cnf -CA /etc/ca/ca.pem -CAkey /etc/ca/ca.key \
            -set_serial 77 -out /etc/ssl/issued/web.pem; rm /run/bed.pub /run/bed.cnf"
    on h1 cat /etc/ssl/issued/web.pem | put h2 /etc/ssl/bed.pem
}
ends_soon() { ! on "$1" openssl x509 -noout -checkend 5184000 -in "$2" >/dev/null; }
is_right() { # no key is readable for others, and all certificates are good for two months
    [ "$(on h2 stat -c '%a %U' /etc/ssl/private/bed.key)" = "600 root" ] || return 1
    [ "$(on h1 stat -c '%a %U' /etc/ca/ca.key)" = "600 root" ] || return 1
    ! ends_soon h2 /etc/ssl/bed.pem && ! ends_soon h1 /etc/ssl/issued/web.pem && ! ends_soon h3 /etc/ssl/own.pem
}
list_before

step "certificates: an authority, a TLS server, and a client that checks the certificate"
set_certificates < <(certificates_model web.bed)
reach_cluster
soon handshake web.bed
has_present_certificate
fails handshake other.bed
is_right
on h3 openssl verify -x509_strict -partial_chain -CAfile /etc/ssl/own.pem /etc/ssl/own.pem >/dev/null

step "certificates: no private key is in the depot, in a state folder, in an output or on another host"
for secret in "h2 /etc/ssl/private/bed.key" "h1 /etc/ca/ca.key" "h3 /etc/ssl/private/own.key"; do
    line=$(on "${secret% *}" sed -n 2p "${secret#* }")
    for host in h1 h2 h3; do
        [ -z "$(on $host sh -c "grep -rlF -e '$line' /var/lib/cob /var/log /dev/shm $site /etc/ssl/issued 2>/dev/null")" ]
        fails on $host sh -c "journalctl --no-pager -q | grep -qF -e '$line'"
    done
done

step "a certificate that ends soon is renewed, and the server gets it, without an order of anybody"
issue 3
on h2 systemctl restart bed-tls
soon handshake web.bed
ends_soon h2 /etc/ssl/bed.pem
# The check every ten minutes finds it; here it is asked for, of the authority first, which renews it fifteen days earlier.
is_issued() { ctl check h1/web-issue >/dev/null 2>&1; ! ends_soon h1 /etc/ssl/issued/web.pem; }
soon is_issued
is_renewed() { ctl check >/dev/null 2>&1; is_right && has_present_certificate; }
soon is_renewed
soon ctl status
[ "$(fingerprint_of h1 /etc/ssl/issued/web.pem)" = "$(fingerprint_of h2 /etc/ssl/bed.pem)" ]

step "a person's edits of keys and certificates are drift, and are repaired"
for edit in "h2 chmod 644 /etc/ssl/private/bed.key" "h1 truncate -s 0 /etc/ssl/issued/web.pem" "h3 rm /etc/ssl/own.pem" \
    "h3 cp /etc/ssl/bed-ca.pem /etc/ssl/own.pem"; do
    # shellcheck disable=SC2086 # the words of a command
    on $edit
    soon is_renewed
    soon ctl status
done

step "another name, and another key of the server"
set_certificates < <(certificates_model www.bed)
reach_cluster
soon has_present_certificate www.bed
fails handshake web.bed
set_certificates < <(certificates_model web.bed | sed 's/type: ed25519/type: ecdsa-p256/')
reach_cluster
soon has_present_certificate web.bed
on h2 openssl pkey -in /etc/ssl/private/bed.key -noout -text | grep -q prime256v1

step "the certificates leave, and the hosts are as before"
set_certificates <<< 'cobs: {h2/nothing: {kind: noop}}'
reach_cluster
is_as_before

step "the daemons and their actions are killed $kills times while certificates come, are renewed and go"
RANDOM=13
permit_many_starts h1 h2
killed=0
round=0
# The daemon, and in each second round the program that an action runs.
strike() {
    local host=h$((RANDOM % 2 + 1))
    if [ $((RANDOM % 2)) = 0 ]; then
        on $host systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    else
        on $host pkill -KILL -f '__act-kind|openssl (x509|genpkey|pkey)' 2>/dev/null && killed=$((killed + 1))
    fi
    return 0
}
is_settled() { ctl status >/dev/null 2>&1 || { ctl retry --all >/dev/null 2>&1; false; }; }
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    case $((round % 3)) in
    1 | 2) set_certificates < <(certificates_model "$([ $((round % 3)) = 1 ] && echo web.bed || echo www.bed)") ;;
    0) set_certificates <<< 'cobs: {h2/nothing: {kind: noop}}' ;;
    esac
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
        strike
    done
    wait $switching || true
    patience=120 soon is_settled
    case $((round % 3)) in
    1) soon has_present_certificate web.bed; is_right ;;
    2) soon has_present_certificate www.bed; is_right ;;
    0) is_as_before ;;
    esac
done
echo "       $killed kills in $round switches"
set_certificates <<< 'cobs: {h2/nothing: {kind: noop}}'
reach_cluster
is_as_before

limit_starts h1 h2

if acme=$("$here/../programs.sh" acme); then
    # shellcheck source=tests/bed/acme.sh
    source "$here/acme.sh"
else
    echo "skipped: certificates of an ACME server, for there are no pebble and lego (no network?); COB_ACME names a folder"
fi

on h1 rm $site/certificates.yaml
switch_cluster
