# What the scripts of the kind `file` share.

set -e

# The content is canonical JSON, one line: {"path":"/tmp/cob-webshop/db.conf","text":"price = 10\n"}.
path=$(sed -n 's/.*"path":"\([^"]*\)".*/\1/p' "$COB_CONTENT")

# The text as it is to be in the file, and nothing more: `\n` of JSON is that of printf, too.
text() {
    printf '%b' "$(sed -n 's/.*"text":"\(.*\)"}$/\1/p' "$COB_CONTENT")"
}
