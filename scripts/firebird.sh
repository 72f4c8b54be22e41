#!/usr/bin/env bash
# Scratch Firebird servers, for ./run server, the demo and the tests: make a root, start, wait, stop.
# Sourced, it defines fb_* functions, which return 1 after one line on stderr when something is wrong. Run as a
# program, it does one of them:
#
#   firebird.sh make-root ROOT [MODE [PORT]]  a server root that shares the runtime's files (FBPROF_FIREBIRD)
#   firebird.sh start ROOT [NAME=VALUE...]    starts its server with these variables and waits until it accepts
#   firebird.sh stop ROOT                     stops it, Classic children included
#   firebird.sh free-port                     prints a free TCP port
#
# A root holds firebird.conf, databases.conf (alias test = ROOT/test.fdb), security5.fdb (user SYSDBA, password
# masterkey or FBPROF_PASSWORD), firebird.log, server.log (what the server prints), server.pid and server.port.

FB_REPO=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

fb_error() {
	printf 'firebird: %s\n' "$*" >&2
	return 1
}

# The directory of the runtime: with libfbclient.so.2, plugins/ and firebird.msg.
fb_runtime() { printf '%s' "${FBPROF_FIREBIRD:-$FB_REPO/build/firebird/5.0.4}"; }

fb_check_runtime() {
	local runtime
	runtime=$(fb_runtime)
	[[ -e $runtime/plugins/libEngine13.so ]] ||
		fb_error "no Firebird 5 runtime in $runtime: run ./run setup, or set FBPROF_FIREBIRD"
}

# fb_program NAME...: the path of the first of these programs in the runtime, or in our own (a runtime that
# FBPROF_FIREBIRD names may have none).
fb_program() {
	local directory name
	for directory in "$(fb_runtime)" "$FB_REPO/build/firebird/5.0.4"; do
		for name in "$@"; do
			if [[ -x $directory/bin/$name ]]; then
				printf '%s' "$directory/bin/$name"
				return
			fi
		done
	done
	fb_error "no program $1 in $(fb_runtime)/bin: run ./run setup"
}

# fb_in ROOT [NAME=VALUE...] PROGRAM [ARGUMENT...]: runs a program as a part of the Firebird in ROOT.
fb_in() {
	local root=$1
	shift
	env FIREBIRD="$root" LD_LIBRARY_PATH="$(fb_library_path "$root")" "$@"
}

fb_library_path() { printf '%s' "$1:$1/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; }

# Whether a TCP port has a listener, from the kernel's tables: a trial connection would make a Classic server fork.
fb_listening() {
	grep -q -i -E "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

fb_free_port() {
	local python=/usr/bin/python3
	[[ -x $python ]] || python=python3
	"$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# fb_make_root ROOT [MODE [PORT]]: makes ROOT, or gives an existing one another mode and port.
fb_make_root() {
	local root=$1 mode=${2:-Super} port=${3:-0} runtime file
	fb_check_runtime || return
	mkdir -p "$root/lock" && root=$(cd -- "$root" && pwd -P) || return
	if fb_running "$root"; then
		fb_error "a server runs already in $root, pid $(<"$root/server.pid")"
		return
	fi
	[[ $port != 0 ]] || port=$(fb_free_port) || return
	runtime=$(cd -- "$(fb_runtime)" && pwd -P) || return
	for file in "$runtime"/*; do
		case ${file##*/} in
		*.conf | *.log | *.fdb | bin) ;;
		*) ln -sfn "$file" "$root/${file##*/}" || return ;;
		esac
	done
	cp "$runtime/plugins.conf" "$root/plugins.conf" &&
		printf 'test = %s/test.fdb\n' "$root" >"$root/databases.conf" &&
		printf '%s\n' >"$root/firebird.conf" \
			"ServerMode = $mode" \
			"Providers = Remote,Engine13,Loopback" \
			"RemoteBindAddress = 127.0.0.1" \
			"RemoteServicePort = $port" \
			"AuthServer = Srp" \
			"AuthClient = Srp" \
			"UserManager = Srp" \
			"SecurityDatabase = $root/security5.fdb" &&
		printf '%s\n' "$port" >"$root/server.port" || return
	[[ -e $root/.complete ]] || fb_make_databases "$root"
}

fb_make_databases() {
	local root=$1 password=${FBPROF_PASSWORD:-masterkey} isql
	isql=$(fb_program isql-fb isql) || return
	rm -f "$root/security5.fdb" "$root/test.fdb"
	fb_in "$root" FIREBIRD_LOCK="$root/lock" "$isql" -q -b -user sysdba >"$root/make.log" 2>&1 <<-END || {
		create database '$root/security5.fdb';
		create user sysdba password '${password//\'/\'\'}' using plugin Srp;
		commit;
		create database '$root/test.fdb' default character set utf8;
		commit;
	END
		fb_error "can't make the databases of $root: $(tail -n 3 "$root/make.log" | tr '\n' ' ')"
		return
	}
	: >"$root/.complete"
}

# fb_running ROOT: whether the server of ROOT runs. A pid file alone may name a process of somebody else's.
fb_running() {
	local root pid
	root=$(cd -- "$1" 2>/dev/null && pwd -P) && pid=$(cat "$root/server.pid" 2>/dev/null) || return
	[[ $(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | tail -n 1) == "$root" ]]
}

# fb_start ROOT [NAME=VALUE...]: starts the server of ROOT in the background, with these variables added to its
# environment (LD_PRELOAD, say), and waits until it accepts connections. It leads a process group of its own, so
# that Ctrl-C reaches the caller only, and Classic children can be stopped with it.
fb_start() {
	local root program port pid deadline=$((SECONDS + 30))
	root=$(cd -- "$1" && pwd -P) && port=$(<"$root/server.port") && program=$(fb_program firebird) || return
	shift
	if fb_running "$root"; then
		fb_error "a server runs already in $root, pid $(<"$root/server.pid")"
		return
	fi
	# By exec, so that the pid of the subshell becomes the server's.
	(
		exec env FIREBIRD="$root" FIREBIRD_LOCK="$root/lock" LD_LIBRARY_PATH="$(fb_library_path "$root")" \
			"$@" setsid "$program" -p "$port" -e "$root"
	) >"$root/server.log" 2>&1 </dev/null 9>&- &
	pid=$!
	printf '%s\n' "$pid" >"$root/server.pid"
	until fb_listening "$port"; do
		if ! kill -0 "$pid" 2>/dev/null; then
			rm -f "$root/server.pid"
			fb_error "the server in $root ended at once: $(tail -q -n 4 "$root/server.log" "$root/firebird.log" 2>/dev/null | tr '\n' ' ')"
			return
		fi
		if ((SECONDS >= deadline)); then
			fb_stop "$root"
			fb_error "the server in $root accepts no connection on port $port after 30 seconds"
			return
		fi
		sleep 0.1
	done
}

# Whether any process of a group lives; zombies don't count.
fb_group_alive() {
	local file stat state group
	for file in /proc/[0-9]*/stat; do
		{ read -r stat <"$file"; } 2>/dev/null || continue
		read -r state _ group _ <<<"${stat##*) }"
		[[ $group != "$1" || $state == Z ]] || return 0
	done
	return 1
}

# fb_stop ROOT: asks the server and its children to stop, and after 15 seconds ends them.
fb_stop() {
	local root=$1 pid deadline=$((SECONDS + 15))
	if ! fb_running "$root"; then
		rm -f "$root/server.pid"
		return 0
	fi
	pid=$(<"$root/server.pid")
	kill -TERM -- "-$pid" 2>/dev/null || true
	while fb_group_alive "$pid"; do
		if ((SECONDS >= deadline)); then
			kill -KILL -- "-$pid" 2>/dev/null || true
			fb_error "the server in $root didn't stop within 15 seconds, and was killed"
			break
		fi
		sleep 0.1
	done
	rm -f "$root/server.pid"
}

fb_main() {
	local command=${1-}
	shift || true
	case $command in
	make-root | start | stop)
		(($#)) || {
			fb_error "$command needs a ROOT"
			exit 2
		}
		"fb_${command//-/_}" "$@"
		;;
	free-port) fb_free_port ;;
	*)
		fb_error "usage: firebird.sh make-root ROOT [MODE [PORT]] | start ROOT [NAME=VALUE...] | stop ROOT | free-port"
		exit 2
		;;
	esac
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	set -euo pipefail
	fb_main "$@"
fi
