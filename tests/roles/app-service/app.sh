#!/bin/sh
# The program of this role: it waits.
echo "port $APP_PORT, level $APP_LEVEL"
exec sleep infinity
