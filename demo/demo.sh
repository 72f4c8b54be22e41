#!/usr/bin/env bash
# ./run demo: a small shop on a Firebird 5.0.4 server under the preload. Four clients work for 10 to 20 seconds, each in a
# profiler session that it starts itself; then fbprof shows where the time went. Three slow spots are seeded (shop.sql says
# which): if the report doesn't have them as its first three lines, the demo fails, so it is a test as well.
set -euo pipefail

REPO=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
DEMO=$REPO/build/demo
DIST=${FBPROF_DIST:-$REPO/build/dist}
PYTHON=$REPO/build/venv/bin/python
CLIENTS=(till_1 till_2 catalogue manager)
CLIENT_SECONDS=300

# shellcheck source=scripts/firebird.sh
source "$REPO/scripts/firebird.sh"

say() { printf '[demo] %s\n' "$*"; }

fail() {
	printf '[demo] failed: %s\n' "$*" >&2
	exit 1
}

short() { printf '%s' "${1#"$REPO"/}"; }

pids=()

clean_up() {
	trap '' INT TERM HUP
	local pid
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	fb_stop "$DEMO/server" || true
}

main() {
	(($# == 0)) || {
		printf 'demo: it takes no arguments, but got %s\n' "'$1'" >&2
		exit 2
	}
	[[ -e $DIST/lib/libfbprof.so && -x $DIST/bin/fbprof ]] || fail "fbprof isn't built: use ./run demo"
	mkdir -p "$DEMO"
	exec 9>"$DEMO/.lock"
	flock -n 9 || fail "another demo runs in this tree"
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP

	fb_stop "$DEMO/server" # left by a demo that was killed
	rm -rf "$DEMO/server" "$DEMO/log" "$DEMO/csv" "$DEMO/client"
	mkdir "$DEMO/client"
	(umask 077 && mkdir "$DEMO/log")

	make_shop
	say "starting a Firebird server with LD_PRELOAD=$(short "$DIST")/lib/libfbprof.so and FBPROF_DIR=$(short "$DEMO")/log"
	fb_start "$DEMO/server" LD_PRELOAD="$DIST/lib/libfbprof.so" FBPROF_DIR="$DEMO/log" || exit 1
	run_clients
	show
}

isql() { ISC_USER=sysdba ISC_PASSWORD=${FBPROF_PASSWORD:-masterkey} fb_in "$DEMO/server" "$@"; }

make_shop() {
	local root=$DEMO/server program
	say "making a server root and the shop's database in $(short "$root")"
	fb_make_root "$root" || exit 1
	program=$(fb_program isql-fb isql) || exit 1
	printf 'shop = %s\n' "$root/shop.fdb" >>"$root/databases.conf"
	{
		printf "create database '%s' default character set utf8;\n" "$root/shop.fdb"
		cat "$REPO/demo/shop.sql"
	} >"$DEMO/client/shop.sql"
	isql FIREBIRD_LOCK="$root/lock" "$program" -q -b -ch utf8 -i "$DEMO/client/shop.sql" >"$DEMO/client/shop.out" 2>&1 </dev/null ||
		fail "can't make the shop: $(tail -n 3 "$DEMO/client/shop.out" | tr '\n' ' ')"
	# The demo is about SQL, not about how fast this machine's disk is.
	isql FIREBIRD_LOCK="$root/lock" "$PYTHON" - "$root" >"$DEMO/client/writes.out" 2>&1 <<-END ||
		import sys
		from firebird.driver import DbWriteMode, connect_server, driver_config
		root = sys.argv[1]
		driver_config.fb_client_library.value = root + '/libfbclient.so.2'
		with connect_server('') as server:
		    server.database.set_write_mode(database=root + '/shop.fdb', mode=DbWriteMode.ASYNC)
	END
		fail "can't turn forced writes off: $(tail -n 1 "$DEMO/client/writes.out")"
}

run_clients() {
	local client port program started=$SECONDS i
	port=$(<"$DEMO/server/server.port")
	program=$(fb_program isql-fb isql)
	say "running 4 clients, each START_SESSION, work, FINISH_SESSION: ${CLIENTS[*]} (demo/clients/*.sql)"
	cd "$REPO/demo/clients"
	for client in "${CLIENTS[@]}"; do
		isql timeout -k 5 "$CLIENT_SECONDS" "$program" -q -b -ch utf8 -i "$client.sql" \
			"inet://127.0.0.1:$port/shop" >"$DEMO/client/$client.out" 2>&1 </dev/null 9>&- &
		pids+=($!)
	done
	for i in "${!CLIENTS[@]}"; do
		client=${CLIENTS[i]}
		wait "${pids[i]}" || fail "$client: $(tail -n 3 "$DEMO/client/$client.out" | tr '\n' ' ')(see $(short "$DEMO")/client/$client.out)"
	done
	pids=()
	say "they have finished after $((SECONDS - started)) s"
}

# report NAME OPTION...: fbprof's report on the log, kept as NAME.txt.
report() {
	local name=$1
	shift
	"$DIST/bin/fbprof" report "$@" "${logs[@]}" >"$DEMO/$name.txt" 2>"$DEMO/$name.err" ||
		fail "fbprof report $*: $(<"$DEMO/$name.err")"
	[[ ! -s $DEMO/$name.err ]] || cat "$DEMO/$name.err" >&2
}

# The Nth row of a report: what comes after the headings.
row() { awk -v n="$2" '/^ *% +self/ { first = NR } first && NR == first + n' "$DEMO/$1.txt"; }

# Where the comment SLOW SPOT N stands, as the engine counts: LINE:, from the CREATE of its statement.
spot_line() {
	awk -v spot="SLOW SPOT $1" '/^create / { start = NR } index($0, spot) && !/^ \*/ { print NR - start + 1 ":" }' "$REPO/demo/shop.sql"
}

# expect REPORT ROW TEXT...: the row has all of these texts.
expect() {
	local report=$1 number=$2 found text
	found=$(row "$report" "$number")
	shift 2
	for text in "$@"; do
		[[ $found == *"$text"* ]] || fail "row $number of $(short "$DEMO")/$report.txt should have '$text', but is: $found"
	done
}

percent() { row "$1" "$2" | awk '{ print $1 }'; }

show() {
	local logs=("$DEMO"/log/*.fbprof) one two three orders i
	[[ -e ${logs[0]} ]] || fail "no log in $(short "$DEMO")/log, see $(short "$DEMO")/server/server.log and firebird.log"
	say "fbprof report --by line --limit 10"
	report lines --by line --limit 10
	cat "$DEMO/lines.txt"
	say "fbprof report --limit 5: the same, but the record sources of the plans have rows of their own"
	report all --limit 5
	for ((i = 0; i <= 6; i++)); do row all "$i"; done
	report statements --by statement --limit 0
	say "writing the tables as CSV"
	"$DIST/bin/fbprof-dump" --output "$DEMO/csv" "${logs[@]}" || fail "fbprof-dump couldn't write $(short "$DEMO")/csv"

	one=$(spot_line 1) two=$(spot_line 2) three=$(spot_line 3)
	expect lines 1 " $one" " SALES.SLOW_MOVERS"
	expect lines 2 " $two" " INVOICES.CHECKSUM"
	expect lines 3 " $three" " CATEGORY_PATH"
	expect all 1 'Table "ORDER_LINES" as "L" Full Scan in SALES.SLOW_MOVERS'
	orders=$(awk '$NF == "SHOP.PLACE_ORDER" && $(NF - 1) != "of" { print $(NF - 1) }' "$DEMO/statements.txt")
	[[ $orders == 1000 ]] || fail "SHOP.PLACE_ORDER ran 1000 times, but the report counts ${orders:-none}"

	printf '\n'
	say "What to see: the seeded slow spots are the first three lines. SALES.SLOW_MOVERS reads all of ORDER_LINES for each product"
	say "($(percent lines 1) %; no index), INVOICES.CHECKSUM takes a text apart by SUBSTRING ($(percent lines 2) %), CATEGORY_PATH looks the same up over"
	say "and over ($(percent lines 3) %). Counts are exact: 2 tills placed 1000 orders, and SHOP.PLACE_ORDER was counted 1000 times."
	say "log: $(short "${logs[0]}"); CSV: $(short "$DEMO")/csv/; all rows: build/dist/bin/fbprof report $(short "${logs[0]}")"
}

main "$@"
