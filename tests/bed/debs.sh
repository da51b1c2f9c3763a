# Sourced by interfaces.sh and links.sh: packages for hosts of the bed, which are fetched once.

packages=$here/../../target/bed-interfaces

additional() { # what is installed, from the output of `apt-get install -s`; no udev: hosts have no devices
    awk '/^Inst/ && $2 != "udev" { print $2 }' | xargs
}
fetch() { # FOLDER PACKAGE...: if they are not there already
    local folder=$packages/$1
    shift
    mkdir -p "$folder"
    [ $# != 0 ] && (cd "$folder" && if [ "$*" != "$(cat names 2>/dev/null)" ]; then
        rm -f -- names *.deb && timeout 120 apt-get -qq download "$@" </dev/null >/dev/null 2>&1 && echo "$*" > names
    fi)
}
