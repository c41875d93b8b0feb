#!/bin/sh
# A client of `freshband serve` in shell: it asks for a plan, sends, and reports what arrived with
# the next request. Usage: service_client.sh [URL] [ROUNDS], with the token in $FRESHBAND_TOKEN.
#
#   freshband serve --clients 3 --channels 5 --state state.npz &
#   sh examples/service_client.sh http://127.0.0.1:8371 20
set -eu
url=${1:-http://127.0.0.1:8371}/v1/coordinators/default
rounds=${2:-20}

# A request without an answer is repeated: it carries its round, so it is executed once.
post() {
    curl --silent --show-error --fail-with-body --retry 5 --retry-all-errors --max-time 30 \
        --header 'Content-Type: application/json' \
        ${FRESHBAND_TOKEN:+--header "Authorization: Bearer $FRESHBAND_TOKEN"} \
        --data "$2" "$url/$1"
}

# Stands for the radio: channel k delivers with probability 0.9, 0.7, 0.5, 0.3, 0.1 for k = 0, 1...
# and prints true, false or null (no channel) for each client.
transmit() {
    echo "$1" | awk -F, -v seed="$2" 'BEGIN { srand(seed) } {
        for (i = 1; i <= NF; i++)
            out = out (i > 1 ? "," : "") ($i < 0 ? "null" : rand() < 0.9 - 0.2 * $i ? "true" : "false")
        print out }'
}

# The service may have rounds behind it: go on after the latest it planned.
planned=$(curl --silent --fail ${FRESHBAND_TOKEN:+--header "Authorization: Bearer $FRESHBAND_TOKEN"} \
    "$url" | sed 's/.*"planned":\([0-9]*\).*/\1/')
round=$((planned + 1))
last=$((planned + rounds))
reply=$(post plan "{\"round\": $round}")
while [ "$round" -lt "$last" ]; do
    channels=$(echo "$reply" | sed 's/.*"channels":\[\([^]]*\)\].*/\1/')
    outcomes=$(transmit "$channels" "$round")
    echo "round $round: channels $channels, delivered $outcomes"
    round=$((round + 1))
    reply=$(post plan "{\"round\": $round, \"delivered\": [$outcomes]}")
done
echo "next: $reply"
