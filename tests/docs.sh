#!/usr/bin/env bash
# Runs the commands of tutorials, how-to pages and examples, and compares exit status and output with the page.
#
#   tests/docs.sh                    all pages; needs target/debug, or COB_BIN=FOLDER
#   tests/docs.sh PAGE...            only these pages
#   UPDATE=1 tests/docs.sh PAGE...   also writes the real output into the page where it differs
#
# A page runs in a new folder, and in namespaces of its own where the machine allows that. These parts of a page count:
#
#   ```console                       `$ COMMAND` and its output; `> ` continues a command
#   $ COMMAND   # exit status 1      any other command must end with 0
#   …                                in output: any text; alone in a line: any lines. No output in the page: any output
#   <!-- test: file NAME -->         the next block is the content of this file
#   <!-- test: needs root curl -->   the page is skipped where a program, or the user root, is missing
#   <!-- test: run                   hidden commands, up to the line `-->`
#   <!-- test: continues PAGE -->    first runs PAGE up to its line `<!-- test: others continue here -->`
#
# Times, durations and blanks are not compared.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
COB_BIN=$(realpath -e "${COB_BIN:-$root/target/debug}") || exit 2
export COB_BIN

# Lines in the form in which they are compared.
plain() {
    sed -E -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+Z?/TIME/g' -e 's/\b[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z?/TIME/g' \
        -e 's/[0-9]+(\.[0-9]+)? (ms|µs|s|min|h)\b/DURATION/g' -e 's/\b[0-9a-f]{40,64}\b/HASH/g' \
        -e 's/[[:space:]]+/ /g' -e 's/^ //' -e 's/ $//' -e '/^$/d' -e '$a\'
}

# matches EXPECTED ACTUAL: files.
matches() {
    local pattern actual
    pattern=$(plain <"$1" | sed -E -e 's/[][\\*?()|+@!]/\\&/g'; echo x)
    actual=$(plain <"$2"; echo x)
    pattern=${pattern%x} actual=${actual%x}
    # A line `…` stands for any number of lines.
    pattern=$(sed -z -E -e 's/(^|\n)…\n/\1…/g' <<<"$pattern"; echo x)
    pattern=${pattern%$'\n'x}
    pattern=${pattern//…/*}
    # shellcheck disable=SC2053
    [[ $actual == $pattern ]]
}

wrong=0
# The result of the command in `command` with the expected output in the file `$scratch/expected`.
run_command() {
    local file=$1 line=$2 status expected=0
    [[ $command =~ \#\ exit\ status\ ([0-9]+)$ ]] && expected=${BASH_REMATCH[1]}
    echo "$file:$line: $command" >"$scratch/running"
    eval "$command" >"$scratch/actual" 2>&1 </dev/null
    status=$?
    if [ $status != "$expected" ]; then
        wrong=1
        echo "$file:$line: exit status $status instead of $expected: $command"
        sed 's/^/    /' "$scratch/actual" | head -40
        exit 1
    fi
    if [ -s "$scratch/expected" ] && ! matches "$scratch/expected" "$scratch/actual"; then
        if [ -n "${UPDATE:-}" ]; then
            echo "$file:$line: the output in the page is replaced"
            sed "s#$folder/work#…#g" "$scratch/actual" >"$scratch/expected"
            [ ! -s "$scratch/actual" ] || [ -z "$(tail -c 1 "$scratch/actual")" ] || echo >>"$scratch/expected"
        else
            wrong=1
            echo "$file:$line: the output of \`$command\` differs (- page, + real):"
            diff -U 100 <(plain <"$scratch/expected") <(plain <"$scratch/actual") | sed -e 1,3d -e 's/^/    /'
        fi
    fi
}

# Runs a page: page FILE [part]. With `part` only up to the line from which other pages continue.
page() {
    local file=$1 part=${2:-} line text state=text name="" command="" at=0
    local -a lines
    mapfile -t lines <"$file"
    local updated=""
    finish() {
        [ -z "$command" ] || run_command "${file#"$root/"}" $at
        [ -z "$command" ] || updated+=$(cat "$scratch/expected"; echo x)
        updated=${updated%x}
        command=""
        : >"$scratch/expected"
    }
    : >"$scratch/expected"
    for line in "${!lines[@]}"; do
        text=${lines[$line]}
        case $state in
        text)
            if [[ $text =~ ^'<!-- test: file '(.*)' -->'$ ]]; then
                name=${BASH_REMATCH[1]}
            elif [[ $text =~ ^'<!-- test: continues '(.*)' -->'$ ]]; then
                UPDATE='' page "$(dirname "$file")/${BASH_REMATCH[1]}" part
            elif [[ $text == '<!-- test: run' ]]; then
                state=hidden
            elif [[ $text == '<!-- test: others continue here -->' && -n $part ]]; then
                return
            elif [[ $text == '```console' ]]; then
                state=console
            elif [[ $text == '```'* && -n $name ]]; then
                mkdir -p "$(dirname "$name")"
                : >"$name"
                state=file
            elif [[ $text == '```'* ]]; then
                state=other
            fi
            updated+=$text$'\n'
            ;;
        console)
            if [[ $text == '```' ]]; then
                finish
                state=text
                updated+=$text$'\n'
            elif [[ $text == '$ '* ]]; then
                finish
                command=${text#'$ '} at=$((line + 1))
                updated+=$text$'\n'
            elif [[ $text == '> '* && -n $command && ! -s $scratch/expected ]]; then
                command+=$'\n'${text#'> '}
                updated+=$text$'\n'
            else
                echo "$text" >>"$scratch/expected"
            fi
            ;;
        hidden)
            updated+=$text$'\n'
            if [[ $text == '-->' ]]; then
                state=text at=$line
                [ -z "$command" ] || run_command "${file#"$root/"}" $at
                command=""
            else
                command+=$text$'\n'
            fi
            ;;
        file | other)
            if [[ $text == '```' ]]; then
                state=text name=""
            elif [[ $state == file ]]; then
                echo "$text" >>"$name"
            fi
            updated+=$text$'\n'
            ;;
        esac
    done
    [ -z "${UPDATE:-}" ] || [ $wrong != 0 ] || printf %s "$updated" >"$file"
}

# Ends the daemons and services that a page has left, where no namespace does that: daemons are in the session of the
# page, and the supervisors of services name the folder.
sweep() {
    local supervisor
    pkill -KILL -s "$(cat "$1/scratch/session")"
    for supervisor in $(pgrep -f "__keep-service $1/"); do
        pkill -KILL -P "$supervisor"
    done
    rm -rf /tmp/cob-tutorial* /tmp/cob-web
}

# Inside: one page, in the folder that it may use.
if [ "${1:-}" = --inside ]; then
    if [ -n "$4" ]; then
        ip link set lo up
        # Fixed paths of the pages below /tmp are not those of the machine.
        case "$root/ $COB_BIN/" in
        /tmp/* | *\ /tmp/*) ;;
        *) mkdir -p "$3/tmp" && mount --bind "$3/tmp" /tmp ;;
        esac
    fi
    unset COB_DEPOT COB_SOCKET COB_KEY COB_CONFIG COB_PUBLISHER_KEY
    export NO_COLOR=1 COLUMNS=120 PATH=$COB_BIN:$PATH folder=$3
    export XDG_CONFIG_HOME=$3/config HOME=$3/home
    scratch=$3/scratch
    mkdir -p "$scratch" "$HOME" "$3/work"
    echo $$ >"$scratch/session"
    cd "$3/work" || exit 2
    ln -s "$root/examples" examples
    page "$2"
    exit $wrong
fi

needs() {
    local what
    for what in $(sed -n 's/^<!-- test: needs \(.*\) -->$/\1/p' "$1"); do
        if [ "$what" = root ]; then
            [ "$(id -u)" = 0 ] || { echo "it needs root" && return; }
        else
            command -v "$what" >/dev/null || { echo "$what is not installed" && return; }
        fi
    done
}

pages=("$@")
[ $# -gt 0 ] || pages=("$root"/docs/tutorial/*.md "$root"/docs/how-to/*.md "$root"/examples/*/README.md)
apart=()
if command -v ip >/dev/null && unshare --net --pid --fork --kill-child --mount-proc true 2>/dev/null; then
    apart=(unshare --net --pid --fork --kill-child --mount-proc)
fi
passed=0 failed=0
for file in "${pages[@]}"; do
    file=$(realpath "$file") name=${file#"$root/"}
    grep -qx '```console' "$file" || continue
    why=$(needs "$file")
    if [ -n "$why" ]; then
        printf '%4s    %-40s skipped: %s\n' "" "$name" "$why"
        continue
    fi
    folder=$(mktemp -d /var/tmp/cob-docs.XXXXXX)
    began=$SECONDS
    said=$(timeout -k 5 "${COB_DOCS_LIMIT:-300}" \
        "${apart[@]}" setsid -w bash "$here/docs.sh" --inside "$file" "$folder" "${apart[*]}" 2>&1)
    status=$?
    [ $status != 124 ] || said+=$'\n'"the page took too long, at $(cat "$folder/scratch/running")"
    [ ${#apart[@]} != 0 ] || sweep "$folder"
    if [ $status = 0 ]; then
        result=passed passed=$((passed + 1))
    else
        result=FAILED failed=$((failed + 1))
    fi
    printf '%4d s  %-40s %s\n' $((SECONDS - began)) "$name" $result
    [ -z "$said" ] || sed 's/^/        /' <<<"$said"
    if [ -n "${KEEP:-}" ]; then echo "kept: $folder"; else rm -rf "$folder"; fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
