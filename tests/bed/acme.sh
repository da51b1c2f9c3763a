# Sourced by certificates.sh: h3 is an ACME server, h2 has a TLS server with its certificate, and h1 connects. The
# certificate is renewed before it ends; also when the ACME server refuses at first, and with daemons and clients that are
# killed again and again.

pebble_folder=/opt/acme
on h3 mkdir -p $pebble_folder
for program in pebble pebble-challtestsrv; do
    put h3 $pebble_folder/$program < "$acme/$program"
done
put h2 /usr/local/bin/lego < "$acme/lego"
on h2 chmod 755 /usr/local/bin/lego
on h3 sh -c "chmod 755 $pebble_folder/* && cd $pebble_folder &&
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out server.pem -days 30 \
        -subj /CN=pebble -addext subjectAltName=IP:10.77.0.3 2>/dev/null"
put h3 $pebble_folder/pebble.json <<'JSON'
{"pebble": {"listenAddress": "10.77.0.3:14000", "managementListenAddress": "127.0.0.1:15000",
    "certificate": "/opt/acme/server.pem", "privateKey": "/opt/acme/key.pem", "httpPort": 80, "tlsPort": 443}}
JSON
# All names are those of h2.
on h3 systemd-run --quiet --unit=bed-dns $pebble_folder/pebble-challtestsrv -defaultIPv4 10.77.0.2 -defaultIPv6 "" \
    -http01 "" -https01 "" -tlsalpn01 "" -dns01 127.0.0.1:8053 -management 127.0.0.1:8055
on h3 systemd-run --quiet --unit=bed-acme --setenv=PEBBLE_VA_NOSLEEP=1 --setenv=PEBBLE_AUTHZREUSE=0 \
    $pebble_folder/pebble -config $pebble_folder/pebble.json -dnsserver 127.0.0.1:8053
authority() { on h3 curl -sfk https://127.0.0.1:15000/roots/0; }
soon authority
authority | put h1 /etc/ssl/bed-acme.pem
on h3 cat $pebble_folder/server.pem | put h2 /etc/ssl/bed-pebble.pem
list_before

acme_model() { # NAME
    cat <<MODEL
cobs:
  h2/web-cert:
    kind: acme-certificate
    content:
      server: https://10.77.0.3:14000/dir
      server_ca: /etc/ssl/bed-pebble.pem
      mail: bed@example.org
      accept_terms: true
      names: [$1]
      challenge: {port: 80}
      file: /etc/ssl/acme.pem
      key: /etc/ssl/private/acme.key
      chain: /etc/ssl/acme-chain.pem
      on_renewal: systemctl try-restart bed-tls
  h2/server:
    kind: service
    restarts_on: [h2/web-cert]
    content:
      unit: bed-tls.service
      unit_file: |
        [Service]
        ExecStart=/usr/bin/openssl s_server -accept 8443 -cert /etc/ssl/acme.pem -key /etc/ssl/private/acme.key \
            -cert_chain /etc/ssl/acme-chain.pem -www -quiet
MODEL
}
# h1 trusts the authority, checks the name, and says which certificate the server has.
acme_handshake() { # NAME
    local said
    said=$(on h1 timeout 5 sh -c "openssl s_client -connect 10.77.0.2:8443 -CAfile /etc/ssl/bed-acme.pem -no-CApath \
        -verify_return_error -verify_hostname $1 </dev/null 2>/dev/null") || return 1
    openssl x509 -noout -fingerprint -sha256 <<< "$said"
}
serves_present() { [ "$(acme_handshake "$1")" = "$(fingerprint_of h2 /etc/ssl/acme.pem)" ]; } # NAME
orders() { on h3 journalctl --no-pager -q -u bed-acme | grep -c "Added order" || true; }
# No request is half-done: no folder of a request, no client, no key that others may read.
is_tidy() {
    [ -z "$(on h2 find /var/lib/cob/cobs -path '*/request*' -o -name next-key)" ] && fails on h2 pgrep -x lego &&
        [ -z "$(on h2 find /var/lib/cob/cobs/.acme -type f ! -perm 600)" ] &&
        [ "$(on h2 stat -c '%a %U' /etc/ssl/private/acme.key)" = "600 root" ]
}
# A certificate of the same key and name from another authority, which ends in two days.
put_old() {
    on h2 sh -c 'mkdir /run/old && cd /run/old && touch index && echo 01 > serial
        printf "[ca]\ndefault_ca=x\n[x]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\ncopy_extensions=copy\n[p]\ncommonName=optional\n" > cnf
        openssl req -x509 -newkey ed25519 -nodes -keyout ca.key -out ca.pem -days 900 -subj /CN=old
        openssl req -new -key /etc/ssl/private/acme.key -subj /CN=web.bed -addext subjectAltName=DNS:web.bed -out csr
        openssl ca -batch -notext -config cnf -cert ca.pem -keyfile ca.key -md default -in csr -out /etc/ssl/acme.pem \
            -startdate 20200101000000Z -enddate "$(date -u -d "2 days" +%Y%m%d%H%M%SZ)"
        cd / && rm -r /run/old' >/dev/null 2>&1
    on h2 systemctl restart bed-tls
}

step "acme: a TLS server with a certificate of an ACME server, which the daemon asks for once"
set_certificates < <(acme_model web.bed)
reach_cluster
soon serves_present web.bed
fails acme_handshake other.bed
is_tidy
asked=$(orders)
on h2 chmod 644 /etc/ssl/private/acme.key
is_repaired() { ctl check h2/web-cert >/dev/null 2>&1; is_tidy; }
soon is_repaired
[ "$(orders)" = "$asked" ]

step "acme: a certificate that ends soon is renewed, and the server gets it"
key=$(on h2 md5sum /etc/ssl/private/acme.key)
put_old
fails acme_handshake web.bed
is_renewed() { ctl check h2/web-cert >/dev/null 2>&1; serves_present web.bed; }
soon is_renewed
[ "$(on h2 md5sum /etc/ssl/private/acme.key)" = "$key" ]
soon ctl status

step "acme: a server that refuses is shown with its message, asked again later, and the daemon renews in the end"
on h3 curl -sf -d '{"host": "web.bed", "addresses": ["10.77.0.3"]}' http://127.0.0.1:8055/add-a
put_old
asked=$(orders)
ctl check h2/web-cert >/dev/null 2>&1 || true
soon ctl_status_says "acme:error:connection"
for _ in 1 2 3; do ctl check h2/web-cert >/dev/null 2>&1 || true; done
[ "$(orders)" = $((asked + 1)) ]
on h3 curl -sf -d '{"host": "web.bed"}' http://127.0.0.1:8055/clear-a
patience=120 soon is_renewed
soon ctl status

step "acme: the certificate leaves, and the host is as before"
set_certificates <<< 'cobs: {h2/nothing: {kind: noop}}'
reach_cluster
is_as_before

step "acme: the daemon and the clients are killed $kills times while the certificate comes and goes"
permit_many_starts h2
killed=0
round=0
strike_acme() {
    if [ $((RANDOM % 2)) = 0 ]; then
        on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    else
        on h2 pkill -KILL -f '__act-kind|^lego' 2>/dev/null && killed=$((killed + 1))
    fi
    return 0
}
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    case $((round % 3)) in
    1) set_certificates < <(acme_model web.bed) ;;
    2) set_certificates < <(acme_model www.bed) ;;
    0) set_certificates <<< 'cobs: {h2/nothing: {kind: noop}}' ;;
    esac
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "$((RANDOM % 3)).$((RANDOM % 10))"
        strike_acme
    done
    wait $switching || true
    patience=240 soon is_settled
    case $((round % 3)) in
    1) soon serves_present web.bed; is_tidy ;;
    2) soon serves_present www.bed; is_tidy ;;
    0) is_as_before ;;
    esac
done
echo "       $killed kills in $round switches"
set_certificates <<< 'cobs: {h2/nothing: {kind: noop}}'
reach_cluster
is_as_before

limit_starts h2
on h3 systemctl stop bed-acme bed-dns
on h3 rm -r $pebble_folder
on h2 rm -r /usr/local/bin/lego /etc/ssl/bed-pebble.pem /var/lib/cob/cobs/.acme
on h1 rm /etc/ssl/bed-acme.pem
